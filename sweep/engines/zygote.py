"""The zygote: it imports what trials need, once, and is forked for every host; it runs no user code of trials.

It is a subreaper: when a host is killed, its descendants become children of the zygote, which ends them. When the
driver is gone it gives the hosts a second to do that themselves, then kills them (stopped ones too) and what is left.
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
import traceback
from collections.abc import Sequence
from typing import NoReturn

from sweep.engines.host import Host
from sweep.engines.import_watch import watched
from sweep.engines.processes import become_subreaper, end_descendants, ended_of, fork, pidfd_of
from sweep.record.importing import importing, why_missing
from sweep.worker import devices, limits, wire
from sweep.worker.channel import Packets
from sweep.worker.main import room_to_print
from sweep.worker.room import make_patient

__all__ = ["main"]

_HOST_GRACE_S = 1.0
# Needed by nearly every trial, and slow to import in each: 1.6 - 3.3 ms for `random` alone.
_PRELOADED = ("random", "threading", "logging", "traceback", "tempfile", "cloudpickle")


class Zygote:
    """The zygote's loop."""

    def __init__(self, control: Packets, setup: wire.Setup, driver: int, locks: Sequence[int]) -> None:
        self._control = control
        self._setup = setup
        self._driver = driver
        self._locks = locks
        self._hosts: dict[int, tuple[int, int]] = {}  # pidfd -> (number, pid)

    def run(self) -> NoReturn:
        """Serve the driver until it is gone."""
        control = self._control.socket.fileno()
        while True:
            poll = select.poll()
            for descriptor in (control, self._driver, *self._hosts):
                poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            ended = [descriptor for descriptor in ready if descriptor in self._hosts]
            if ended:
                self._on_hosts_ended(ended)
            if self._driver in ready:
                self._end()
            if control in ready:
                self._on_message()

    def send(self, message: wire.FromZygote) -> None:
        """Send to the driver; that it is gone is found out by the loop."""
        with contextlib.suppress(OSError):
            self._control.send(message)

    def _on_message(self) -> None:
        match self._control.receive():
            case (None, _):
                self._end()
            case (wire.ForkHost(number), [life]):
                self._fork(number, life)
            case (wire.ForkHost(number), _):  # the kernel drops what finds no room here
                self.send(wire.Refused(number, errno.EMFILE))
            case (wire.EndHost(number), _):
                for other, pid in self._hosts.values():
                    if other == number:
                        os.kill(pid, signal.SIGKILL)

    def _fork(self, number: int, life: int) -> None:
        def be_host() -> None:
            # Every descriptor that is not the host's own must go, or an end of file never comes.
            self._control.close()
            for pidfd in self._hosts:
                os.close(pidfd)
            is_reusing = self._setup.is_reusing
            Host(socket.socket(fileno=life), self._driver, is_reusing=is_reusing, locks=self._locks).run()

        try:
            pid = fork(be_host)
            self._hosts[pidfd_of(pid)] = (number, pid)
        except OSError as error:
            self.send(wire.Refused(number, error.errno or 0))
        finally:
            os.close(life)

    def _on_hosts_ended(self, ended: list[int]) -> None:
        """Reap hosts, end what they left, and say so. Strays cannot be told apart, so all of them go first."""
        numbers = []
        for pidfd in ended:
            number, pid = self._hosts.pop(pidfd)
            os.waitpid(pid, 0)
            os.close(pidfd)
            numbers.append(number)
        end_descendants(spare=[pid for _, pid in self._hosts.values()])
        for number in numbers:
            self.send(wire.Gone(number))

    def _end(self) -> NoReturn:
        """The driver is gone: see that everything else goes, too."""
        self._control.close()
        for pidfd in ended_of(list(self._hosts), _HOST_GRACE_S):
            _, pid = self._hosts.pop(pidfd)
            os.waitpid(pid, 0)
        end_descendants()
        os._exit(0)


def main(descriptor: int) -> NoReturn:
    """Be the zygote: `descriptor` is the inherited socket to the driver."""
    parent = os.getppid()
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    become_subreaper()
    os.set_inheritable(descriptor, False)
    control = Packets(socket.socket(fileno=descriptor))
    setup, descriptors = control.receive()
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
    limits.give_back()  # modules find what the user has set
    zygote = Zygote(control, setup, driver, descriptors)
    if setup.is_importing:
        with watched(driver, descriptor, descriptors), importing():
            _import_all(setup, zygote)
        devices.find_thread_pools()
        make_patient(room_to_print)  # every trial would do so; modules may have replaced them
        gc.collect()
        gc.freeze()  # collections in the children then leave these pages shared
    limits.raise_files()
    zygote.send(wire.Ready(len(os.listdir("/proc/self/task"))))
    zygote.run()


def _import_all(setup: wire.Setup, zygote: Zygote) -> None:
    for name in (*_PRELOADED, *setup.modules, "numpy.random"):
        if name in sys.modules or (name == "numpy.random" and "numpy" not in sys.modules):
            continue  # numpy's generators are there to be seeded in every trial once numpy is
        is_ours = name.startswith("sweep.")
        if name.partition(".")[0] not in sys.stdlib_module_names and name not in _PRELOADED and not is_ours:
            zygote.send(wire.Importing(name))
        try:
            importlib.import_module(name)
        except BaseException as error:  # the border to the user's code; the trial will meet the error, too
            line = traceback.format_exception_only(error)[-1].strip()
            why = why_missing(error)
            zygote.send(wire.Notice(f"importing {name} in advance failed: {line}{'. ' if why else ''}{why}"))
