"""PASHA: ASHA that lets no trial run longer than it takes until the ranking of the trials is stable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

from sweep import checks
from sweep.core.messages import Decision
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.errors import refuse_unknown
from sweep.schedulers.rungs import PromotionLadder, RungScheduler


def crossing(one: Mapping[float, float], other: Mapping[float, float], at: float) -> float | None:
    """Return by how much two learning curves differ at a time if they crossed repeatedly before; else None.

    One of the two is ahead at that time, was behind before, and ahead before that: they differ by noise. Equal scores
    say nothing.
    """
    end = one[at] - other[at]
    was_ahead = False
    for time in sorted(one.keys() & other.keys()):
        apart = one[time] - other[time] if end > 0 else other[time] - one[time]
        if was_ahead and apart < 0 and time < at and end != 0:
            return abs(end) if math.isfinite(end) else None
        was_ahead = was_ahead or apart > 0
    return None


def disagreement(ranked: Sequence[tuple[float, float]]) -> float:
    """Return how far two rankings of the same trials differ; 0: they agree.

    That is the largest difference, in scores of the rung below, between the trial at a place of the top rung's ranking
    and the one at the same place of the ranking below.

    Args:
        ranked: scores of trials at the top rung and below. NaN ranks last; of equals at the top the better one below
            comes first.
    """
    keys = [tuple(math.inf if score != score else -score for score in pair) for pair in ranked]
    there, here = [below for _, below in sorted(keys)], sorted(below for _, below in keys)
    # two infinities are equal, but their difference is no number
    return max((abs(a - b) for a, b in zip(there, here, strict=True) if a != b), default=0.0)


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
        self._rungs: PromotionLadder = self._ladders[0]
        self._curves: dict[str, dict[float, float]] = {}
        self._begin_ranking()

    def _begin_ranking(self) -> None:
        """Look at a new top rung, if there is one above those that are open."""
        self._ranked: list[tuple[float, float]] = []  # scores at the top and below
        self._top: list[str] = []  # the trials that have them
        self._noise: list[float] = []  # differences at the top rung of pairs that cross, sorted

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
        curve = self._curves[trial_id]
        apart = [crossing(curve, self._curves[other], here.milestone) for other in self._top]
        self._noise = sorted([*self._noise, *(one for one in apart if one is not None)])
        if self._noise:
            place = self.noise_percentile / 100 * (len(self._noise) - 1)
            low, high = self._noise[math.floor(place)], self._noise[math.ceil(place)]
            self.epsilon = low + (high - low) * (place - math.floor(place))
        self._top.append(trial_id)
        self._ranked.append((here.scores[trial_id], below.scores[trial_id]))

    def _raise(self, promoted: list[str]) -> list[str]:
        """Make the next rung the top one as long as the rankings disagree; returns all that are promoted."""
        ladder = self._rungs
        while ladder.num_open < len(ladder.rungs) and disagreement(self._ranked) > self.epsilon:
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
