"""Trials that do nothing at all: no report, and no processor time of their processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.engines.loop import Loop
from sweep.engines.processes import descendants
from sweep.engines.slots import Attempt
from sweep.record.proc import stat_of

HANG_S = 60.0
_IDLE_SHARE = 0.01  # of one processor: a thread that looks for something now and then is no progress
_LOOKS = 6  # while something becomes a hang
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


@dataclass(eq=False)
class LockWatch:
    """Say once what may be the reason where a trial does nothing: a lock that a thread held when it was forked.

    Attributes:
        hang_s: how long a trial may do nothing before its first report.
        attempts: those that there are.
        say: called with one line.
    """

    hang_s: float
    loop: Loop
    attempts: Mapping[Any, Attempt]
    say: Callable[[str], None]
    _num_threads: int = field(default=0, init=False)
    _modules: Sequence[str] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._hangs = Hangs(self.hang_s)

    def begin(self, num_threads: int, modules: Sequence[str]) -> None:
        """Look from now on, once the imports of `modules` have started threads where workers are forked."""
        if num_threads > 0 and not self._num_threads:
            self._num_threads, self._modules = num_threads, modules
            self._look()

    def _look(self) -> None:
        silent = {
            one.token: one
            for one in self.attempts.values()
            if one.link is not None and one.slot is not None and one.slot.pid and not one.has_reported
        }
        hosts = {token: one.slot.pid for token, one in silent.items() if one.slot is not None}
        token = self._hangs.look(hosts, time.monotonic())
        if token is None:
            self.loop.alarm(self.hang_s / _LOOKS, self._look)
            return
        self.say(
            f"trial {silent[token].trial.number:05d} has neither reported nor computed for {self.hang_s:g} s, and "
            f"importing {', '.join(self._modules)} in advance started threads ({self._num_threads}), whose locks it "
            "may wait for; if it hangs, use start_method='spawn'"
        )


def processor_s(pid: int) -> float:
    """Return the seconds that a process and its descendants have computed; those that ended are not counted."""
    ticks = 0
    for one in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            fields = stat_of(one)
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S
