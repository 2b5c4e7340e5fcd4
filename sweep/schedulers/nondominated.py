"""Points of several objectives in the order of their fronts, kept while they come, and the best fraction of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

import numpy as np

Vector = tuple[float, ...]  # one value per objective, larger is better
_MOST_IN_NET = 32  # of a larger front, so many points at even distances stand for all
_LARGEST = float(np.finfo(float).max) / 8  # what an infinity counts as where a sum or a distance is needed
_AHEAD = 1.25  # so many times the points that are needed are put into fronts at once


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
        """Take points in that none here dominates; returns those that they push out, because they dominate them."""

    @abstractmethod
    def points(self) -> list[Vector]:
        """Return all, sorted."""

    @abstractmethod
    def others(self, point: Vector) -> list[Vector]:
        """Return all but one of them, sorted; of a large front some that stand for them."""


class _Stairs(_Front):
    """Points of two objectives, the first ascending, so the second descending: what one dominates stands in a row."""

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
        # would be dominated by none above
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
    """Points of any number of objectives: in order, and in columns for comparisons of all of them at once."""

    def __init__(self, points: Sequence[Vector]) -> None:
        self._ordered = sorted(points)
        self._columns = np.array(points, dtype=float).T.copy()  # an objective a row, a point a column, in any order
        self._used = list(self._columns)  # of each row the part that holds points

    def __len__(self) -> int:
        return len(self._ordered)

    def dominates(self, point: Vector) -> bool:
        holds = self._where(np.greater_equal, point)
        place = int(holds.argmax())
        if not holds[place]:
            return False
        return self._at(place) != point or any(self._at(place) != point for place in holds.nonzero()[0].tolist())

    def exchange(self, points: Sequence[Vector]) -> list[Vector]:
        places: set[int] = set()
        for point in points:
            dominated = self._where(np.less_equal, point).nonzero()[0].tolist()
            places.update(place for place in dominated if self._at(place) != point)
        pushed = []
        size = len(self)
        for place in sorted(places, reverse=True):
            pushed.append(self._at(place))
            del self._ordered[bisect_left(self._ordered, pushed[-1])]
            size -= 1
            self._columns[:, place] = self._columns[:, size]
        if size + len(points) > self._columns.shape[1]:
            more = np.empty((len(self._columns), size + len(points)))
            self._columns = np.concatenate((self._columns[:, :size], more), axis=1)
        for point in points:
            self._columns[:, size] = point
            size += 1
            insort(self._ordered, point)
        self._used = [row[:size] for row in self._columns]
        return pushed

    def points(self) -> list[Vector]:
        return list(self._ordered)

    def others(self, point: Vector) -> list[Vector]:
        ordered = self._ordered
        return [ordered[place] for place in _spread(bisect_left(ordered, point), len(ordered))]

    def _where(self, compare: np.ufunc, point: Vector) -> np.ndarray:
        """Return for each column whether every value compares so with the point's."""
        holds: np.ndarray = compare(self._used[0], point[0])
        for row, value in zip(self._used[1:], point[1:], strict=True):
            holds &= compare(row, value)
        return holds

    def _at(self, place: int) -> Vector:
        return tuple(self._columns[:, place].tolist())


