"""Points of several objectives as they come, and whether each is among the best fraction of them."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import numpy as np

Vector = tuple[float, ...]  # one value per objective, larger is better
_MOST_IN_NET = 32  # of a larger front, so many points at even distances stand for all
_LARGEST = float(np.finfo(float).max) / 8  # what an infinity counts as where a sum or a distance is needed


class ParetoOrder:
    """Points as they come, and whether each was among the best 1/eta when it came.

    Best are those that no other dominates, then those that only these dominate, and so on; the points of one such front
    stand in the order of an epsilon net.

    Args:
        eta: above 1.
    """

    def __init__(self, eta: float) -> None:
        self.num = 0
        self._eta = eta
        self._points: list[Vector] = []  # sorted

    def add(self, point: Vector) -> bool:
        """Keep a point; returns whether at most a share of 1/eta of all is before it in the order.

        A point with a NaN counts in their number, and all others are before it.
        """
        self.num += 1
        most = int(self.num / self._eta)  # so many may be before it
        if any(value != value for value in point):
            return False
        insort(self._points, point)
        before = 0
        for front in _fronts(self._points):
            if point in front:
                return before + len(front) <= most + 1 or _is_early(front, point, most + 1 - before)
            before += len(front)
            if before > most:
                return False
        raise AssertionError("every point is in a front")

    def fronts(self) -> list[list[Vector]]:
        """Return all points, front by front, the best first; those with a NaN are in none."""
        return list(_fronts(self._points))


def _fronts(points: Sequence[Vector]) -> Iterator[list[Vector]]:
    """Yield the fronts of sorted points, each sorted.

    The point with the largest sum is dominated by none, and dominates many. Of equal sums, which rounding may make so,
    it is the last in the order of the points, which none of the others dominates.
    """
    points = points[::-1]
    columns = np.array(points, dtype=float).T.copy()
    sums = np.clip(columns, -_LARGEST, _LARGEST).sum(axis=0)
    left = np.arange(len(points))
    while len(left):
        front: list[int] = []
        dominated = [left[:0]]
        while len(left):
            best = columns[:, left[sums[left].argmax()], None]
            values = columns[:, left]
            is_below, is_equal = (values <= best).all(axis=0), (values == best).all(axis=0)
            front += left[is_equal].tolist()
            dominated.append(left[is_below & ~is_equal])
            left = left[~is_below]
        yield [points[place] for place in sorted(front, reverse=True)]
        left = np.sort(np.concatenate(dominated))


def _is_early(front: Sequence[Vector], newcomer: Vector, most: int) -> bool:
    """Whether a newcomer is among the first `most` of its front in the order of an epsilon net.

    Of a large front some points at even distances stand for all: the newcomer has the distance from its neighbours
    among them that they have from theirs, so that it has no advantage.
    """
    place, step = bisect_left(front, newcomer), -(-len(front) // _MOST_IN_NET)
    others = [front[other] for other in range(place % step, len(front), step) if other != place]
    return is_early_in_net(others, newcomer, math.ceil(most * (len(others) + 1) / len(front)))


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
