"""End what dead drivers have left running: daemons whose driver, fork server and supervisors were killed at once.

A process is ended only if all of this is so. It is looked at once its pidfd is held, through which the signal goes:

| what | how it is known |
| --- | --- |
| it is of a trial, or a fork server | `SWEEP_DRIVER` and `SWEEP_EXPERIMENT` in its environment; or its log mapped |
| it is ours to end | same user, same PID namespace |
| its driver is dead | the mark names this boot and this namespace, and no process there is that one |
| and died without a word | the experiment's lock is found and free, and names that driver as one who never let go |

What is forked without a new program keeps the environment of the fork server in the kernel's eyes, which may serve
several experiments. So a fork server has its log in the one that it serves mapped, and so has whatever is forked from
it.

So a batch job that a trial has submitted outlives a sweep that ends in order. What bears the mark under which this
process itself was started stays, too: a sweep may be driven in what another has left.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from sweep.engines.local.processes import ended_of
from sweep.record.layout import ExperimentLayout
from sweep.record.proc import read
from sweep.worker.environment import DRIVER_VARIABLE, EXPERIMENT_VARIABLE
from sweep.worker.nested import is_dead, namespace_of

_ROUNDS = 10  # as many times as what is ended may have started something meanwhile
_GONE_S = 1.0
_MARK = f"{DRIVER_VARIABLE}=".encode()
_NUM_NAMED = 3
_LOG = re.compile(rf"(/.*)/{ExperimentLayout(Path()).code.name}/fork-server[^/]*\.log")


class Orphan(NamedTuple):
    """A process that was ended: its experiment's directory, pid and command."""

    experiment: str
    pid: int
    command: str


def end_orphans(
    own: Path, own_dead: str, mark_of_dead_driver: Callable[[Path], str], notice: Callable[[str], None]
) -> list[Orphan]:
    """Kill what dead drivers have left running, and return it once it is gone.

    Args:
        notice: called with one line that says what was ended.
        own: directory of the experiment whose lock this process holds.
        own_dead: mark of the driver that died with that lock before; empty: none did.
        mark_of_dead_driver: the same of another experiment, from the path of its lock.
    """
    if not hasattr(os, "pidfd_open") or not namespace_of("self"):
        return []
    own_lock, dead = ExperimentLayout(own).lock, {str(own): own_dead}
    spared = os.environ.get(DRIVER_VARIABLE)

    def is_left(mark: str, experiment: str) -> bool:
        if not mark or mark == spared or not is_dead(mark):
            return False
        if experiment not in dead:
            lock = ExperimentLayout(Path(experiment)).lock
            dead[experiment] = own_dead if _is_same(lock, own_lock) else mark_of_dead_driver(lock)
        return dead[experiment] == mark

    ended: dict[int, Orphan] = {}
    for _ in range(_ROUNDS):
        killed = []
        for pid in _marked():
            with contextlib.suppress(OSError):  # it ended meanwhile, or the kernel does not let us
                if (found := _end(pid, is_left)) is not None:
                    descriptor, left = found
                    killed.append(descriptor)
                    ended[pid] = left
        if not killed:
            break
        list(ended_of(killed, _GONE_S))
        for descriptor in killed:
            os.close(descriptor)
    if ended:
        notice(_describe(list(ended.values())))
    return list(ended.values())


def _is_same(one: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return False


def _marked() -> Iterator[int]:
    """Give this user's processes that bear a driver's mark."""
    user, own = os.geteuid(), os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own:
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile, or the kernel does not let us look
            if os.stat(f"/proc/{name}").st_uid == user and _MARK in read(f"/proc/{name}/environ"):
                yield int(name)


def _end(pid: int, is_left: Callable[[str, str], bool]) -> tuple[int, Orphan] | None:
    """Kill a process if it is left; return its pidfd. What is looked at is the pidfd's process, or the signal fails."""
    descriptor = os.pidfd_open(pid)
    try:
        entries = read(f"/proc/{pid}/environ").split(b"\0")
        values = dict(entry.partition(b"=")[::2] for entry in entries)
        mark = values.get(DRIVER_VARIABLE.encode(), b"").decode(errors="replace")
        experiment = os.fsdecode(values.get(EXPERIMENT_VARIABLE.encode(), b"")) or experiment_mapped(pid)
        is_ours = os.stat(f"/proc/{pid}").st_uid == os.geteuid() and namespace_of(pid) == namespace_of("self")
        if is_ours and experiment and is_left(mark, experiment):
            command = read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            kept, descriptor = descriptor, -1
            return kept, Orphan(experiment, pid, command)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def experiment_mapped(pid: int | str) -> str:
    """Return the experiment of which a process has the fork server's log mapped; empty: of none."""
    found = _LOG.search(os.fsdecode(read(f"/proc/{pid}/maps")))
    return found[1] if found is not None else ""


def _describe(ended: list[Orphan]) -> str:
    """Return one line for people: how many, of which experiments, and which."""
    numbers = Counter(os.path.basename(left.experiment) for left in ended)
    parts = ", ".join(f"{number} of {name}" for name, number in numbers.items())
    named = ", ".join(f"{left.command[:40]} [{left.pid}]" for left in ended[:_NUM_NAMED])
    more = f" and {len(ended) - _NUM_NAMED} more" if len(ended) > _NUM_NAMED else ""
    processes = "process" if len(ended) == 1 else "processes"
    return f"ended {len(ended)} {processes} that trials of killed drivers had left running ({parts}): {named}{more}"
