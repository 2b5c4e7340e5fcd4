"""MOASHA: asynchronous successive halving for several objectives; stops trials that are far from the Pareto front."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, final

import numpy as np

from sweep.core.messages import Decision, StopTrial
from sweep.core.results import TrialResult, signed
from sweep.core.trial import Trial
from sweep.errors import ConfigError, refuse_unknown
from sweep.schedulers.rungs import RungScheduler, StoppingLadder

Names = str | Sequence[str] | None
Vector = tuple[float, ...]  # one value per objective, larger is better
_MOST_IN_NET = 32  # of a larger front, so many points at even distances stand for all
_LARGEST = float(np.finfo(float).max) / 8  # what an infinity counts as in a sum or a distance


@refuse_unknown()
@final
class MOASHAScheduler(RungScheduler):
    """Stop a trial at a rung unless it is among the best 1/eta by several objectives at once.

    Rungs lie as those of ASHA. A trial that arrives at one is put into an order with all that got there before: first
    those that no other dominates (is at least as good in all objectives and better in one), then those that only these
    dominate, and so on. Those of one front are taken in the order of an epsilon net: the best by the first objective,
    then always the one farthest from all taken before, so that trials from all over a front go on and not only those
    from one end. A trial before which more than a share of 1/eta of all stands is stopped. The first one continues.

    Args:
        metric: names of the objectives, two or more, such as `["error", "latency_s"]`; from the run unless given here.
        mode: "min" or "max" for each, or one for all.
        others: as for `ASHAScheduler`.

    Attributes:
        metrics, modes: one per objective. metric, mode: the first of them.

    Raises:
        ConfigError: fewer than two objectives, as many modes as there are not metrics, or what ASHA refuses.

    Source: Schmucker et al. 2021, arXiv:2106.12639, with the epsilon net that it finds best, as a stopping rule.
    Departures: distances on a front are those of objectives scaled by their range there, so that units do not matter;
    the net begins at the best by the first objective, not at a random point; of a front with more than 32 points,
    32 stand for all. A trial with a NaN in any objective is stopped at its rung, and counts as one that got there.
    """

    is_multi_objective = True

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        *,
        rungs: Sequence[float] | None = None,
    ) -> None:
        limits = (max_t, grace_period, reduction_factor, stop_last_trials, rungs)
        ladder = partial(StoppingLadder, make_rung=lambda: ParetoOrder(reduction_factor))
        super().__init__(time_attr, None, None, *limits, ladder=ladder, brackets=brackets)
        self.metrics: tuple[str, ...] = ()
        self.modes: tuple[str, ...] = ()
        self._given_mode = mode
        if metric is not None:
            self._set(metric, mode)
        elif mode is not None:
            _modes(mode, 1 if isinstance(mode, str) else len(mode))

    def set_search_properties(self, metric: Names, mode: Names, *, seed: int = 0) -> None:
        """Take objectives, modes and seed from the run; what was given to the constructor may be repeated there.

        Raises:
            ConfigError: others were given here, or fewer than two in all.
        """
        self._seed = seed
        given = (metric,) if isinstance(metric, str) else tuple(metric or ())
        if not self.metrics:
            self._set(given, mode if mode is not None else self._given_mode)
        # a run that knows the first objective only repeats that one
        modes = None if mode is None else _modes(mode, len(given) or len(self.metrics))
        if given not in ((), self.metrics, self.metrics[:1]) or (modes and modes != self.modes[: len(modes)]):
            raise ConfigError(
                f"the run judges by {list(given)!r}, {mode!r}, and MOASHAScheduler was given "
                f"{list(self.metrics)!r}, {list(self.modes)!r}; give them in one place, best to the run."
            )

    def _set(self, metric: Names, mode: Names) -> None:
        names = () if isinstance(metric, str) else tuple(metric or ())
        if not all(isinstance(name, str) and name for name in names) or len(set(names)) < max(2, len(names)):
            raise ConfigError(
                f"MOASHAScheduler judges by two objectives or more, and was given {metric!r}. Pass "
                'metric=["error", "latency_s"], mode=["min", "min"]; for one objective use ASHAScheduler.'
            )
        self.metrics = names
        self.modes = _modes(mode if mode is not None else "max", len(self.metrics))
        self.metric, self.mode = self.metrics[0], self.modes[0]

    def _read(self, result: TrialResult) -> tuple[float, Any] | None:
        """Return (time, scores), larger scores being better; None if the time or one of the objectives is missing."""
        time, values = self._time(result), [result.get(name) for name in self.metrics]
        if time is None or any(value is None for value in values):
            return None
        return time, tuple(signed(value, mode) for value, mode in zip(values, self.modes, strict=True))

    def _judge(self, trial: Trial, time: float, point: Any, result: TrialResult) -> Sequence[Decision]:
        missed = self._ladder(trial).judge(trial.id, time, point)
        if missed is None:
            return ()
        scores = zip(self.metrics, point, strict=True)
        shown = ", ".join(f"{name}={result[name]:.4g}" for name, score in scores if score == score) or "no number"
        share = f"the best 1/{self.reduction_factor:g} of {missed[1]}"
        return [StopTrial(trial.id, f"stopped early: {shown} at {missed[0]:g} is not among {share}")]


def _modes(mode: Names, number: int) -> tuple[str, ...]:
    """Return one mode per objective; anything else is a ConfigError."""
    modes = (mode,) * number if isinstance(mode, str) else tuple(mode or ())
    if len(modes) != number or any(one not in ("min", "max") for one in modes):
        raise ConfigError(f"mode is {mode!r}; expected 'min' or 'max', or a list of {number} of them.")
    return modes


# --- points of several objectives, and their order ------------------------------------------------------------------


class ParetoOrder:
    """The points of one rung as they come, and whether each was among the best 1/eta when it came.

    Best are those that no other dominates, then those that only these dominate, and so on; the points of one such front
    stand in the order of an epsilon net.
    """

    def __init__(self, eta: float) -> None:
        self.num = 0
        self._eta = eta
        self._points: list[Vector] = []  # sorted

    def judge(self, point: Vector) -> int | None:
        """Keep a point; returns how many came if more than a share of 1/eta of all is before it in the order.

        A point with a NaN counts in their number, and all others are before it.
        """
        self.num += 1
        most = int(self.num / self._eta)  # so many may be before it
        if any(value != value for value in point):
            return self.num
        insort(self._points, point)
        places = most + 1  # that are left
        for front in _fronts(self._points):
            if point in front:
                return None if len(front) <= places or _is_early(front, point, places) else self.num
            places -= len(front)
            if places < 1:
                break
        return self.num

    def state(self) -> list[list[Vector]]:
        """Return all points, front by front, the best first; those with a NaN are in none."""
        return list(_fronts(self._points))

    def __str__(self) -> str:
        return str(self.num)


def _fronts(points: Sequence[Vector]) -> Iterator[list[Vector]]:
    """Yield the fronts of sorted points, each sorted.

    Of what is left the one with the largest sum, of equal sums the last, is dominated by none, and dominates many.
    """
    if not points:
        return
    columns = np.array(points, dtype=float).T
    order = np.clip(columns, -_LARGEST, _LARGEST).sum(axis=0).argsort(kind="stable")
    columns, left = columns[:, order], np.arange(len(points))
    while len(left):
        front: list[int] = []
        dominated = [left[:0]]
        while len(left):
            best, values = columns[:, left[-1:]], columns[:, left]
            is_below, is_equal = (values <= best).all(axis=0), (values == best).all(axis=0)
            front += order[left[is_equal]].tolist()
            dominated.append(left[is_below & ~is_equal])
            left = left[~is_below]
        yield [points[place] for place in sorted(front)]
        left = np.sort(np.concatenate(dominated))


def _is_early(front: Sequence[Vector], newcomer: Vector, most: int) -> bool:
    """Whether a newcomer is among the first `most` of its front in the order of an epsilon net.

    First comes the best by the first objective; then always the point that is farthest from all taken before. So the
    first few cover the whole front. Every objective counts by its range on the front. Of equals the newcomer is last.

    Of a large front some points at even distances stand for all: the newcomer has the distance from its neighbours
    among them that they have from theirs, so that it has no advantage.
    """
    place, step = bisect_left(front, newcomer), -(-len(front) // _MOST_IN_NET)
    points = [front[other] for other in range(place % step, len(front), step) if other != place]
    most = math.ceil(most * (len(points) + 1) / len(front))
    if most > len(points):
        return True
    values = np.clip([*points, newcomer], -_LARGEST, _LARGEST)
    span = np.ptp(values, axis=0)
    scaled = (values - values.min(axis=0)) / np.where(span > 0, span, 1.0)
    distances = np.square(scaled[:, None] - scaled).sum(axis=-1)
    chosen = int(scaled[:, 0].argmax())
    nearest = distances[chosen]
    for _ in range(most - 1):
        if chosen == len(points):
            return True
        nearest[chosen] = -1.0
        chosen = int(nearest.argmax())
        np.minimum(nearest, distances[chosen], out=nearest)
    return chosen == len(points)
