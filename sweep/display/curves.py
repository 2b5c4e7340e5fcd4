"""The learning curves of a running sweep, as far as a display draws them: few points of few trials."""

from __future__ import annotations

from collections import deque
from typing import Any

from sweep.core.ranking import rankable
from sweep.display.svg import Curve

_MAX_POINTS = 120  # of one trial; then every second one goes
_MAX_ENDED = 40
_MAX_SHOWN = 60
_ENDED = ("finished", "stopped early", "failed")


class LiveCurves:
    """Keep what trials reported: of those that have a process, of the last ones that ended, and of the best.

    Memory is bounded by the trials that run at a time.
    """

    def __init__(self) -> None:
        self._points: dict[int, list[tuple[float, float]]] = {}
        self._states: dict[int, str] = {}
        self._ended: deque[int] = deque()

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

    def put(self, trial: int, state: str, best: int | None) -> None:
        """Let a trial be in one of `sweep.core.trial.STATES`; `best` is kept whatever becomes of it."""
        if state == "waiting":
            return
        self._points.setdefault(trial, [])
        was_ended, is_ended = self._states.get(trial) in _ENDED, state in _ENDED
        if is_ended and not was_ended:
            self._ended.append(trial)
        elif was_ended and not is_ended:
            self._ended.remove(trial)
        self._states[trial] = state
        for _ in range(len(self._ended) - _MAX_ENDED):
            oldest = self._ended.popleft()
            if oldest == best:
                self._ended.append(oldest)
            else:
                self._points.pop(oldest, None)
                self._states.pop(oldest, None)

    def shown(self, best: int | None) -> list[Curve]:
        """Return the curves that are drawn: the last trials, and the best."""
        for trial in self._points.keys() - self._states.keys():  # ended long ago, and heard of late
            del self._points[trial]
        numbers = sorted(self._points)[-_MAX_SHOWN:]
        if best in self._points and best not in numbers:
            numbers.append(best)
        return [Curve(trial, self._states[trial], self._points[trial], trial == best) for trial in numbers]
