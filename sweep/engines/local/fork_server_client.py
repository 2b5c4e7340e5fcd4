"""The driver's end of a fork server: start it, begin a run, ask it for supervisors, read its messages, rest, end it."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.engines.local.processes import await_ready, end_marked, end_tree
from sweep.record.proc import read
from sweep.worker import environment, limits, wire
from sweep.worker.channel import Packets
from sweep.worker.nested import process_mark

_CLOSE_S = 10.0
_ANSWER_S = 1.0  # of a fork server that rests; one that is swapped out takes longer than a new one
_REST_S = 600.0  # a notebook that is left open should not hold memory for ever
# Needed by nearly every trial, and slow to import in each: 1.6 - 3.3 ms for `random` alone.
PRELOADED = ("random", "threading", "logging", "traceback", "tempfile", "cloudpickle")
_BOOT = "import sys; sys.path[:] = {path!r}; from sweep.engines.local.fork_server import main; main{arguments!r}"
_FLAGS: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
# Lines of status and limits in /proc that a child inherits.
_INHERITED = tuple("Umask Uid Gid Groups SigBlk SigIgn Cap NoNewPrivs Seccomp Cpus Mems Max".split())


class ForkServerClient:
    """One fork server process.

    Attributes:
        packets: the socket to it, which it closes when it ends; pidfd: what modules have forked may hold that, too.
        importing: the module that it imports at the moment, or empty; None: all are imported.
        modules: that it was asked to import. key: what else makes one differ from another.
        owner: pid of the process that has started it, and may use it.
    """

    def __init__(self, environ: Mapping[str, str], log: Path | None = None) -> None:
        """Start the process, which prints into `log` until a run begins, and do not wait for it."""
        self.importing: str | None = ""
        self.modules: frozenset[str] = frozenset()
        self.key = key_of(environ)
        self.owner = os.getpid()
        driver = process_mark(self.owner)
        self._mark = f"{driver}/{os.urandom(4).hex()}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.packets = Packets(ours)
        # Libraries start their pools when they are imported: one thread leaves nothing to tear down in each worker.
        variables = {**environ, **dict.fromkeys(environment.THREAD_VARIABLES, "1")}
        variables |= {environment.DRIVER_VARIABLE: driver, environment.IMPORTER_VARIABLE: self._mark}
        variables.pop(environment.EXPERIMENT_VARIABLE, None)
        variables.pop(environment.TRIAL_VARIABLE, None)
        code = _BOOT.format(path=own_path(), arguments=(theirs.fileno(), self.owner, limits.users_limit(), _REST_S))
        try:
            with theirs, open(log or os.devnull, "ab") as out:
                self._process = subprocess.Popen(
                    [sys.executable, *_FLAGS, "-c", code],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    pass_fds=(theirs.fileno(),),
                    env=variables,
                )
            self.pid = self._process.pid
            self.pidfd = os.pidfd_open(self.pid)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)

    @property
    def is_alive(self) -> bool:
        """Whether it neither has ended nor is about to."""
        return self.packets.is_open and self._process.poll() is None

    def begin(self, run: wire.Begin, log: Path, locks: Sequence[int]) -> bool:
        """Have it serve a run; False: it does not answer soon, as where a module has changed. A new one, which may
        still boot, is not waited for. Raises OSError where it is gone, or no descriptor is free."""
        was_new, self.importing = not self.modules, ""
        self.modules |= set(run.modules)
        with open(log, "ab") as output:
            self.packets.send(run, [output.fileno(), *locks])
        # What it says is for the loop.
        return was_new or (self._has_word(_ANSWER_S) and bool(self.packets.socket.recv(1, socket.MSG_PEEK)))

    def rest(self) -> bool:
        """Have it wait for another run, once the supervisors have lost their sockets; False: it is not fit for one."""
        self.wake()
        with contextlib.suppress(OSError):
            self.packets.send(wire.Rest())
            while self.packets.is_open and self._has_word(_CLOSE_S):
                if isinstance(self.packets.receive()[0], wire.Resting):
                    return True
        return False

    def _has_word(self, patience_s: float) -> bool:
        return bool(await_ready([self.packets.socket.fileno()], patience_s))

    def wake(self) -> None:
        """Have it go on if somebody has stopped it (SIGSTOP)."""
        self._process.send_signal(signal.SIGCONT)

    def close(self, *, patience_s: float = _CLOSE_S) -> str:
        """End it and everything that it has started, wait until that is gone, and say how it ended."""
        with contextlib.suppress(OSError):  # what this process has forked meanwhile may hold the socket, too
            self.packets.socket.shutdown(socket.SHUT_RDWR)
        self.packets.close()
        self.wake()
        try:
            code = self._process.wait(0.0 if self.importing else patience_s)  # it does not listen while it imports
        except subprocess.TimeoutExpired:
            end_tree(self.pid)
            code = self._process.wait()
        if self.importing is not None:  # what a module has started may have outlived it; there is no supervisor yet
            end_marked([], [f"{environment.IMPORTER_VARIABLE}={self._mark}".encode()])
        os.close(self.pidfd)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def key_of(environ: Mapping[str, str]) -> tuple[object, ...]:
    """Return what a fork server that is started now would inherit."""
    lines = (read("/proc/thread-self/status") + read("/proc/self/limits")).decode(errors="replace").splitlines()
    inherited = [line for line in lines if line.startswith(_INHERITED) and not line.startswith("Max open files")]
    cwd = os.readlink("/proc/self/cwd")
    return sys.executable, own_path(), dict(environ), cwd, limits.users_limit(), inherited


def own_path() -> list[str]:
    """Return `sys.path` as another process needs it: absolute, with the place that this package was found in."""
    here = str(Path(__file__).resolve().parents[3])
    path = [os.path.abspath(entry) for entry in sys.path]
    return path if here in path else [*path, here]


# The fork server that is cached between the runs of this process, at most one.
_cached: list[ForkServerClient] = []


def cache(fork_server: ForkServerClient) -> None:
    """Cache a fork server that rests; the one before is ended."""
    end_cached()
    _cached.append(fork_server)


def end_cached() -> None:
    """End the fork server that is cached, and wait until it is gone."""
    if (found := _take()) is not None:
        found.close(patience_s=0.0)


def _take() -> ForkServerClient | None:
    with contextlib.suppress(IndexError):
        found = _cached.pop()
        return found if found.owner == os.getpid() else None  # this is a fork of the driver
    return None


def fork_server_for(environ: Mapping[str, str], run: wire.Begin, log: Path, locks: Sequence[int]) -> ForkServerClient:
    """Return a fork server that serves a run, the one that is cached or a new one; raises OSError where the kernel
    allows none. It and its supervisors print into `log` and hold the descriptors `locks` until they are gone.
    """
    if (found := _take()) is not None:
        is_same = found.key == key_of(environ) and found.modules <= set(run.modules)
        with contextlib.suppress(OSError):
            if is_same and found.begin(run, log, locks):
                return found
        found.close(patience_s=0.0)
    new = ForkServerClient(environ, log)
    try:
        new.begin(run, log, locks)
    except OSError:
        new.close(patience_s=0.0)
        raise
    return new


def prepare(environ: Mapping[str, str], modules: Sequence[str] = ()) -> None:
    """Start a fork server for a run that is about to begin, unless one is cached: it boots while we get ready, and
    imports these modules, which trials of the run will need."""
    if not _cached:
        with contextlib.suppress(OSError):  # the run will meet the reason
            cache(new := ForkServerClient(environ))
            if modules:
                new.packets.send(wire.Preload(tuple(modules)))


atexit.register(end_cached)
