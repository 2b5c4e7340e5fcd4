"""When a sweep will end: what its trials took so far, played on from now many times with what they have yet to do.

A trial's length is a number of iterations, times its seconds per iteration; where trials count none, it is seconds.
What has ended and what still runs together say how long trials get (Kaplan & Meier 1958: a trial that runs is known to
be longer than it is now), and each play weighs them anew (Rubin 1981, the Bayesian bootstrap), so that few trials give
a wide spread. Then the trials that are left take the place of each that ends.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_DRAWS = 20
_MIN_ENDS = 5  # before that nothing is said of trials that may be stopped early, or whose length is not known
_MIN_PART = 0.04  # of a trial whose length is known
# Plays do not know that trials come in an order, or that what is stopped early changes on the way: measured on
# simulated sweeps, two of three true ends lie within the spread with these.
_WIDENED, _SPREAD, _WIDE_SPREAD = 1.5, 0.1, 0.25
_MAX_KEPT = 300  # trials that have ended, and trials to come that are played one by one
_MAX_LIVE = 100


@dataclass(frozen=True, slots=True)
class Eta:
    """How long it will still take: seconds, give or take `spread_s`."""

    seconds: float
    spread_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A trial that has not ended: iterations reported, the seconds until then (0: nothing is known), and since then."""

    iterations: float
    seconds: float
    since_s: float = 0.0


