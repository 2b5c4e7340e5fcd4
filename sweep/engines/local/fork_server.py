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
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import NoReturn

from sweep.engines.local import processes
from sweep.engines.local.supervisor import Supervisor
from sweep.record.importing import importing, why_missing
from sweep.record.proc import children_of
from sweep.worker import devices, limits, wire
from sweep.worker.channel import Packets
from sweep.worker.environment import EXPERIMENT_VARIABLE, IMPORTER_VARIABLE
from sweep.worker.main import die_with

_SUPERVISOR_GRACE_S = 1.0
_GRAIN_NS = 20_000_000  # of the times that the kernel notes for files, at most


class ForkServer:
    """The fork server's loop."""

    def __init__(self, control: Packets, driver: int) -> None:
        self._control = control
        self._driver = driver
        self._began_ns = time.time_ns()  # no module of the user's was loaded before
        self._is_new = True  # it has served no run: what it has imported so far is of the one that it is started for
        self._importer = os.environ.pop(IMPORTER_VARIABLE)
        self._run: wire.Begin | None = None  # the one that it serves
        self._locks: list[int] = []
        self._supervisors: dict[int, tuple[int, int]] = {}  # pidfd -> (number, pid)
        self._can_rest = True

    def run(self, patience_s: float) -> NoReturn:
        """Serve the driver until it is gone, or has no run for it for so long."""
        control = self._control.socket.fileno()
        while True:
            descriptors = (control, self._driver, *self._supervisors)
            ready = processes.await_ready(descriptors, None if self._run else patience_s)
            if ended := ready & self._supervisors.keys():
                gone = [self._reap(pidfd) for pidfd in ended]
                # Orphans cannot be told apart, so all of them go before any supervisor counts as gone.
                processes.end_descendants(spare=[pid for _, pid in self._supervisors.values()])
                for one in gone:
                    self._send(one)
            if self._driver in ready or not ready:
                self._end()
            if control in ready:
                self._on_message()

    def _send(self, message: wire.FromForkServer) -> None:
        with contextlib.suppress(OSError):  # that the driver is gone is found out by the loop
            self._control.send(message)

    def _on_message(self) -> None:
        match self._control.receive():
            case (wire.Preload(modules), _):
                self._import(modules)
            case (wire.Begin() as run, [log, *locks]):
                self._begin(run, log, locks)
            case (wire.ForkSupervisor(number), [life]):
                self._fork(number, life)
            case (wire.ForkSupervisor(number), _):
                self._send(wire.Refused(errno.EMFILE, number))
            case (wire.Rest(), _):
                self._rest()
            case _:
                self._end()

    def _begin(self, run: wire.Begin, log: int, locks: list[int]) -> None:
        """Print into the run's log, hold its locks and bear its mark, and import what it needs; or end where a module
        would be another if it were imported now."""
        if not (self._is_new or are_files_older(self._began_ns)):
            self._end()
        self._is_new = False
        processes.map_file(f"/proc/self/fd/{log}")
        _print_into(log)
        self._run, self._locks = run, locks
        os.environ[EXPERIMENT_VARIABLE] = run.directory
        self._import([name for name in run.modules if name not in sys.modules])
        self._can_rest &= not children_of(os.getpid())  # a module's: a new fork server would have them, too
        self._send(wire.Ready(len(os.listdir("/proc/self/task"))))

    def _import(self, modules: Sequence[str]) -> None:
        if not modules:
            return
        os.environ[IMPORTER_VARIABLE] = self._importer
        limits.give_back()  # they find what the user has set
        watcher = 0
        with contextlib.suppress(OSError):  # then the driver's end is noticed when all is imported
            watcher = processes.fork(partial(_watch, self._driver, os.getpid()))
        with importing():
            for name in modules:
                self._import_one(name)
            if "numpy" in sys.modules:
                self._import_one("numpy.random")  # to be seeded in every trial
        if watcher:
            processes.send(signal.SIGKILL, watcher)
            with contextlib.suppress(ChildProcessError):  # a module waits for whatever ends
                os.waitpid(watcher, 0)
        limits.raise_files()
        os.environ.pop(IMPORTER_VARIABLE, None)
        devices.find_thread_pools()
        gc.collect()
        gc.freeze()  # collections in the children then leave these pages shared

    def _import_one(self, name: str) -> None:
        if name.partition(".")[0] not in {"sweep", "cloudpickle", *sys.stdlib_module_names}:
            self._send(wire.Importing(name))
        try:
            importlib.import_module(name)
        except BaseException as error:  # the border to the user's code; the trial will meet the error, too
            self._can_rest = False
            said = [traceback.format_exception_only(error)[-1].strip(), why_missing(error)]
            self._send(wire.Notice(f"importing {name} in advance failed: {'. '.join(filter(None, said))}"))

    def _fork(self, number: int, life: int) -> None:
        def be_supervisor() -> None:
            assert self._run is not None
            # Every descriptor that is not the supervisor's own must go, or an end of file never comes.
            self._control.close()
            for pidfd in self._supervisors:
                os.close(pidfd)
            Supervisor(socket.socket(fileno=life), self._driver, self._run, self._locks).run()

        try:
            pid = processes.fork(be_supervisor)
            self._supervisors[processes.pidfd_of(pid)] = (number, pid)
        except OSError as error:
            self._send(wire.Refused(error.errno or 0, number))
        finally:
            os.close(life)

    def _reap(self, pidfd: int) -> wire.Gone:
        number, pid = self._supervisors.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        self._can_rest &= status == 0
        os.close(pidfd)
        return wire.Gone(number, status)

    def _await_supervisors(self) -> None:
        for pidfd in processes.ended_of(self._supervisors, _SUPERVISOR_GRACE_S):
            self._reap(pidfd)

    def _rest(self) -> None:
        """See that nothing of the run is left, and wait for the next; where that is not sure, end."""
        self._await_supervisors()
        if not self._can_rest or children_of(os.getpid()):
            self._end()
        os.environ.pop(EXPERIMENT_VARIABLE, None)
        processes.map_file("")
        for lock in self._locks:
            os.close(lock)
        _print_into(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
        self._run = None
        self._send(wire.Resting())

    def _end(self) -> NoReturn:
        """The driver is gone, or has no use for this any more: see that everything else goes, too."""
        self._control.close()
        self._await_supervisors()
        processes.end_descendants()
        os._exit(0)


def main(descriptor: int, driver_pid: int, num_files: int, patience_s: float) -> NoReturn:
    """Be the fork server: `descriptor` is the inherited socket to the driver, `num_files` what trials may open."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1):  # said to all, meant for the driver
        signal.signal(number, signal.SIG_IGN)
    processes.become_subreaper()
    os.set_inheritable(descriptor, False)
    driver = os.pidfd_open(os.getppid())
    if os.getppid() != driver_pid:  # it has gone meanwhile
        os._exit(0)
    limits.set_original(num_files)
    limits.raise_files()
    ForkServer(Packets(socket.socket(fileno=descriptor)), driver).run(patience_s)


def _print_into(descriptor: int) -> None:
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _watch(driver: int, importer: int) -> None:
    """End the process that imports, and what it has started, if the driver goes: it does not listen meanwhile."""
    die_with(importer)
    processes.await_ready([driver], None)
    processes.end_tree(importer)


def are_files_older(then_ns: int) -> bool:
    """Whether no file of a loaded module, and no directory that packages are installed in, has changed since a time."""
    paths = [entry for entry in sys.path if entry.endswith("-packages")]
    paths += [str(vars(module).get("__file__")) for module in sys.modules.values() if isinstance(module, ModuleType)]
    for path in paths:
        with contextlib.suppress(OSError):  # no file, as of modules that are made by others
            if os.stat(path).st_ctime_ns >= then_ns - _GRAIN_NS:
                return False
    return True
