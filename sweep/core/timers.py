"""When the sweep has to look at a trial again whatever happens."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from sweep.core.trial import Trial


class Timers:
    """Moments at which an attempt is looked at: its grace is over, or its time is up.

    Those of attempts that are over mean nothing.

    Attributes:
        waiting: a heap of when, tie-breaker, trial, attempt, is_limit: looked at with every event.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[float, int, str, int, bool]] = []
        self._count = 0

    @property
    def soonest(self) -> float | None:
        """When the next one is due; None: there is none."""
        return self.waiting[0][0] if self.waiting else None

    def set(self, when: float, trial: Trial, *, is_limit: bool = False) -> None:
        """Look at the running attempt of a trial at `when`: at the end of a grace, or of the time that it may run."""
        self._count += 1
        heapq.heappush(self.waiting, (when, self._count, trial.id, trial.attempt, is_limit))

    def due(self, now: float) -> Iterator[tuple[str, int, bool]]:
        """Yield trial, attempt and `is_limit` of those that are due, and forget them."""
        while self.waiting and self.waiting[0][0] <= now:
            yield heapq.heappop(self.waiting)[2:]
