"""End what dead drivers have left running: daemons whose driver, fork server and supervisors were killed at once.

Ended is what bears the mark of a dead driver and of an experiment whose lock that driver has never let go: in its
environment, or, forked without a new program, in the fork server's log that it has mapped. A batch job that a trial has
submitted outlives a sweep that ends in order; and where a sweep is driven in what another has left, that stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from sweep.engines.local.processes import ended_of
from sweep.record.layout import ExperimentLayout
from sweep.record.proc import read
from sweep.worker.environment import DRIVER_VARIABLE, EXPERIMENT_VARIABLE
from sweep.worker.nested import is_dead, namespace_of

_ROUNDS = 10  # as many times as what is ended may have started something meanwhile
_GONE_S = 1.0
_NUM_NAMED, _LENGTH = 3, 40  # of commands in the notice
_LOG = re.compile(rf"(/.*)/{ExperimentLayout(Path()).code.name}/fork-server[^/]*\.log")


def end_orphans(
    own: Path, own_dead: str, mark_of_dead_driver: Callable[[Path], str], notice: Callable[[str], None]
) -> list[int]:
    """Kill what dead drivers have left running, say so in one line, and return its pids once it is gone.

    Args:
        own: directory of the experiment whose lock this process holds.
        own_dead: mark of the driver that died with that lock before; empty: none did.
        mark_of_dead_driver: the same of another experiment, from the path of its lock.
    """
    ended: dict[int, str] = {}
    dead = {os.path.realpath(own): own_dead}
    for _ in range(_ROUNDS):
        with contextlib.ExitStack() as stack:
            killed = []
            for pid in _pids():
                with contextlib.suppress(OSError):  # it ended meanwhile, or the kernel does not let us
                    if not any(_marks_of(pid)):
                        continue
                    pidfd = os.pidfd_open(pid)
                    stack.callback(os.close, pidfd)
                    mark, root = _marks_of(pid)  # of what the signal would reach
                    if root and root not in dead:
                        dead[root] = mark_of_dead_driver(ExperimentLayout(Path(root)).lock)
                    if root and dead[root] == mark:
                        command = os.fsdecode(read(f"/proc/{pid}/cmdline")).replace("\0", " ")[:_LENGTH].strip()
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                        killed.append(pidfd)
                        ended[pid] = f"{command} [{pid}] of {os.path.basename(root)}"
            if not killed:
                break
            list(ended_of(killed, _GONE_S))
    if ended:
        named = ", ".join(list(ended.values())[:_NUM_NAMED])
        processes = f"{len(ended)} process{'es' * (len(ended) > 1)}"
        notice(f"ended {processes} that trials of killed drivers had left running: {named}")
    return list(ended)


def find_orphans(mark_of_dead_driver: Callable[[Path], str]) -> dict[int, str]:
    """Return what dead drivers have left running, by pid: the directory of its experiment; nothing is ended."""
    found = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            mark, root = _marks_of(pid)
            if root and mark_of_dead_driver(ExperimentLayout(Path(root)).lock) == mark:
                found[pid] = root
    return found


def _pids() -> list[int]:
    """Return the other processes; a system without /proc shows none."""
    names = os.listdir("/proc") if namespace_of("self") else []
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid()]


def _marks_of(pid: int) -> tuple[str, str]:
    """Return the mark of a process's driver, and its experiment; empty, unless that is dead for sure, and not the one
    that has left this process, and the process is of this user and PID namespace."""
    if os.stat(f"/proc/{pid}").st_uid == os.geteuid() and namespace_of(pid) == namespace_of("self"):
        values = dict(entry.partition("=")[::2] for entry in os.fsdecode(read(f"/proc/{pid}/environ")).split("\0"))
        mark = values.get(DRIVER_VARIABLE, "")
        if mark != os.environ.get(DRIVER_VARIABLE) and is_dead(mark):
            experiment = values.get(EXPERIMENT_VARIABLE) or experiment_mapped(pid)
            return mark, os.path.realpath(experiment) if experiment else ""
    return "", ""


def experiment_mapped(pid: int | str) -> str:
    """Return the experiment of which a process has the fork server's log mapped; empty: of none."""
    found = _LOG.search(os.fsdecode(read(f"/proc/{pid}/maps")))
    return found[1] if found is not None else ""
