"""The Pareto set of the trials' last reports while they come: those that no other beats in every objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchers.pareto import pareto_front
from sweep.core.ranking import Objectives

_Points = dict[int, tuple[Any, ...]]


class Front:
    """Keep the last values of each trial, and those that no other beats.

    Those that run are few and are looked at anew each time. What has no process has come to rest: of all those only
    the ones that none of them beats are looked at again.
    """

    def __init__(self, objectives: Objectives) -> None:
        self._modes = [mode for _, mode in objectives]
        self._moving: _Points = {}
        self._resting: _Points = {}
        self._kept: _Points = {}  # those of the resting ones that may be in the set

    def put(self, number: int, values: Sequence[Any], *, is_moving: bool) -> None:
        """Let trial `number` have these values, one for each objective; none: it has not reported."""
        point = tuple(values)
        if not is_moving and self._resting.get(number) == point:
            return
        self._moving.pop(number, None)
        self._resting.pop(number, None)
        if self._kept.pop(number, None) is not None:
            self._kept = dict(self._resting)  # those that only it beat are back
        if point and is_moving:
            self._moving[number] = point
        elif point:
            self._resting[number] = self._kept[number] = point

    def best(self) -> list[tuple[int, tuple[Any, ...]]]:
        """Return (number, values) of those that no other beats, ordered by number."""
        self._kept = self._front_of(self._kept)
        return sorted(self._front_of(self._kept | self._moving).items())

    def _front_of(self, points: _Points) -> _Points:
        numbers = list(points)
        return {numbers[i]: points[numbers[i]] for i in pareto_front(list(points.values()), self._modes)}
