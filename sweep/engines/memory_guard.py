"""Trials that fill a machine's memory: the largest is ended before somebody else chooses what to kill.

Ray watches the memory of its nodes, too, and ends whole workers when it is short: on a node that is full it would end
the agent, and all trials there with it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sweep.core.messages import ExitKind, Kill
from sweep.core.resources import format_bytes
from sweep.engines.loop import Loop
from sweep.engines.processes import descendants
from sweep.engines.slots import Attempt

_LOOK_S = 0.25
_SETTLE_S = 1.0  # for the memory of what was killed to come back
_LEAST_SHARE = 0.05  # of the machine's memory: ending what holds less would not help

_CGROUPS = (
    ("memory.max", "memory.current", "inactive_file"),  # version 2
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)


class MemoryGuard:
    """Looks at the machine's memory while attempts run, and ends the largest when it is nearly full."""

    def __init__(
        self,
        limit: float,
        loop: Loop,
        attempts: Mapping[tuple[str, int], Attempt],
        kill: Callable[[Attempt, Kill], None],
        read: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        """Begin to look.

        Args:
            limit: part of the memory above which an attempt is ended, in (0, 1).
            attempts: those that there are.
            kill: ends one.
            read: returns the bytes in use and those that there are; None: as the kernel tells.
        """
        self._limit = limit
        self._loop = loop
        self._attempts = attempts
        self._kill = kill
        self._read = read or memory_in_use
        loop.alarm(_LOOK_S, self._look)

    def _look(self) -> None:
        used, total = self._read()
        is_over = total > 0 and used > self._limit * total and self._end_largest(used, total)
        self._loop.alarm(_SETTLE_S if is_over else _LOOK_S, self._look)

    def _end_largest(self, used: int, total: int) -> bool:
        """End the attempt that holds most; whether there was one worth it."""
        sizes = [(resident_bytes(one.pids), one) for one in self._attempts.values() if one.kill is None and one.pids]
        size, attempt = max(sizes, key=lambda item: item[0], default=(0, None))
        if attempt is None or size < _LEAST_SHARE * total:
            return False
        reason = (
            f"the machine had {format_bytes(used)} of {format_bytes(total)} in use, and this trial held more than "
            f"the others, {format_bytes(size)}. Run fewer trials at a time (max_concurrent_trials), or ask for memory "
            "in resources_per_trial"
        )
        self._kill(attempt, Kill(*attempt.key, reason, ExitKind.OUT_OF_MEMORY))
        return True


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the memory that some processes and their descendants hold; what they share counts for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in pids:
        for one in (pid, *descendants(pid)):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                total += page * int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return total


def memory_in_use(root: str | Path = "/") -> tuple[int, int]:
    """Return how many bytes of memory are in use and how many there are, of a container those of its own limit."""
    lines = (Path(root, "proc/meminfo").read_text()).splitlines()
    facts = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    total = facts["MemTotal"]
    used = total - facts.get("MemAvailable", facts.get("MemFree", 0))
    for limit_name, used_name, cache_name in _CGROUPS:
        place = Path(root, "sys/fs/cgroup")
        with contextlib.suppress(OSError, ValueError):  # no container, no limit ("max"), or the other version
            limit = int((place / limit_name).read_text())
            if limit < total:
                held = int((place / used_name).read_text())
                stat = (place / used_name).parent / "memory.stat"
                cached = dict(line.split() for line in stat.read_text().splitlines()).get(cache_name, "0")
                return held - int(cached), limit
    return used, total
