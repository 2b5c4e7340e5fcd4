"""The fork server: it imports what trials need, once, is forked for every supervisor, and runs no user code of trials.

It is a subreaper: when a supervisor is killed, its descendants become children of the fork server, which ends them.
When the driver is gone it gives the supervisors a second to do that themselves, then kills them (stopped ones too) and
what is left. Between the runs of a driver it may rest: then it has no child, no lock and no file of the last one.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NoReturn

from sweep.engines.local.processes import (
    become_subreaper,
    end_descendants,
    end_marked,
    end_tree,
    ended_of,
    fork,
    map_file,
    pidfd_of,
)
from sweep.engines.local.supervisor import Supervisor
from sweep.record.importing import importing, why_missing
from sweep.record.proc import children_of
from sweep.worker import devices, limits, wire
from sweep.worker.channel import Packets
from sweep.worker.environment import EXPERIMENT_VARIABLE, IMPORTER_VARIABLE
from sweep.worker.limits import are_processes_few

_SUPERVISOR_GRACE_S = 1.0
# Needed by nearly every trial, and slow to import in each: 1.6 - 3.3 ms for `random` alone.
_PRELOADED = ("random", "threading", "logging", "traceback", "tempfile", "cloudpickle")


class ForkServer:
    """The fork server's loop."""

    def __init__(self, control: Packets, setup: wire.Setup, driver: int) -> None:
        self._control = control
        self._setup = setup
        self._began_ns = setup.began_ns  # by the wall clock: no module was loaded before whose file is not known
        self._importer = os.environ.get(IMPORTER_VARIABLE, "")
        self._driver = driver
        self._locks: list[int] = []
        self._is_reusing = False
        self._supervisors: dict[int, tuple[int, int]] = {}  # pidfd -> (number, pid)
        self._files: LoadedFiles | None = None  # of the modules, once a supervisor is there
        self._has_begun = False  # any run
        self._patience_s: float | None = setup.patience_s  # while it rests
        self._can_rest = True

    def _begin(self, begin: wire.Begin, descriptors: Sequence[int]) -> None:
        """Serve a run: print into its log, hold its locks, bear its mark, as everything does that is forked, and import
        what it needs. End where a module would be another if it were imported now."""
        if self._has_begun:
            now_ns = time.time_ns()
            if self._files is None or not self._files.are_same():
                self._end()
            self._began_ns, self._files = now_ns, None
            self.send(wire.Begun())
        self._has_begun = True
        if len(descriptors) != begin.num_descriptors:  # the kernel drops what finds no room here
            os._exit(1)
        log, *self._locks = descriptors
        map_file(f"/proc/self/fd/{log}")
        _print_into(log)
        self._is_reusing, self._patience_s = begin.is_reusing, None
        os.environ[EXPERIMENT_VARIABLE] = begin.directory
        if self._setup.is_importing:
            self._import([name for name in (*_PRELOADED, *begin.modules) if name not in sys.modules])
        if children_of(os.getpid()):
            self._can_rest = False  # a module's: a new fork server would have them, too
        self.send(wire.Ready(len(os.listdir("/proc/self/task"))))

    def _import(self, modules: Sequence[str]) -> None:
        if not modules:
            return
        if self._importer:
            os.environ[IMPORTER_VARIABLE] = self._importer
        limits.give_back()  # they find what the user has set
        with watched(self._driver, self._control.socket.fileno(), self._locks), importing():
            for name in modules:
                self._import_one(name)
            if "numpy" in sys.modules:
                self._import_one("numpy.random")  # to be seeded in every trial
        devices.find_thread_pools()
        limits.raise_files()
        gc.collect()
        gc.freeze()  # collections in the children then leave these pages shared

    def _import_one(self, name: str) -> None:
        top = name.partition(".")[0]
        if not (name in _PRELOADED or name in sys.modules or top == "sweep" or top in sys.stdlib_module_names):
            self.send(wire.Importing(name))
        try:
            importlib.import_module(name)
        except BaseException as error:  # the border to the user's code; the trial will meet the error, too
            line = traceback.format_exception_only(error)[-1].strip()
            why = why_missing(error)
            self.send(wire.Notice(f"importing {name} in advance failed: {line}{'. ' if why else ''}{why}"))

    def run(self) -> NoReturn:
        """Serve the driver until it is gone."""
        control = self._control.socket.fileno()
        while True:
            poll = select.poll()
            for descriptor in (control, self._driver, *self._supervisors):
                poll.register(descriptor, select.POLLIN)
            patience_s = self._patience_s
            ready = {descriptor for descriptor, _ in poll.poll(None if patience_s is None else 1000 * patience_s)}
            ended = [descriptor for descriptor in ready if descriptor in self._supervisors]
            if ended:
                self._on_supervisors_ended(ended)
            if self._driver in ready or not ready:
                self._end()
            if control in ready:
                self._on_message()
            if self._supervisors and self._files is None:
                self._files = LoadedFiles(self._began_ns)

    def send(self, message: wire.FromForkServer) -> None:
        """Send to the driver; that it is gone is found out by the loop."""
        with contextlib.suppress(OSError):
            self._control.send(message)

    def _on_message(self) -> None:
        match self._control.receive():
            case (None, _):
                self._end()
            case (wire.ForkSupervisor(number), [life]):
                self._fork(number, life)
            case (wire.ForkSupervisor(number), _):  # the kernel drops what finds no room here
                self.send(wire.Refused(number, errno.EMFILE))
            case (wire.EndSupervisor(number), _):
                for other, pid in self._supervisors.values():
                    if other == number:
                        os.kill(pid, signal.SIGKILL)
            case (wire.Rest(patience_s), _):
                self._rest(patience_s)
            case (wire.Begin() as begin, descriptors):
                self._begin(begin, descriptors)

    def _fork(self, number: int, life: int) -> None:
        def be_supervisor() -> None:
            # Every descriptor that is not the supervisor's own must go, or an end of file never comes.
            self._control.close()
            for pidfd in self._supervisors:
                os.close(pidfd)
            Supervisor(socket.socket(fileno=life), self._driver, is_reusing=self._is_reusing, locks=self._locks).run()

        try:
            pid = fork(be_supervisor)
            self._supervisors[pidfd_of(pid)] = (number, pid)
        except OSError as error:
            self.send(wire.Refused(number, error.errno or 0))
        finally:
            os.close(life)

    def _on_supervisors_ended(self, ended: list[int]) -> None:
        """Reap supervisors, end what they left, and say so. Orphans cannot be told apart, so all of them go first."""
        numbers = [self._reap(pidfd) for pidfd in ended]
        end_descendants(spare=[pid for _, pid in self._supervisors.values()])
        for number in numbers:
            self.send(wire.Gone(number))

    def _reap(self, pidfd: int) -> int:
        number, pid = self._supervisors.pop(pidfd)
        os.waitpid(pid, 0)
        os.close(pidfd)
        return number

    def _rest(self, patience_s: float) -> None:
        """See that nothing of the run is left, and wait for the next; where that is not sure, end."""
        for pidfd in ended_of(list(self._supervisors), _SUPERVISOR_GRACE_S):
            self._reap(pidfd)
        if self._files is None:
            self._files = LoadedFiles(self._began_ns)
        is_alone = not self._supervisors and not children_of(os.getpid())
        if not (self._can_rest and is_alone):
            self._end(patience_s=0.0)
        os.environ.pop(EXPERIMENT_VARIABLE, None)
        map_file("")
        for lock in self._locks:
            os.close(lock)
        self._locks = []
        _print_into(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
        self._patience_s = patience_s
        self.send(wire.Resting())

    def _end(self, *, patience_s: float = _SUPERVISOR_GRACE_S) -> NoReturn:
        """The driver is gone, or has no use for this any more: see that everything else goes, too."""
        self._control.close()
        for pidfd in ended_of(list(self._supervisors), patience_s):
            self._reap(pidfd)
        end_descendants()
        os._exit(0)


def main(descriptor: int) -> NoReturn:
    """Be the fork server: `descriptor` is the inherited socket to the driver."""
    parent = os.getppid()
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    become_subreaper()
    os.set_inheritable(descriptor, False)
    control = Packets(socket.socket(fileno=descriptor))
    setup, _ = control.receive()
    if setup is None:
        os._exit(0)
    try:
        driver = os.pidfd_open(setup.driver_pid)
    except ProcessLookupError:
        os._exit(0)
    if os.getppid() != parent:
        os._exit(0)
    sys.path[:] = setup.path
    limits.set_original(setup.num_files)
    limits.raise_files()
    ForkServer(control, setup, driver).run()


def _print_into(descriptor: int) -> None:
    """Have standard output and error go there, and close the descriptor."""
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


@contextlib.contextmanager
def watched(driver: int, control: int, unneeded: Sequence[int]) -> Iterator[None]:
    """Have this process, and what it starts, end with the driver while this is open: a second process watches.

    A fork server that imports does not listen, and what a module starts while it is imported outlives every process
    of ours: the kernel's death signal would end the fork server alone.

    What is started bears the mark that this process was started with; afterwards the mark is gone. Where the kernel
    allows no process more, or so few that the driver may need this one for a thread, nothing watches: then a driver
    that goes is noticed after the import only.

    Args:
        driver: pidfd of the driver.
        control: socket to the driver.
        unneeded: descriptors that the watch must not hold.
    """
    own = os.getpid()
    mark = os.environ.get(IMPORTER_VARIABLE, "")
    fork_server = -1

    def watch() -> None:
        os.setsid()
        for descriptor in unneeded:
            os.close(descriptor)
        _watch(own, driver, control, fork_server, mark)

    pid = -1
    if not are_processes_few():
        with contextlib.suppress(OSError):
            fork_server = os.pidfd_open(own)
            pid = fork(watch, 0)
    if fork_server >= 0:
        os.close(fork_server)
    try:
        yield
    finally:
        os.environ.pop(IMPORTER_VARIABLE, None)
        if pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # a module has waited for any child
                os.waitpid(pid, 0)


def _watch(fork_server_pid: int, driver: int, control: int, fork_server: int, mark: str) -> None:
    poll = select.poll()
    poll.register(driver, select.POLLIN)
    poll.register(fork_server, select.POLLIN)
    poll.register(control, 0)  # the hang-up of a closed socket is reported whatever is registered
    ready = {descriptor for descriptor, _ in poll.poll()}
    os.close(control)  # the driver sees that the fork server is gone when no process holds its end
    if fork_server not in ready:
        end_tree(fork_server_pid)
    if mark:
        end_marked([], [f"{IMPORTER_VARIABLE}={mark}".encode()])


_GRAIN_NS = 20_000_000  # of the times that the kernel notes for files, at most


class LoadedFiles:
    """The files of the modules of this process, and the directories that packages are installed in, as they are now.

    Not only the contents count: a file that was replaced by an older one of the same size has another time of change.
    """

    def __init__(self, since_ns: int) -> None:
        """Note them.

        Args:
            since_ns: by the wall clock, before the first was loaded. What changed after that may have been loaded
                before it did, so nothing is known then.
        """
        files = [
            file
            for module in list(sys.modules.values())
            if isinstance(module, ModuleType) and isinstance(file := module.__dict__.get("__file__"), str)
        ]
        installed = [entry for entry in sys.path if entry.endswith("-packages") or os.path.isfile(entry)]
        self._seen = {path: _state(path) for path in (*files, *installed)}
        self._is_known = all(state[0] < since_ns - _GRAIN_NS for state in self._seen.values())

    def are_same(self) -> bool:
        """Whether they are as they were when they were loaded, for sure."""
        return self._is_known and all(_state(path) == state for path, state in self._seen.items())


def _state(path: str) -> tuple[int, ...]:
    """Return what a change of a file changes, its time first; the file may be gone, or lie in an archive."""
    try:
        found = os.stat(path)
    except OSError:
        return (0,)
    return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
