"""The learning curves of a running sweep, as far as a display draws them: few points of few trials."""

from __future__ import annotations

from typing import Any

from sweep.core.ranking import rankable
from sweep.core.trial import shown_state
from sweep.display.state import ViewState
from sweep.display.svg import Curve

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

    def shown(self, view: ViewState) -> list[Curve]:
        """Return the curves of the trials that run, of the last others and of the best; forget all others."""
        best = None if view.best is None else view.best.trial.number
        kept = {*view.by_state["running"], *sorted(self._points)[-_MAX_SHOWN:], best}
        self._points = {trial: points for trial, points in sorted(self._points.items()) if trial in kept}
        states = {trial: shown_state(view.trials[trial]) for trial in self._points}
        return [Curve(trial, states[trial], points, trial == best) for trial, points in self._points.items()]