def _spread(place: int, number: int) -> list[int]:
    """Return which of so many sorted points stand for all others when the one at `place` is judged.

    That one has the distance from its neighbours among them that they have from theirs, so that it has no advantage.
    """
    step = -(-number // _MOST_IN_NET)
    return [other for other in range(place % step, number, step) if other != place]


def _peel(points: list[Vector], number: float) -> tuple[list[list[Vector]], list[Vector]]:
    """Split sorted points into fronts, as many as it takes for at least `number` points, and the rest, sorted."""
    if not points or number <= 0:
        return [], points
    return (_peel_flat if len(points[0]) == 2 else _peel_deep)(points, number)


def _peel_flat(points: list[Vector], number: float) -> tuple[list[list[Vector]], list[Vector]]:
    fronts: list[list[Vector]] = []
    left = points[::-1]
    size = len(points) - number  # at most so many are to be left
    while left and len(left) > size:
        front, rest, last = [], [], None
        for point in left:  # a point is dominated by one with a larger first value, or by none
            if last is None or point[1] > last[1] or point == last:
                front.append(point)
                last = point
            else:
                rest.append(point)
        fronts.append(front)
        left = rest
    return fronts, left[::-1]


def _peel_deep(points: list[Vector], number: float) -> tuple[list[list[Vector]], list[Vector]]:
    """Do that for any number of objectives.

    The point with the largest sum is dominated by none, and dominates many. Of equal sums, which rounding may make so,
    it is the last in the order of the points, which none of the others dominates.
    """
    points = points[::-1]
    columns = np.array(points, dtype=float).T.copy()
    sums = np.clip(columns, -_LARGEST, _LARGEST).sum(axis=0)
    left = np.arange(len(points))
    fronts: list[list[Vector]] = []
    num_drawn = 0
    while len(left) and num_drawn < number:
        front: list[Vector] = []
        dominated = [left[:0]]
        while len(left):
            best = columns[:, left[sums[left].argmax()]]
            is_below, is_equal = np.ones(len(left), bool), np.ones(len(left), bool)
            for row, value in zip(columns, best, strict=True):
                values = row[left]
                is_below &= values <= value
                is_equal &= values == value
            front += [points[place] for place in left[is_equal].tolist()]
            dominated.append(left[is_below & ~is_equal])
            left = left[~is_below]
        fronts.append(front)
        num_drawn += len(front)
        left = np.sort(np.concatenate(dominated))
    return fronts, [points[place] for place in left[::-1].tolist()]


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
    scaled = np.array([_scaled(values) for values in zip(*points, newcomer, strict=True)])
    chosen = int(scaled[0].argmax())
    distances = np.zeros((len(points) + 1, len(points) + 1))
    for values in scaled:
        apart = np.subtract.outer(values, values)
        distances += np.multiply(apart, apart, out=apart)
    nearest = distances[chosen]
    for _ in range(most - 1):
        if chosen == len(points):
            return True
        nearest[chosen] = -1.0
        chosen = int(nearest.argmax())
        np.minimum(nearest, distances[chosen], out=nearest)
    return chosen == len(points)


def _scaled(values: Sequence[float]) -> list[float]:
    """Return values as shares of their range; an infinity, which has no distance, as a very large number."""
    low, high = min(values), max(values)
    if math.isinf(low) or math.isinf(high):
        return _scaled([min(max(value, -_LARGEST), _LARGEST) for value in values])
    span = high - low if high > low else 1.0
    return [(value - low) / span for value in values]


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
        self._pool: list[Vector] = []  # points that some point of the last front dominates
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
        """Return the first front of which no point dominates this one; what one dominates, all those above do too."""
        low, high = 0, len(self._fronts)
        while low < high:
            middle = (low + high) // 2
            if self._fronts[middle].dominates(point):
                low = middle + 1
            else:
                high = middle
        return low

    def _insert(self, point: Vector, level: int) -> None:
        """Put a point into its front; one that it pushes out goes to the next front, and may push out others there."""
        moving: Sequence[Vector] = (point,)
        self._num_in_fronts += 1
        for front in self._fronts[level:]:
            moving = front.exchange(moving)
            if not moving:
                return
        self._num_in_fronts -= len(moving)
        self._pool += moving

    def _deepen(self, number: int) -> None:
        """Draw fronts from the pool until they hold at least `number` points, or all.

        Some more are drawn, so that the pool is sorted only when the number has grown by a quarter.
        """
        if self._num_in_fronts >= number:
            return
        self._pool.sort()
        fronts, self._pool = _peel(self._pool, number * _AHEAD - self._num_in_fronts)
        for front in fronts:
            self._fronts.append(_Stairs(front) if len(front[0]) == 2 else _Cloud(front))
            self._num_in_fronts += len(front)

    def fronts(self) -> list[list[Vector]]:
        """Return all points, front by front, the best first; those with a NaN are in none."""
        rest, _ = _peel(sorted(self._pool), math.inf)
        return [front.points() for front in self._fronts] + [sorted(front) for front in rest]
