"""How fast trials end: over the last minute, and over the few last ones where they take longer."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

MIN_ENDS = 5  # fewer say nothing
_WINDOW_S = 60.0
_MIN_IN_WINDOW = 20  # it grows to hold so many: long trials end in bursts, with minutes between
_MAX_KEPT = 2000


class Pace:
    """Count trials that end. All moments are seconds of driving.

    Attributes:
        num_ended: how many have.
        began: since when they are counted; None: not yet.
    """

    def __init__(self) -> None:
        self.num_ended = 0
        self.began: float | None = None
        self._times: deque[float] = deque(maxlen=_MAX_KEPT + 1)  # the beginning or an end, then all ends after it

    def begin(self, now: float) -> None:
        """Begin to count, unless that has happened."""
        if self.began is None:
            self.began = now
            self._times.append(now)

    def end(self, now: float) -> None:
        """Count a trial that has ended."""
        self.begin(now)
        self.num_ended += 1
        self._times.append(now)

    def per_second(self, now: float) -> float | None:
        """Return ends per second: of the last minute, of the last 20 where those took longer, or since the beginning;
        None while fewer than five say nothing, in the first minute, and without any."""
        if self.began is None or not self.num_ended or now <= self.began:
            return None
        if self.num_ended < MIN_ENDS and now - self.began < _WINDOW_S:
            return None
        times = list(self._times)
        recent = len(times) - max(1, bisect_right(times, now - _WINDOW_S))
        if recent >= _MIN_IN_WINDOW:
            return recent / (now - max(times[0], now - _WINDOW_S))
        count = min(_MIN_IN_WINDOW, len(times) - 1)
        return count / max(1e-9, now - times[-1 - count])
