"""The learning curves of a running sweep, as far as a display draws them: few points of few trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.core.ranking import rankable
from sweep.display.svg import Curve, best_so_far, learning_curves

_MAX_POINTS = 120  # of one trial; then every second one goes
_MAX_SHOWN = 60


class LiveCurves:
    """Keep what trials reported: memory is bounded by the trials that are drawn."""

    def __init__(self) -> None:
        self._points: dict[int, list[tuple[float, float]]] = {}

    def add(self, trial: int, step: Any, value: Any) -> None:
        """Take a report; one whose value or step is no finite number says nothing."""
        y = rankable(value)
        if y is None:
            return
        points = self._points.setdefault(trial, [])
        x = rankable(step)
        x = (points[-1][0] + 1 if points else 1.0) if x is None else x
        while points and points[-1][0] >= x:  # it went on from a checkpoint
            points.pop()
        points.append((x, y))
        if len(points) > _MAX_POINTS:
            del points[1:-1:2]

    def shown(self, states: Mapping[int, str], best: int | None) -> list[Curve]:
        """Return the curves of trials whose states are known, the last ones and the best; forget all others."""
        known = sorted(self._points.keys() & states.keys())
        kept = dict.fromkeys([*known[-_MAX_SHOWN:], *([best] if best in known else [])])
        self._points = {trial: self._points[trial] for trial in known}
        return [Curve(trial, states[trial], self._points[trial], trial == best) for trial in kept]


def draw_curves(curves: LiveCurves, states: Mapping[int, str], best: int | None, metric: str, mode: str) -> str:
    """Return the learning curves as html; where each trial has reported once, what they reached in their order."""
    shown = curves.shown(states, best)
    if len(shown) < 2 or any(len(curve.points) > 1 for curve in shown):
        return learning_curves(shown, metric)
    return best_so_far(sorted((curve.trial, curve.points[0][1], curve.state) for curve in shown), metric, mode)
