"""Trials that do nothing at all: no report, and no processor time of their processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from sweep.engines.tree import descendants

__all__ = ["HANG_S", "Hangs", "processor_s"]

HANG_S = 60.0
_IDLE_SHARE = 0.01  # of one processor: a thread that looks for something now and then is no progress
_TICKS_PER_S = 100  # what /proc counts in, whatever the kernel's own rate


class Hangs:
    """Find what has been idle for too long. A trial that computes is busy, however late its first report comes.

    Args:
        after_s: how long something may be idle.
        processor_s_of: returns the processor time of a process and its descendants.
    """

    def __init__(
        self, after_s: float = HANG_S, processor_s_of: Callable[[int], float] = lambda pid: processor_s(pid)
    ) -> None:
        self._after_s = after_s
        self._processor_s_of = processor_s_of
        self._seen: dict[int, tuple[float, float]] = {}  # token -> processor time, and when it was that

    def look(self, hosts: Mapping[int, int], now: float) -> int | None:
        """Return the token of something that is idle for too long; None: nothing is.

        Args:
            hosts: what has not reported yet: token -> pid above its processes.
        """
        seen, self._seen = self._seen, {}
        for token, pid in hosts.items():
            used = self._processor_s_of(pid)
            before, since = seen.get(token, (used, now))
            if abs(used - before) > _IDLE_SHARE * (now - since):
                before, since = used, now
            elif now - since >= self._after_s:
                return token
            self._seen[token] = before, since
        return None


def processor_s(pid: int) -> float:
    """Return the seconds that a process and its descendants have computed; those that ended are not counted."""
    ticks = 0
    for one in (pid, *descendants(pid)):
        with contextlib.suppress(OSError), open(f"/proc/{one}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S
