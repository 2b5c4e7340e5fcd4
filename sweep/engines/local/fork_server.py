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
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
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

_SUPERVISOR_GRACE_S = 1.0
_GRAIN_NS = 20_000_000  # of the times that the kernel notes for files, at most


class ForkServer:
    """The fork server's loop; while it rests it waits for a run for `patience_s`."""

    def __init__(self, control: Packets, driver: int, patience_s: float) -> None:
        self._control = control
        self._driver = driver
        self._patience_s = patience_s
        self._began_ns = time.time_ns()  # no module of the user's was loaded before
        self._importer = os.environ.get(IMPORTER_VARIABLE, "")
        self._run: wire.Begin | None = None  # the one that it serves
        self._locks: list[int] = []
        self._supervisors: dict[int, tuple[int, int]] = {}  # pidfd -> (number, pid)
        self._can_rest = True

    def run(self) -> NoReturn:
        """Serve the driver until it is gone."""
        control = self._control.socket.fileno()
        while True:
            poll = select.poll()
            for descriptor in (control, self._driver, *self._supervisors):
                poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(None if self._run else 1000 * self._patience_s)}
            if ended := ready & self._supervisors.keys():
                numbers = [self._reap(pidfd) for pidfd in ended]
                # Orphans cannot be told apart, so all of them go before any supervisor counts as gone.
                processes.end_descendants(spare=[pid for _, pid in self._supervisors.values()])
                for number in numbers:
                    self._send(wire.Gone(number))
            if self._driver in ready or not ready:
                self._end()
            if control in ready:
                self._on_message()

    def _send(self, message: wire.FromForkServer) -> None:
        with contextlib.suppress(OSError):  # that the driver is gone is found out by the loop
            self._control.send(message)

    def _on_message(self) -> None:
        match self._control.receive():
            case (None, _):
                self._end()
            case (wire.Begin() as run, descriptors):
                self._begin(run, descriptors)
            case (wire.ForkSupervisor(number), [life]):
                self._fork(number, life)
            case (wire.ForkSupervisor(number), _):  # the kernel drops what finds no room here
                self._send(wire.Refused(number, errno.EMFILE))
            case (wire.Rest(), _):
                self._rest()

    def _begin(self, run: wire.Begin, descriptors: Sequence[int]) -> None:
        """Print into the run's log, hold its locks and bear its mark, and import what it needs; or end where a module
        would be another if it were imported now, or where the kernel has dropped descriptors that found no room."""
        if len(descriptors) != run.num_descriptors or not are_files_older(self._began_ns):
            self._end()
        log, *self._locks = descriptors
        processes.map_file(f"/proc/self/fd/{log}")
        _print_into(log)
        self._run = run
        os.environ[EXPERIMENT_VARIABLE] = run.directory
        self._import([name for name in run.modules if name not in sys.modules])
        if children_of(os.getpid()):
            self._can_rest = False  # a module's: a new fork server would have them, too
        self._send(wire.Ready(len(os.listdir("/proc/self/task"))))

    def _import(self, modules: Sequence[str]) -> None:
        if modules:
            os.environ[IMPORTER_VARIABLE] = self._importer
            limits.give_back()  # they find what the user has set
            with watched(self._driver, self._control.socket.fileno()), importing():
                for name in modules:
                    self._import_one(name)
                if "numpy" in sys.modules:
                    self._import_one("numpy.random")  # to be seeded in every trial
            devices.find_thread_pools()
            limits.raise_files()
            gc.collect()
            gc.freeze()  # collections in the children then leave these pages shared
        os.environ.pop(IMPORTER_VARIABLE, None)

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
            self._send(wire.Refused(number, error.errno or 0))
        finally:
            os.close(life)

    def _reap(self, pidfd: int) -> int:
        number, pid = self._supervisors.pop(pidfd)
        self._can_rest &= os.waitpid(pid, 0)[1] == 0
        os.close(pidfd)
        return number

    def _await_supervisors(self) -> None:
        for pidfd in processes.ended_of(list(self._supervisors), _SUPERVISOR_GRACE_S):
            self._reap(pidfd)

    def _rest(self) -> None:
        """See that nothing of the run is left, and wait for the next; where that is not sure, end."""
        self._await_supervisors()
        if not self._can_rest or self._supervisors or children_of(os.getpid()):
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    processes.become_subreaper()
    os.set_inheritable(descriptor, False)
    driver = os.pidfd_open(os.getppid())
    if os.getppid() != driver_pid:  # it has gone meanwhile
        os._exit(0)
    limits.set_original(num_files)
    limits.raise_files()
    ForkServer(Packets(socket.socket(fileno=descriptor)), driver, patience_s).run()


def _print_into(descriptor: int) -> None:
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


@contextlib.contextmanager
def watched(driver: int, control: int) -> Iterator[None]:
    """Have this process, and what it starts, end with the driver while this is open, though nobody listens meanwhile: a
    thread watches, which is gone before the first fork. Where there can be none, the driver is missed afterwards."""
    over = os.eventfd(0, os.EFD_CLOEXEC)

    def watch() -> None:
        poll = select.poll()
        for descriptor, mask in (
            (driver, select.POLLIN),
            (over, select.POLLIN),
            (control, 0),
        ):  # a hang-up always shows
            poll.register(descriptor, mask)
        if over not in dict(poll.poll()):
            processes.fork(partial(processes.end_tree, os.getpid()))  # which stops this process first

    thread = threading.Thread(target=watch, daemon=True)
    with contextlib.suppress(RuntimeError):
        thread.start()
    try:
        yield
    finally:
        os.eventfd_write(over, 1)
        while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # that it was joined is too early for a fork
            time.sleep(0.0002)
        os.close(over)


def are_files_older(then_ns: int) -> bool:
    """Whether no file of a loaded module, and no directory that packages are installed in, has changed since a time."""
    paths = [entry for entry in sys.path if entry.endswith("-packages")]
    paths += [str(vars(module).get("__file__")) for module in sys.modules.values() if isinstance(module, ModuleType)]
    for path in paths:
        with contextlib.suppress(OSError):  # no file, as of modules that are made by others
            if os.stat(path).st_ctime_ns >= then_ns - _GRAIN_NS:
                return False
    return True
