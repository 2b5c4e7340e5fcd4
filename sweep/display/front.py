"""The Pareto set of the trials' last reports while they come: whom no other beats in every objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchers.pareto import is_dominated, losses_of, pareto_front
from sweep.core.ranking import Objectives

__all__ = ["Front"]


class Front:
    """Keep the last values of each trial, and whom no other beats; those that run are few, so they are looked at anew.

    What has no process has come to rest: of all those only the ones that none of them beats are looked at again.
    """

    def __init__(self, objectives: Objectives) -> None:
        self._objectives = objectives
        self._modes = [mode for _, mode in objectives]
        self._moving: dict[int, tuple[Any, ...]] = {}
        self._resting: dict[int, tuple[Any, ...]] = {}
        self._kept: dict[int, tuple[float, ...]] | None = {}  # losses of the resting ones that no resting one beats

    def put(self, number: int, values: Sequence[Any], *, is_moving: bool) -> None:
        """Let trial `number` have these values, one for each objective; none: it has not reported."""
        point = tuple(values)
        known = self._resting.get(number)
        if not is_moving and known == point:
            return
        self._moving.pop(number, None)
        if known is not None:
            del self._resting[number]
            if self._kept is not None and number in self._kept:
                self._kept = None  # those that only it beat are back
        if not point:
            return
        if is_moving:
            self._moving[number] = point
            return
        self._resting[number] = point
        if self._kept is not None:
            self._keep(self._kept, number)

    def best(self) -> list[tuple[int, tuple[Any, ...]]]:
        """Return (number, values) of those that no other beats, ordered by number."""
        if self._kept is None:
            resting = list(self._resting)
            front = pareto_front([self._resting[number] for number in resting], self._modes)
            self._kept = {}
            for i in front:
                self._keep(self._kept, resting[i])
        some = {number: self._resting[number] for number in self._kept} | self._moving
        numbers = sorted(some)
        return [(numbers[i], some[numbers[i]]) for i in pareto_front([some[number] for number in numbers], self._modes)]

    def _keep(self, kept: dict[int, tuple[float, ...]], number: int) -> None:
        losses = losses_of(self._resting[number], self._modes)
        if losses is None or is_dominated(losses, list(kept.values())):
            return
        for other in [other for other, its in kept.items() if is_dominated(its, [losses])]:
            del kept[other]
        kept[number] = losses
