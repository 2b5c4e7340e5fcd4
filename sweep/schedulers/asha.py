"""ASHA: asynchronous successive halving; only trials that are among the best at a rung go on."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

from sweep import checks
from sweep.core.messages import Decision, StopTrial
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.errors import refuse_unknown
from sweep.schedulers.rungs import PromotionLadder, RungScheduler, StoppingLadder

_LARGEST = 1e300  # stands for infinity, so that a quantile between two is a number


class _Rung:
    """The scores seen at one milestone, and their (1 - 1/eta) quantile, which a newcomer must reach."""

    def __init__(self, eta: float) -> None:
        self._eta = eta
        self._sorted: list[float] = []  # of the numbers among them

    def judge(self, score: float) -> float | None:
        """Keep a score; returns the cutoff if it fell short. NaN always does, and is no part of a cutoff."""
        cutoff = self.state()
        if score != score:
            return math.inf if cutoff is None else cutoff
        score = min(max(score, -_LARGEST), _LARGEST)
        bisect.insort(self._sorted, score)
        return cutoff if cutoff is not None and score < cutoff else None

    def state(self) -> float | None:
        """Return the cutoff, as `np.quantile` has it, which would copy all scores; None while there is no number."""
        if not self._sorted:
            return None
        place = (len(self._sorted) - 1) * (1 - 1 / self._eta)
        low, high = self._sorted[int(place)], self._sorted[math.ceil(place)]
        part = place - int(place)
        return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part

    def __str__(self) -> str:
        return str(self.state())


@refuse_unknown()
@final
class AsyncHyperBandScheduler(RungScheduler):
    """Let a trial go on at a rung only if it is among the best 1/eta of those that got there.

    Rungs lie at `grace_period * eta**k` up to `max_t`. A trial is judged once at each, when its `time_attr` first
    reaches the rung. No trial waits for a rung to fill, so the decision depends on the order of arrival. With
    `type="stopping"` a trial that is not among the best of those before it is stopped for good; the first one always
    continues. With `type="promotion"` every trial is paused at the rung, and goes on as soon as it is among the best
    floor(n/eta) of the n that got there; so of eta new trials one gets a rung further, and about
    `eta**(number of rungs)` are needed until one gets to `max_t`. Those that are promoted run before new ones.

    Promotion needs checkpoints: a trial that waits is saved and holds no resources. A trial that never saved runs on
    instead; at its next rungs it goes on if it is among the best there, and is stopped otherwise.

    Args:
        time_attr: result key that counts progress, in the unit of `max_t`.
        metric, mode: what is judged; from the run unless given here.
        max_t: a trial that gets there is stopped (unless `stop_last_trials` is False).
        grace_period: progress before anything is judged; the lowest rung.
        reduction_factor: eta; of those at a rung about one in eta goes on.
        brackets: ladders that begin at ever higher rungs; a trial is put into one at random, weighted by
            exp(number of rungs).
        stop_last_trials: whether `max_t` ends a trial.
        type: "stopping" or "promotion".
        rungs: where the rungs lie, such as `[4, 11, 33, 100]`; the last one then takes the place of `max_t`, and
            `grace_period` means nothing.

    Raises:
        ConfigError: max_t below grace_period, a factor of 1 or less, rungs that do not increase, and the like.

    Source: Li et al. 2020, arXiv:1810.05934, algorithm 2; the stopping variant is that of Tune. Departures: NaN never
    passes a rung: it is no part of a cutoff, and counts in the n of a promotion; the random bracket is keyed by the
    run's seed and the trial's number; rungs are counted exactly, where Tune's floating-point logarithm loses the top
    one for some factors. A promotion is decided when a score arrives, not when a worker is free; the same trials are
    promoted, because each arrival makes at most one trial promotable and frees the worker that it came from. When
    nothing else is left to run, those that wait are stopped, half of them at a time, the least promising first.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        *,
        type: str = "stopping",
        rungs: Sequence[float] | None = None,
    ) -> None:
        self.type = checks.one_of("type", type, ("stopping", "promotion"))
        stopping = partial(StoppingLadder, make_rung=lambda: _Rung(reduction_factor))
        ladder = partial(PromotionLadder, eta=reduction_factor) if type == "promotion" else stopping
        limits = (max_t, grace_period, reduction_factor, stop_last_trials, rungs)
        super().__init__(time_attr, metric, mode, *limits, ladder=ladder, brackets=brackets)

    def _judge(self, trial: Trial, time: float, point: Any, result: TrialResult) -> Sequence[Decision]:
        ladder = self._ladder(trial)
        if isinstance(ladder, PromotionLadder):
            promoted = ladder.record(trial.id, time, point)
            return () if promoted is None else ladder.answer(trial, promoted, self._shown(point))
        missed = ladder.judge(trial.id, time, point)
        if missed is None:
            return ()
        why = f"stopped early: {self._shown(point)} at {time:g}, cutoff {self._number(missed[1])}"
        return [StopTrial(trial.id, why)]

    def on_idle(self, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        decisions = super().on_idle(trials)
        is_any_stopped = any(isinstance(decision, StopTrial) for decision in decisions)
        if is_any_stopped and not self._num_finished and self._stop_last:
            rungs = sum(milestone < self.max_t for milestone in self._ladders[0].milestones)
            self._note(
                f"no trial was promoted to max_t={self.max_t:g}: about {math.ceil(self.reduction_factor**rungs)} "
                "trials, alive at a time, are needed until one gets there. Raise num_samples or grace_period, or use "
                "type='stopping'."
            )
        return decisions


ASHAScheduler = AsyncHyperBandScheduler
