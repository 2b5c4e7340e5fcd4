"""Points of several objectives in the order of their fronts, kept while they come: who is among the best fraction."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

__all__ = ["ParetoOrder", "is_early_in_net"]

Vector = tuple[float, ...]  # one value per objective, larger is better
_MOST_IN_NET = 64  # of a larger front, so many points at even distances stand for all


class _Front(ABC):
    """Points of which none dominates another."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many they are."""

    @abstractmethod
    def dominates(self, point: Vector) -> bool:
        """Whether one of them is at least as good in all objectives and better in one."""

    @abstractmethod
    def exchange(self, points: Sequence[Vector]) -> list[Vector]:
        """Take points in that nobody here dominates; returns those that they push out, because they dominate them."""

    @abstractmethod
    def points(self) -> list[Vector]:
        """Return all, sorted."""

    @abstractmethod
    def others(self, point: Vector) -> list[Vector]:
        """Return all but one of them, sorted; of a large front some that stand for them."""


class _Stairs(_Front):
    """Points of two objectives, the first ascending, so the second descending: whom one dominates stand in a row."""

    def __init__(self, points: Sequence[Vector]) -> None:
        ordered = sorted(points)
        self._first = [point[0] for point in ordered]
        self._second = [-point[1] for point in ordered]  # negated: ascending too

    def __len__(self) -> int:
        return len(self._first)

    def dominates(self, point: Vector) -> bool:
        place = bisect_left(self._first, point[0])
        if place == len(self._first):
            return False
        first, second = self._first[place], -self._second[place]
        return second >= point[1] and (first, second) != point

    def exchange(self, points: Sequence[Vector]) -> list[Vector]:
        # `points` are neighbours on the front above, so those that they dominate are neighbours here: a point between
        # would be dominated by nobody above
        low = bisect_left(self._second, -points[0][1])
        high = bisect_right(self._first, points[-1][0])
        if low < high and self._first[low] == points[0][0] and self._second[low] == -points[0][1]:
            low = high  # equal points do not dominate each other, and they stand together
        pushed: list[Vector] = [(a, -b) for a, b in zip(self._first[low:high], self._second[low:high], strict=True)]
        self._first[low:high] = [point[0] for point in points]
        self._second[low:high] = [-point[1] for point in points]
        return pushed

    def points(self) -> list[Vector]:
        return [(a, -b) for a, b in zip(self._first, self._second, strict=True)]

    def others(self, point: Vector) -> list[Vector]:
        places = _spread(bisect_left(self._first, point[0]), len(self._first))
        return [(self._first[place], -self._second[place]) for place in places]


class _Cloud(_Front):
    """Points of any number of objectives."""

    def __init__(self, points: Sequence[Vector]) -> None:
        self._points = np.array(points, dtype=float)

    def __len__(self) -> int:
        return len(self._points)

    def dominates(self, point: Vector) -> bool:
        other = np.array(point)
        return bool(((self._points >= other).all(axis=1) & (self._points > other).any(axis=1)).any())

    def exchange(self, points: Sequence[Vector]) -> list[Vector]:
        new = np.array(points, dtype=float)
        at_most = np.all(self._points[:, None] <= new[None], axis=2)
        below = np.any(self._points[:, None] < new[None], axis=2)
        is_pushed = (at_most & below).any(axis=1)
        pushed = [tuple(row) for row in self._points[is_pushed].tolist()]
        self._points = np.concatenate([self._points[~is_pushed], new])
        return pushed

    def points(self) -> list[Vector]:
        return sorted(tuple(row) for row in self._points.tolist())

    def others(self, point: Vector) -> list[Vector]:
        points = self.points()
        return [points[place] for place in _spread(bisect_left(points, point), len(points))]


