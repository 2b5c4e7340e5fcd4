"""Times told by another machine, in this one's clock: monotonic clocks of two machines have nothing in common."""

from __future__ import annotations

import math


class ClockGap:
    """How far another machine's monotonic clock is ahead of this one's.

    Found as NTP does it, from messages both ways that bear the time at which they were sent: of each way the fastest
    counts, and both are taken to last equally long. So it is wrong by half the difference of the two at most.
    """

    def __init__(self) -> None:
        self._from_there = math.inf  # least of: arrival here less sending there, each by its own clock
        self._to_there = math.inf

    def heard(self, sent_at: float, now: float, lag: float | None) -> None:
        """Take a message of the other machine's.

        Args:
            sent_at: by its clock.
            lag: what it has found itself, of messages that went there: arrival there less sending here.
        """
        self._from_there = min(self._from_there, now - sent_at)
        if lag is not None:
            self._to_there = min(self._to_there, lag)

    def here(self, at: float, now: float) -> float:
        """Return a time of the other machine's in this one's clock; nothing that was told lies after `now`."""
        if math.isinf(self._from_there):
            return now
        gap = -self._from_there if math.isinf(self._to_there) else (self._to_there - self._from_there) / 2
        return min(now, at - gap)
