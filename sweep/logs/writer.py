"""The thread that writes log files, and what waits for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from sweep.logs.follower import Follower, LogJob
from sweep.worker import limits

_PERIOD_S = 1.0  # between two looks at the record
_REST_S = 0.001  # between two rounds: the driver goes first
_PATIENCE_S = 10.0  # how long callbacks wait for files at most
_END_S = 30.0  # without anything taken in, after which the end of the sweep waits no longer
_LOOK_S = 0.1  # a signal that another thread was given is heard so late


class LogWriter:
    """Writes log files about once a second, at once for whoever waits for them, and at the end.

    Where few processes are allowed, of which a thread counts as one, they are written only for those who wait, and at
    the end. `seq` returns the number of the last event that is committed.
    """

    def __init__(self, job: LogJob, seq: Callable[[], int], notice: Callable[[str], None]) -> None:
        self._follower = Follower(job, notice)
        self._root, self._seq, self._notice = job.root, seq, notice
        self._lock = threading.Lock()  # of the follower
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_late = False  # and that was said
        self._is_abandoned = self._is_written = False
        self._problem = ""

    def start(self) -> None:
        """Begin."""
        thread = threading.Thread(target=self._run, name="sweep-logs", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread is free
            if not limits.are_processes_few():
                thread.start()
                self._thread = thread

    def catch_up(self) -> None:
        """Return when files say all that is committed now; or the disk is full; or after ten seconds."""
        if self._over.is_set():
            return
        give_up = time.monotonic() + _PATIENCE_S
        self._write(lambda: time.monotonic() < give_up, _PATIENCE_S)
        if time.monotonic() >= give_up and not self._is_late:
            self._is_late = True
            self._notice(f"log files are behind: callbacks waited {_PATIENCE_S:g} s for them and go on")

    def finish(self) -> bool:
        """Write what is left and end, as long as it gets on; whether all of it is written."""
        if self._over.is_set():
            return False
        self._over.set()
        position, give_up = -1, 0.0
        try:
            if self._thread is None:
                self._is_written = self._write(self._goes_on)
            while self._thread is not None and self._thread.is_alive():
                if self._follower.position != position:
                    position, give_up = self._follower.position, time.monotonic() + _END_S
                elif time.monotonic() > give_up:
                    self._problem = f"nothing was written for {_END_S:g} s"
                    break
                self._thread.join(_LOOK_S)
        finally:  # also when Ctrl-C is pressed instead of waiting
            self._is_abandoned = True
        if self._problem and not self._is_written:
            self._notice(f"log files in {self._root} cannot be completed: {self._problem}")
        return self._is_written

    def abandon(self) -> None:
        """End without writing anything more: the experiment is gone."""
        self._is_abandoned = True
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(_PERIOD_S):
            self._write(self._goes_on)
        self._is_written = self._write(self._goes_on)

    def _goes_on(self) -> bool:
        time.sleep(_REST_S)
        return not self._is_abandoned

    def _write(self, goes_on: Callable[[], bool], limit_s: float = -1) -> bool:
        if not self._lock.acquire(timeout=limit_s):
            return False
        try:
            return self._follower.follow(self._seq(), goes_on)
        except Exception as error:  # log files are copies: whatever goes wrong with them ends no sweep
            self._problem = f"{type(error).__name__}: {error}"
            return False
        finally:
            self._lock.release()