def _spread(place: int, number: int) -> list[int]:
    """Return which of so many sorted points stand for all others when the one at `place` is judged.

    That one has the distance from its neighbours among them that they have from theirs, so that it has no advantage.
    """
    step = -(-number // _MOST_IN_NET)
    return [other for other in range(place % step, number, step) if other != place]


def _first_front(points: list[Vector]) -> tuple[list[Vector], list[Vector]]:
    """Split sorted points into those that none of them dominates, and the rest, sorted."""
    front: list[Vector] = []
    if points and len(points[0]) == 2:
        rest, last = [], None
        for point in reversed(points):  # a point is dominated by one with a larger first value, or by none
            if last is None or point[1] > last[1] or point == last:
                front.append(point)
                last = point
            else:
                rest.append(point)
        return front, rest[::-1]
    left = np.array(points[::-1], dtype=float)
    dominated: list[list[float]] = []
    while len(left):
        best = left[0]  # the largest by its first value, then by its second ...: nothing dominates it
        is_below = (left <= best).all(axis=1) & (left < best).any(axis=1)
        front.append(tuple(best.tolist()))
        dominated += left[is_below].tolist()
        is_below[0] = True
        left = left[~is_below]
    return front, sorted(tuple(row) for row in dominated)


def is_early_in_net(points: Sequence[Vector], newcomer: Vector, most: int) -> bool:
    """Whether a newcomer is among the first `most` of a front when its points are taken in the order of an epsilon net.

    First comes the best by the first objective; then always the point that is farthest from all taken before. So the
    first few cover the whole front. Every objective counts by its range on the front. Of equals the newcomer is last.

    Args:
        points: the others, in any order that is always the same.
    """
    if most > len(points):
        return True
    if most < 1:
        return False
    values = np.array([*points, newcomer], dtype=float)
    largest = np.finfo(float).max / 4
    values = np.clip(values, -largest, largest)  # an infinity has no distance
    low, high = values.min(axis=0), values.max(axis=0)
    values = (values - low) / np.where(high > low, high - low, 1.0)
    chosen = int(np.argmax(values[:, 0]))
    nearest = np.full(len(values), np.inf)
    for _ in range(most):
        if chosen == len(points):
            return True
        nearest = np.minimum(nearest, ((values - values[chosen]) ** 2).sum(axis=1))
        nearest[chosen] = -1.0
        chosen = int(np.argmax(nearest))
    return False


class ParetoOrder:
    """Points as they come, and whether each was among the best 1/eta when it came.

    Best are those that no other dominates, then those that only these dominate, and so on; the points of one such front
    stand in the order of an epsilon net. Only fronts that may hold some of the best are kept apart; the rest waits in
    a pool, from which another front is drawn when the number of the best has grown.

    Args:
        eta: above 1.
    """

    def __init__(self, eta: float) -> None:
        self.num = 0
        self._eta = eta
        self._fronts: list[_Front] = []
        self._pool: list[Vector] = []  # whom some point of the last front dominates
        self._num_in_fronts = 0

    def add(self, point: Vector) -> bool:
        """Keep a point; returns whether at most a share of 1/eta of all is before it in the order.

        A point with a NaN counts in their number, and all others are before it.
        """
        self.num += 1
        most = int(self.num / self._eta)  # so many may be before it
        if any(value != value for value in point):
            return False
        self._deepen(most + 1)
        level = self._level(point)
        if level == len(self._fronts):
            self._pool.append(point)
            if self._num_in_fronts > most:
                return False
            self._deepen(self._num_in_fronts + 1)
            return True
        before = sum(len(front) for front in self._fronts[:level])
        self._insert(point, level)
        front = self._fronts[level]
        if before > most or before + len(front) <= most + 1:
            return before <= most
        others = front.others(point)
        free = math.ceil((most + 1 - before) * (len(others) + 1) / len(front))
        return is_early_in_net(others, point, free)

    def _level(self, point: Vector) -> int:
        """Return the first front of which nobody dominates the point; whom one dominates, all those above do too."""
        low, high = 0, len(self._fronts)
        while low < high:
            middle = (low + high) // 2
            if self._fronts[middle].dominates(point):
                low = middle + 1
            else:
                high = middle
        return low

    def _insert(self, point: Vector, level: int) -> None:
        """Put a point into its front; whom it pushes out goes to the next front, and may push out others there."""
        moving: Sequence[Vector] = (point,)
        self._num_in_fronts += 1
        for front in self._fronts[level:]:
            moving = front.exchange(moving)
            if not moving:
                return
        self._num_in_fronts -= len(moving)
        self._pool += moving

    def _deepen(self, number: int) -> None:
        """Draw fronts from the pool until they hold at least `number` points, or all."""
        while self._num_in_fronts < number and self._pool:
            self._pool.sort()
            front, self._pool = _first_front(self._pool)
            kind = _Stairs if len(front[0]) == 2 else _Cloud
            self._fronts.append(kind(front))
            self._num_in_fronts += len(front)

    def fronts(self) -> list[list[Vector]]:
        """Return all points, front by front, the best first; those with a NaN are in none."""
        found, rest = [front.points() for front in self._fronts], sorted(self._pool)
        while rest:
            front, rest = _first_front(rest)
            found.append(sorted(front))
        return found
