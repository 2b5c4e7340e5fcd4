"""PASHA: ASHA that lets no trial run longer than it takes until the ranking of the trials is stable."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sweep import checks
from sweep.core.messages import Decision
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.errors import refuse_unknown
from sweep.schedulers.rungs import PromotionLadder, RungScheduler


class _Curves:
    """The learning curves of the trials of the top rung, compared where two or more have a score at the same time."""

    def __init__(self, at: float) -> None:
        self._at = at  # the milestone of the rung: nothing later counts
        self._curves: list[Mapping[float, float]] = []
        self._counts: Counter[float] = Counter()
        self._times: list[float] = []  # shared ones
        self._scores = np.empty((0, 0))  # of trials, by time; NaN: none

    def add(self, curve: Mapping[float, float]) -> NDArray[np.float64]:
        """Keep one curve more; returns by how much it differs at the end from each one that it crosses repeatedly.

        One of two is ahead at the end, was behind before, and ahead before that: they differ by noise. Equal scores
        say nothing.
        """
        times = [time for time in curve if time <= self._at]
        self._counts.update(times)
        if any(self._counts[time] == 2 for time in times):
            self._times = sorted(time for time, count in self._counts.items() if count > 1)
            rows = [[old.get(time, math.nan) for time in self._times] for old in self._curves]
            self._scores = np.array(rows, dtype=float)
        row = np.array([curve.get(time, math.nan) for time in self._times], dtype=float)
        number = len(self._curves)
        self._curves.append(curve)
        if not number or not len(self._times):
            return np.empty(0)
        if number >= len(self._scores):
            self._scores = np.concatenate([self._scores, np.full((max(8, number), len(row)), math.nan)])
        with np.errstate(invalid="ignore"):
            ahead = np.sign(row - self._scores[:number])
        end = ahead[:, -1:]
        is_same, is_opposite = (ahead == end) & (end != 0), (ahead == -end) & (end != 0)
        first_ahead = is_same.argmax(axis=1)
        last_behind = len(row) - 1 - is_opposite[:, ::-1].argmax(axis=1)
        is_crossing = is_opposite.any(axis=1) & (first_ahead < last_behind)
        distances: NDArray[np.float64] = np.abs(row[-1] - self._scores[:number, -1][is_crossing])
        self._scores[number] = row
        return distances[np.isfinite(distances)]


class _Ranking:
    """The trials of the top rung, ranked there and at the rung below.

    Attributes:
        disagreement: the largest difference, in scores of the rung below, between the trial at a place of the top
            rung's ranking and the one at the same place of the ranking below. 0: the rankings agree.
    """

    def __init__(self) -> None:
        self._keys: list[tuple[float, float]] = []  # (top, below), negated, in order of the top
        self._by_top: list[float] = []  # scores below, negated, in order of the top
        self._by_below: list[float] = []  # the same, sorted

    def add(self, below: float, top: float) -> None:
        """Rank one trial more; NaN is the worst, and of equals at the top the better one below comes first."""
        low, high = (math.inf if score != score else -score for score in (below, top))
        place = bisect_left(self._keys, (high, low))
        self._keys.insert(place, (high, low))
        self._by_top.insert(place, low)
        insort(self._by_below, low)

    @property
    def disagreement(self) -> float:
        there, here = np.array(self._by_top), np.array(self._by_below)
        differing = there != here  # two infinities are equal, but their difference is no number
        return float(np.max(np.abs(there[differing] - here[differing]))) if differing.any() else 0.0


@refuse_unknown()
@final
class PASHAScheduler(RungScheduler):
    """Promote trials as ASHA does, but let none beyond a rung before the ranking there contradicts the one below.

    At first trials run to the second rung at most. Whenever a trial arrives at the top rung, the trials there are
    ranked by their scores at that rung and by those at the rung below. As long as the two rankings agree, up to trials
    that differ by noise only, longer runs would tell nothing new. Once they do not, the next rung becomes the top one,
    up to `max_t`. So on easy tasks the best config is found in a fraction of the time; train it to the end afterwards.

    How much is noise is estimated: pairs of trials whose learning curves cross and cross back differ by noise, and
    `epsilon` is the 90th percentile of such differences at the top rung.

    Trials pause while they wait; what `ASHAScheduler(type="promotion")` says about checkpoints holds here too.

    Args:
        time_attr: result key that counts progress, in the unit of `max_t`. Curves are compared at equal times: with
            seconds these are the rungs alone, so that there is little to estimate the noise from.
        others: as for `ASHAScheduler`.
        noise_percentile: which of the differences that are noise `epsilon` is, 0 to 100.

    Attributes:
        epsilon: the difference of scores up to which trials count as equal, in the unit of the metric.

    Raises:
        ConfigError: as ASHA; noise_percentile is no such number.

    Source: Bohdal et al. 2023, arXiv:2207.06940, algorithm 1 and the automatic epsilon of its section 4. The paper has
    no stopping variant. Departures: pairs are taken among the trials that got to the top rung, whose difference is
    measured there; epsilon keeps its value while a new top rung has no such pair. A promotion is decided when a score
    arrives, which promotes the same trials (see ASHA). NaN is never promoted, and ranks last.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        stop_last_trials: bool = True,
        *,
        rungs: Sequence[float] | None = None,
        noise_percentile: float = 90.0,
    ) -> None:
        ladder = partial(PromotionLadder, eta=reduction_factor, num_open=1)
        limits = (max_t, grace_period, reduction_factor, stop_last_trials, rungs)
        super().__init__(time_attr, metric, mode, *limits, ladder=ladder)
        checks.number("noise_percentile", noise_percentile, least=0, most=100)
        self.noise_percentile = noise_percentile
        self.epsilon = 0.0
        (self._rungs,) = self._promoting
        self._curves: dict[str, dict[float, float]] = {}
        self._begin_ranking()

    def _begin_ranking(self) -> None:
        """Look at a new top rung, if there is one above those that are open."""
        self._ranking = _Ranking()
        self._top_curves = _Curves(self.current_max_t)
        self._noise: NDArray[np.float64] = np.empty(0)  # differences at the top rung of pairs that cross, sorted

    @property
    def current_max_t(self) -> float:
        """How far a trial may run now."""
        top = self._rungs.num_open
        return self._rungs.milestones[top] if top < len(self._rungs.milestones) else self.max_t

    def _judge(self, trial: Trial, time: float, point: Any, result: TrialResult) -> Sequence[Decision]:
        promoted = self._rungs.record(trial.id, time, point)
        level = self._rungs.level(trial.id)
        if self._rungs.num_open < len(self._rungs.rungs):
            at = time if promoted is None else self._rungs.milestones[level]
            self._curves.setdefault(trial.id, {})[at] = point
        if promoted is None:
            return ()
        if level == self._rungs.num_open:
            self._compare(trial.id)
            promoted = self._raise(promoted)
        return self._rungs.answer(trial, promoted, self._shown(point))

    def _compare(self, trial_id: str) -> None:
        """Rank a trial that got to the top rung, and look for noise between it and the others there."""
        top = self._rungs.num_open
        here, below = self._rungs.rungs[top], self._rungs.rungs[top - 1]
        if trial_id not in below.scores:
            return  # its reports lie so far apart that there is nothing to compare
        differing = self._top_curves.add(self._curves[trial_id])
        if len(differing):
            differing.sort()
            self._noise = np.insert(self._noise, np.searchsorted(self._noise, differing), differing)
            place = self.noise_percentile / 100 * (len(self._noise) - 1)
            low, high = self._noise[math.floor(place)], self._noise[math.ceil(place)]
            self.epsilon = float(low + (high - low) * (place - math.floor(place)))
        self._ranking.add(below.scores[trial_id], here.scores[trial_id])

    def _raise(self, promoted: list[str]) -> list[str]:
        """Make the next rung the top one as long as the rankings disagree; returns all that are promoted."""
        ladder = self._rungs
        while ladder.num_open < len(ladder.rungs) and self._ranking.disagreement > self.epsilon:
            promoted = promoted + ladder.open_next()
            self._begin_ranking()
            if ladder.num_open < len(ladder.rungs):
                rung = ladder.rungs[ladder.num_open]
                for trial_id in rung.scores:  # reports that were far apart led them beyond the top
                    if rung.milestone in self._curves.get(trial_id, ()):
                        self._compare(trial_id)
        return promoted

    def state(self) -> Any:
        """Return how many rungs are open, epsilon, how many pairs it rests on, and what the rungs hold."""
        return (self._rungs.num_open, self.epsilon, len(self._noise), self._rungs.state())

    def debug_string(self) -> str:
        head, rungs = super().debug_string().splitlines()
        return f"{head} current_max_t={self.current_max_t:g} epsilon={self.epsilon:.4g}\n{rungs}"
