"""The driver's end of a fork server: start it, begin a run, ask it for supervisors, read its messages, rest, end it."""

from __future__ import annotations

import atexit
import contextlib
import errno
import itertools
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.record.proc import read
from sweep.worker import limits, wire
from sweep.worker.channel import Packets
from sweep.worker.environment import (
    DRIVER_VARIABLE,
    EXPERIMENT_VARIABLE,
    IMPORTER_VARIABLE,
    THREAD_VARIABLES,
    TRIAL_VARIABLE,
)
from sweep.worker.nested import process_mark

_CLOSE_S = 10.0
_ANSWER_S = 1.0  # of a fork server that rests; one that is swapped out takes longer than a new one
_REST_S = 600.0  # a notebook that is left open should not hold memory for ever
_numbers = itertools.count(1)
_BOOT = "import sys; sys.path[:] = {path!r}; from sweep.engines.local.fork_server import main; main({descriptor})"
# Lines of /proc/thread-self/status that a child inherits.
_INHERITED = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "Cap", "NoNewPrivs", "Seccomp", "Cpus", "Mems")


class ForkServerClient:
    """One fork server process.

    Attributes:
        packets: the socket to it, which it closes when it ends.
        importing: the module that it imports at the moment, or empty.
        modules: that it was asked to import.
        is_new: it has served no run so far.
        is_clean: nothing has happened that a new one would not have in it.
        key: whatever makes one differ from another, but for the files of its modules, which it knows itself.
    """

    def __init__(self, setup: wire.Setup, environ: Mapping[str, str], log: Path | None = None) -> None:
        """Start the process; it does not wait for it.

        Args:
            environ: its environment, to which the markers and one thread per library are added.
            log: gets what it prints before a run begins; None: nothing does.
        """
        self.importing = ""
        self.modules: frozenset[str] = frozenset()
        self.is_new = self.is_clean = True
        self.key = key_of(setup, environ)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.packets = Packets(ours)
        variables = dict(environ)
        # Libraries start their pools when they are imported: one thread leaves nothing to tear down in each worker.
        variables.update(dict.fromkeys(THREAD_VARIABLES, "1"))
        variables[DRIVER_VARIABLE] = process_mark(os.getpid())
        for name in (EXPERIMENT_VARIABLE, TRIAL_VARIABLE):
            variables.pop(name, None)
        if setup.is_importing:
            variables[IMPORTER_VARIABLE] = f"{process_mark(os.getpid())}/{next(_numbers)}"
        code = _BOOT.format(path=setup.path, descriptor=theirs.fileno())
        try:
            with open(log or os.devnull, "ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, *interpreter_flags(), "-c", code],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(theirs.fileno(),),
                    env=variables,
                )
            self.packets.send(setup)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)

    @property
    def is_alive(self) -> bool:
        """Whether it has not closed its socket."""
        return self.packets.is_open

    @property
    def pid(self) -> int:
        """Of the fork server."""
        return self._process.pid

    def begin(self, run: wire.Begin, log: Path, locks: Sequence[int]) -> bool:
        """Have it serve a run; False: it is of no use, because a module has changed, or it does not answer soon. A new
        one is not waited for: it may still boot.

        Args:
            log: gets what the imported modules print.
            locks: descriptors of files that are locked: fork server and supervisors hold them too, so that they are
                free only when the supervisors are gone.

        Raises:
            OSError: it is gone, or no descriptor is free.
        """
        was_new, self.is_new = self.is_new, False
        self.modules |= set(run.modules)
        with open(log, "ab") as output:
            descriptors = [output.fileno(), *locks]
            self.packets.send(run._replace(num_descriptors=len(descriptors)), descriptors)
        return was_new or self._has_said(wire.Begun, _ANSWER_S)

    def rest(self) -> bool:
        """Have it wait for another run, once the supervisors have lost their sockets; False: it is not fit for one."""
        self.wake()
        try:
            self.packets.send(wire.Rest(_REST_S))
        except OSError:
            return False
        return self._has_said(wire.Resting, _CLOSE_S)

    def ask_for_supervisor(self, number: int, life: socket.socket) -> None:
        """Have a supervisor forked that speaks over `life`.

        Raises:
            OSError: the process takes no more messages at the moment, or no descriptor can be handed over.
        """
        try:
            self.packets.send(wire.ForkSupervisor(number), [life.fileno()])
        except BlockingIOError:
            raise OSError(errno.ENOBUFS, "requests to the process that forks, which is busy") from None

    def wake(self) -> None:
        """Have it go on if somebody has stopped it (SIGSTOP)."""
        self._process.send_signal(signal.SIGCONT)

    def end_supervisor(self, number: int) -> None:
        """Have a supervisor killed that does not answer."""
        self.wake()
        with contextlib.suppress(OSError):
            self.packets.send(wire.EndSupervisor(number))

    def close(self) -> str:
        """End it and everything that it has started, wait until that is gone, and say how it ended."""
        with contextlib.suppress(OSError):  # what this process has forked meanwhile may hold the socket, too
            self.packets.socket.shutdown(socket.SHUT_RDWR)
        self.packets.close()  # one that still imports is ended by its watch
        self.wake()
        try:
            code = self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def end_resting(self) -> None:
        """End one that rests, and wait until it is gone: at once, because it has nothing to end before."""
        self._process.kill()
        self._process.wait()
        self.packets.close()

    def forget(self) -> None:
        """Let go of it in a process that was forked from the driver: it is the driver's."""
        self.packets.close()
        self._process.returncode = 0  # no child of this process: nothing to wait for

    def _has_said(self, kind: type[wire.FromForkServer], patience_s: float) -> bool:
        """Wait for a message; False: it does not come, or it is gone."""
        poll = select.poll()
        poll.register(self.packets.socket, select.POLLIN)
        give_up = time.monotonic() + patience_s
        while self.packets.is_open and poll.poll(1000 * max(0.0, give_up - time.monotonic())):
            message, _ = self.packets.receive()  # one at a time: what comes after it is for the loop
            if isinstance(message, kind):
                return True
        return False


