"""The driver's end of the scribe: when its process is started, what is asked of it, what is done in its place."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sweep.engines.nursery import interpreter_flags, own_path
from sweep.record.access import open_for_following
from sweep.record.following import has_news
from sweep.scribe.follower import Follower
from sweep.worker import limits
from sweep.worker.channel import Packets
from sweep.worker.environment import DRIVER_VARIABLE, EXPERIMENT_VARIABLE, TRIAL_VARIABLE
from sweep.worker.nested import process_mark
from sweep.worker.wire import CatchUp, Follow, Notice, Ready, Wrote

_LATER_S = 0.4  # a sweep that is over sooner needs no process; between two looks whether one is needed
_PATIENCE_S = 10.0  # how long callbacks wait for files at most
_END_S = 30.0  # without anything written: the process is given up
_MOST_DEATHS = 3
_NICE = 10
_BOOT = (
    "import os, sys; os.nice({nice}); sys.path[:] = {path!r}; "
    "from sweep.scribe.main import main; main({descriptor}, {parent})"
)


class Scribe:
    """Has log files written from the record.

    For the first moments, and where no process can be had, this process does it itself when somebody asks for the
    files. What it does there is what the process does: `Follower`.

    Attributes:
        is_asleep: nothing is written until somebody asks: few processes are allowed, and a thread counts as one.

    Args:
        job: what to write, and from where on.
        seq: returns the number of the last event that is committed.
        notice: called with one line for the user.
    """

    def __init__(self, job: Follow, seq: Callable[[], int], notice: Callable[[str], None]) -> None:
        self._job = job
        self._seq = seq
        self._notice = notice
        self._said: set[str] = set()
        self._own: Follower | None = None  # while this process writes
        self._changed = threading.Condition(threading.RLock())
        self._process: subprocess.Popen[bytes] | None = None
        self._packets: Packets | None = None  # once the process follows
        self._num_deaths = 0
        self._number = 0  # of the last request
        self._answer = Wrote(0, job.start)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_asleep = True

    def start(self) -> None:
        """Begin."""
        if limits.are_processes_few():
            return
        thread = threading.Thread(target=self._run, name="sweep-scribe", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread, self.is_asleep = thread, False

    def catch_up(self) -> None:
        """Return when files say all that is committed now; or the disk is full; or after ten seconds."""
        if self._over.is_set():
            return
        give_up = time.monotonic() + _PATIENCE_S
        with self._changed:
            at = self._answer.seq
            while not self._ask(lambda: give_up):
                if self._packets is None:
                    self._write()
                    return
                if time.monotonic() >= give_up:
                    self._once(f"log files are behind: callbacks waited {_PATIENCE_S:g} s for them and go on")
                    if self._answer.seq == at:  # it was stopped, or its disk hangs: another one is started
                        self._lose(is_killed=True)
                    return

    def finish(self) -> bool:
        """Write what is left and end; whether all of it is written."""
        if self._over.is_set():
            return False
        try:
            is_written = self._await_process()
            self._end()
            if is_written is not None:
                return is_written
            with self._changed:
                is_written = self._write()
                if self._own is not None:
                    self._own.close()
                return is_written
        finally:  # also when Ctrl-C is pressed instead of waiting
            self.abandon()

    def abandon(self) -> None:
        """End without writing anything more: the experiment is gone."""
        with self._changed:
            self._lose(is_killed=True)
        self._end()

    def _end(self) -> None:
        """End the process and the thread; a process that does not follow yet has nothing to lose."""
        self._over.set()
        with self._changed:
            if self._packets is not None:
                with contextlib.suppress(OSError):
                    self._packets.socket.shutdown(socket.SHUT_RDWR)
            elif self._process is not None:
                self._process.kill()
        if self._thread is not None:
            self._thread.join(_END_S)

    def _await_process(self) -> bool | None:
        """Have the process write the rest; whether all of it is written. None: there is no process any more."""
        with self._changed:
            at, began = self._answer.seq, time.monotonic()

            def until() -> float:
                nonlocal at, began
                if self._answer.seq != at:  # it gets on
                    at, began = self._answer.seq, time.monotonic()
                return began + _END_S

            while self._packets is not None:
                if self._ask(until):
                    return not self._answer.is_short
                if time.monotonic() >= until():
                    self._lose(is_killed=True)
            return None

    # --- with the lock held ------------------------------------------------------------------------------------------

    def _ask(self, until: Callable[[], float]) -> bool:
        """Have the process write all that is committed now; whether it has answered. It may be gone after that."""
        packets = self._packets
        if packets is None:
            return False
        self._number = number = self._number + 1
        with contextlib.suppress(OSError):  # it is gone; the thread hears that, too
            packets.send(CatchUp(number, self._seq()))
        while self._answer.number < number and self._packets is packets and time.monotonic() < until():
            self._changed.wait(_LATER_S)
        return self._answer.number >= number

    def _lose(self, *, is_killed: bool) -> None:
        """Go on without the process that follows: what it wrote after its last word is in the files."""
        if is_killed and self._process is not None:
            self._process.kill()
        if self._packets is not None:
            self._packets = None
            self._job = self._job._replace(start=0, settle=self._seq(), boards_from=self._answer.seq)

    def _write(self) -> bool:
        """Write what is committed, in this process; whether all of it is in the files."""
        if self._own is None:
            self._own = Follower(self._job, self._once)
        try:
            return self._own.follow()
        except Exception as error:  # log files are copies: whatever goes wrong with them ends no sweep
            self._once(f"log files in {self._job.root} cannot be completed: {type(error).__name__}: {error}")
            return False

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._notice(text)

    # --- on the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.wait(_LATER_S):
            if self._num_deaths >= _MOST_DEATHS:
                with self._changed:
                    self._write()
            elif self._is_worth_it():
                self._serve()

    def _is_worth_it(self) -> bool:
        with self._changed:
            after = self._own.written if self._own is not None else self._job.start
        if self._job.settle > self._job.start:
            return True
        wants_reports = not {"json", "csv", "tensorboard"}.isdisjoint(self._job.files)
        try:
            with closing(open_for_following(Path(self._job.database))) as connection:
                return has_news(connection, max(after, self._job.start), with_reports=wants_reports)
        except Exception:  # the record is gone, or its disk fails: others say so
            return False

    def _serve(self) -> None:
        """Start the process and hear what it says, until it has ended."""
        try:
            packets, process = self._start_process()
        except OSError:  # no process or descriptor is free
            self._num_deaths += 1
            return
        with packets.socket:
            while True:
                message, _ = packets.receive()
                if message is None:
                    break
                self._hear(packets, message)
            code = process.wait()
        with self._changed:
            self._process = None
            self._num_deaths += not self._over.is_set()
            self._lose(is_killed=False)
            self._changed.notify_all()
        if self._num_deaths == _MOST_DEATHS:
            self._once(f"the process that writes log files ended {_MOST_DEATHS} times ({code}): the driver writes them")

    def _start_process(self) -> tuple[Packets, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = dict(os.environ)
        variables.pop(TRIAL_VARIABLE, None)
        variables[EXPERIMENT_VARIABLE] = self._job.root
        variables[DRIVER_VARIABLE] = process_mark(os.getpid())
        code = _BOOT.format(nice=_NICE, path=own_path(), descriptor=theirs.fileno(), parent=os.getpid())
        try:
            process = subprocess.Popen(
                [sys.executable, *interpreter_flags(), "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=variables,
                start_new_session=True,  # Ctrl-C in a terminal is the driver's
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        with self._changed:
            self._process = process
            if self._over.is_set():
                process.kill()
        return Packets(ours), process

    def _hear(self, packets: Packets, message: object) -> None:
        match message:
            case Ready():
                with self._changed:
                    if self._over.is_set():
                        return
                    if self._own is not None:
                        self._job = self._after(self._own)
                        self._own.close()
                        self._own = None
                    with contextlib.suppress(OSError):  # it is gone, which is heard next
                        packets.send(self._job)
                        self._packets = packets
            case Wrote():
                with self._changed:
                    self._answer = message
                    self._changed.notify_all()
            case Notice(text):
                self._once(text)

    def _after(self, own: Follower) -> Follow:
        """Return the job that goes on where this process has stopped writing."""
        if own.written < max(own.position, self._job.settle):  # what is in the files only they say
            settle = max(own.position, self._job.settle)
            return self._job._replace(start=0, settle=settle, boards_from=own.position)
        return self._job._replace(start=own.written, settle=own.written, boards_from=own.written)