class Forecast:
    """Learn how long trials take, and play on.

    Args:
        limit: the iteration at which each trial ends at the latest; None: unknown.
        can_stop_early: something may end trials before that.
    """

    def __init__(self, limit: float | None = None, *, can_stop_early: bool = False) -> None:
        self.limit = limit
        self._can_stop_early = can_stop_early
        self._ended: deque[tuple[float, float]] = deque(maxlen=_MAX_KEPT)  # iterations, seconds
        self._ends: deque[float] = deque(maxlen=_MAX_KEPT)  # when they ended
        self._began: float | None = None
        self._num_ended = 0

    def begin(self, now: float) -> None:
        """Take the moment from which trials run, unless it is known."""
        if self._began is None:
            self._began = now

    def end(self, now: float, iterations: float, seconds: float) -> None:
        """Take a trial that has ended: its iterations (0: it counted none), and its seconds."""
        self._ended.append((iterations, seconds))
        self._ends.append(now)
        self._num_ended += 1

    def eta(self, now: float, live: Sequence[Progress], begun: Sequence[Progress], num_new: int) -> Eta | None:
        """Return the expected time to the end; None while there is no ground to say.

        Args:
            now: seconds of driving.
            live: trials that run. begun: those that have run and wait. num_new: those to come that have not begun.
        """
        if not self._is_enough(live) or not (live or begun or num_new):
            return None
        play = _Play(self, list(live)[:_MAX_LIVE], list(begun), num_new, self._busy(now, live))
        ends = sorted(play.draw(random.Random(seed)) for seed in range(_DRAWS))
        low, high = ends[round(0.16 * (_DRAWS - 1))], ends[round(0.84 * (_DRAWS - 1))]
        middle = (ends[_DRAWS // 2 - 1] + ends[_DRAWS // 2]) / 2
        is_regular = self.limit is not None and not self._can_stop_early
        least = (_SPREAD if is_regular else _WIDE_SPREAD) * middle
        return Eta(middle, max(_WIDENED * (high - low) / 2, least))

    def _is_enough(self, live: Sequence[Progress]) -> bool:
        if self._num_ended >= _MIN_ENDS:
            return True
        if self.limit is None or self._can_stop_early:
            return False
        return self._num_ended > 0 or any(one.seconds and one.iterations >= _MIN_PART * self.limit for one in live)

    def _busy(self, now: float, live: Sequence[Progress]) -> float | None:
        """Return how many trials ran at a time on average, gaps between them included; None while too few have ended
        to say."""
        if self._num_ended < _MIN_ENDS or self._began is None:
            return None
        spent = sum(seconds for _, seconds in self._ended)
        if self._num_ended > _MAX_KEPT:
            lasted = self._ends[-1] - self._ends[0]
        else:
            lasted, spent = now - self._began, spent + sum(one.seconds + one.since_s for one in live)
        return spent / lasted if lasted > 0 and spent > 0 else None


class _Play:
    """What is known now, as the plays need it."""

    def __init__(
        self, known: Forecast, live: list[Progress], begun: list[Progress], num_new: int, busy: float | None
    ) -> None:
        ended = list(known._ended)
        counted = [one for one in ended if one[0] > 0] + [one for one in live if one.iterations > 0]
        self._counts = bool(counted) and (not ended or sum(one[0] > 0 for one in ended) > len(ended) / 2)
        if self._counts:
            works = [(iterations, True) for iterations, _ in ended] + [(one.iterations, False) for one in live]
            paces = [seconds / iterations for iterations, seconds in ended if iterations > 0]
            paces += [one.seconds / one.iterations for one in [*live, *begun] if one.iterations > 0]
            self._paces = [pace for pace in paces if pace > 0] or [1e-9]
        else:
            works = [(seconds, True) for _, seconds in ended] + [(one.seconds + one.since_s, False) for one in live]
            self._paces = [1.0]
        self._works = sorted(works, key=lambda work: (work[0], not work[1]))
        longest = self._works[-1][0] if self._works else 0.0
        limit = known.limit if self._counts else None
        # The longest trial runs: it gets to the limit, or as much again (the best guess for what one knows nothing of).
        self._last = max(limit or 0.0, longest) if limit else longest * (1.0 if self._works[-1][1] else 2.0)
        self._lengths = [work for work, is_over in self._works if is_over] + [self._last]
        self._live, self._begun, self._num_new = live, begun, num_new
        self._num_places = max(1, len(live), math.ceil((busy or 0.0) - 0.1))
        self._stretch = 1.0 if busy is None else max(1.0, self._num_places / busy)  # for the gaps between trials

    def draw(self, chance: random.Random) -> float:
        """Return the seconds until the last trial has ended, in one play."""
        reached = self._reached(chance)
        paces = list(accumulate(chance.expovariate(1.0) for _ in self._paces))

        def pace() -> float:
            return self._paces[min(bisect_left(paces, chance.random() * paces[-1]), len(self._paces) - 1)]

        def left(one: Progress) -> float:
            done = one.iterations if self._counts else one.seconds + one.since_s
            own = one.seconds / one.iterations if self._counts and one.iterations > 0 and one.seconds else pace()
            more = max(0.0, self._length(reached, done, chance) - done) * own
            return max(0.0, more - one.since_s) if self._counts else more

        free = sorted(left(one) for one in self._live)
        free = [0.0] * (self._num_places - len(free)) + free
        waiting = [left(one) for one in self._begun[:_MAX_KEPT]]
        waiting += [self._length(reached, 0.0, chance) * pace() for _ in range(min(self._num_new, _MAX_KEPT))]
        waiting = [seconds * self._stretch for seconds in waiting]
        beyond = len(self._begun) + self._num_new - len(waiting)
        heapq.heapify(free)
        for seconds in waiting:
            heapq.heapreplace(free, free[0] + seconds)
        return max(free) + (beyond * sum(waiting) / len(waiting) / self._num_places if beyond > 0 else 0.0)

    def _reached(self, chance: random.Random) -> list[float]:
        """Return the part of the trials that have ended at each of `_lengths`, or before: 1 for the last."""
        weights = [chance.expovariate(1.0) for _ in self._works]
        at_risk, survival = sum(weights), 1.0
        found = []
        for (_, is_over), weight in zip(self._works, weights, strict=True):
            if is_over:
                survival *= 1.0 - min(1.0, weight / at_risk) if at_risk > 0 else 0.0
                found.append(1.0 - survival)
            at_risk -= weight
        return [*found, 1.0]

    def _length(self, reached: Sequence[float], done: float, chance: random.Random) -> float:
        """Return how long a trial gets that is longer than `done`."""
        after = bisect_left(self._lengths, done, key=lambda length: length - 1e-12)
        before = reached[after - 1] if after else 0.0
        at = bisect_left(reached, before + (1.0 - before) * chance.random())
        return self._lengths[min(max(at, after), len(self._lengths) - 1)]