def key_of(setup: wire.Setup, environ: Mapping[str, str]) -> tuple[object, ...]:
    """Return what a fork server that is started now would be made of, to be compared."""
    status = _said("thread-self/status").decode(errors="replace").splitlines()
    bounds = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    bounds["RLIMIT_NOFILE"] = (0, bounds["RLIMIT_NOFILE"][1])  # raised while a sweep runs; the user's is in the setup
    here = os.stat(".")
    return (
        sys.executable,
        interpreter_flags(),
        setup._replace(began_ns=0),
        dict(environ),
        (os.readlink("/proc/self/cwd"), here.st_dev, here.st_ino),
        [line for line in status if line.startswith(_INHERITED)],
        bounds,
        os.getpriority(os.PRIO_PROCESS, 0),
        _said("self/cgroup"),
        _said("self/oom_score_adj"),
    )


def _said(name: str) -> bytes:
    """Return what a file of /proc says; nothing where the kernel has none of that name."""
    try:
        return read(f"/proc/{name}")
    except FileNotFoundError:
        return b""


def interpreter_flags() -> list[str]:
    """Return the flags that this interpreter was started with, such as -O and -X."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


def setup_of(*, is_importing: bool) -> wire.Setup:
    """Return what a fork server of this process is told first."""
    return wire.Setup(
        path=own_path(),
        is_importing=is_importing,
        driver_pid=os.getpid(),
        num_files=limits.users_limit(),
        began_ns=time.time_ns(),
        patience_s=_REST_S,
    )


def own_path() -> list[str]:
    """Return `sys.path` as another process needs it: absolute, with the place that this package was found in."""
    here = str(Path(__file__).resolve().parents[3])
    path = [os.path.abspath(entry) for entry in sys.path]
    return path if here in path else [*path, here]


# The fork server that is cached between the runs of this process, at most one: that of the run that ended last. It is
# used again only where a new one would be the same, and ends with the driver, or when no run has come for ten minutes.
_cached: ForkServerClient | None = None
_lock = threading.Lock()


def fork_server_for(
    setup: wire.Setup, environ: Mapping[str, str], run: wire.Begin, log: Path, locks: Sequence[int]
) -> ForkServerClient:
    """Return a fork server that serves a run: the one that is cached, or a new one; see `ForkServerClient.begin`.

    Raises:
        OSError: the kernel allows no process or descriptor.
    """
    found = _exchange(None)
    try:
        is_same = found is not None and found.key == key_of(setup, environ) and found.modules <= set(run.modules)
        if found is not None and is_same:
            with contextlib.suppress(OSError):
                if found.begin(run, log, locks):
                    taken, found = found, None
                    return taken
        new = ForkServerClient(setup, environ, log)
        try:
            new.begin(run, log, locks)
        except OSError:
            new.end_resting()
            raise
        return new
    finally:
        if found is not None:
            found.end_resting()  # while the new one boots


def prepare(environ: Mapping[str, str]) -> None:
    """Start a fork server for a run that is about to begin, unless one is cached: it boots while we get ready."""
    if _cached is None:
        with contextlib.suppress(OSError):  # the run will meet the reason
            cache(ForkServerClient(setup_of(is_importing=True), environ))


def cache(fork_server: ForkServerClient) -> None:
    """Cache a fork server that rests; the one before is ended."""
    if (before := _exchange(fork_server)) is not None:
        before.end_resting()


def end_cached() -> None:
    """End the fork server that is cached, and wait until it is gone."""
    if (found := _exchange(None)) is not None:
        found.end_resting()


def _exchange(new: ForkServerClient | None) -> ForkServerClient | None:
    global _cached
    with _lock:
        old, _cached = _cached, new
    return old


def _forget_in_child() -> None:
    """A process that the driver forks neither uses nor ends what is the driver's."""
    global _lock
    _lock = threading.Lock()  # another thread may have held it
    if (found := _exchange(None)) is not None:
        found.forget()


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(end_cached)
