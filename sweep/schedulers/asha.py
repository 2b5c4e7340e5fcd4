"""ASHA: asynchronous successive halving; stops trials that are not among the best at a rung."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from sweep.core.messages import Decision, StopTrial
from sweep.core.results import Result
from sweep.core.trial import Trial
from sweep.errors import ConfigError
from sweep.schedulers.base import Scheduler

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler"]


_LARGEST = float(np.finfo(np.float64).max)  # stands for infinity, so that a quantile between two is a number


class _Rung:
    """The scores seen at one milestone, each trial's once."""

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.seen: set[str] = set()
        self._sorted: list[float] = []  # of the numbers among them

    def record(self, trial_id: str, score: float) -> None:
        """Keep a score; NaN counts as seen but is no part of a cutoff."""
        self.seen.add(trial_id)
        if score == score:
            bisect.insort(self._sorted, min(max(score, -_LARGEST), _LARGEST))

    def cutoff(self, eta: float) -> float | None:
        """Return the score that a newcomer must reach: the (1 - 1/eta) quantile of those seen; None if none."""
        if not self._sorted:
            return None
        place = (1 - 1 / eta) * (len(self._sorted) - 1)
        low = math.floor(place)
        high = min(low + 1, len(self._sorted) - 1)
        part = place - low
        between = self._sorted[low] * (1 - part) + self._sorted[high] * part
        return min(max(between, self._sorted[low]), self._sorted[high])  # rounding may lead outside


class _Bracket:
    """A ladder of rungs, highest first."""

    def __init__(self, grace: float, max_t: float, eta: float, number: int) -> None:
        milestones = []
        milestone = grace * eta**number
        while milestone <= max_t:
            milestones.append(milestone)
            milestone *= eta
        self.rungs = [_Rung(m) for m in reversed(milestones)]

    def judge(self, trial_id: str, time: float, score: float, eta: float) -> float | None:
        """Record a result at the highest rung reached and not yet recorded; return the cutoff if it fell short."""
        for rung in self.rungs:
            if not time >= rung.milestone:
                continue
            if trial_id in rung.seen:
                return None
            cutoff = rung.cutoff(eta)
            rung.record(trial_id, score)
            if score != score:
                return math.inf if cutoff is None else cutoff
            return cutoff if cutoff is not None and score < cutoff else None
        return None


@final
class AsyncHyperBandScheduler(Scheduler):
    """Stop a trial at a rung unless it is among the best 1/eta of those that reached the rung before it.

    Rungs lie at `grace_period * eta**k` up to `max_t`. A trial is judged once at each, when its `time_attr` first
    reaches the rung; who comes first always continues. Nobody waits for anybody, so the decision depends on the
    order of arrival.

    Args:
        time_attr: result key that counts progress, in the unit of `max_t`.
        metric, mode: what is judged; from the run unless given here.
        max_t: a trial that gets there is stopped (unless `stop_last_trials` is False).
        grace_period: progress before anything is stopped; the lowest rung.
        reduction_factor: eta; a rung keeps about one in eta.
        brackets: ladders that begin at ever higher rungs; a trial is put into one at random, weighted by
            exp(number of rungs).
        stop_last_trials: whether `max_t` ends a trial.

    Raises:
        ConfigError: max_t below grace_period, a factor of 1 or less, and the like.

    Source: Li et al. 2020, arXiv:1810.05934, algorithm 2, stopping variant. Departures: NaN never passes a rung and is
    no part of a cutoff; the random bracket is keyed by the run's seed and the trial's number; rungs are counted
    exactly, where Tune's floating-point logarithm loses the top one for some factors.
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
    ) -> None:
        if mode is not None and mode not in ("min", "max"):
            raise ConfigError(f"mode is {mode!r}; expected 'min' or 'max'.")
        for name, value in (("max_t", max_t), ("grace_period", grace_period)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value!r}; expected a finite number above 0.")
        if max_t < grace_period:
            raise ConfigError(f"max_t={max_t:g} is below grace_period={grace_period:g}; no trial could ever be judged.")
        if not isinstance(reduction_factor, (int, float)) or not 1 < reduction_factor < math.inf:
            raise ConfigError(f"reduction_factor is {reduction_factor!r}; expected a number above 1, usually 3 or 4.")
        if isinstance(brackets, bool) or not isinstance(brackets, int) or brackets < 1:
            raise ConfigError(f"brackets is {brackets!r}; expected a whole number of at least 1.")
        self.metric, self.mode = metric, mode
        self.time_attr = time_attr
        self.max_t, self.grace_period, self.reduction_factor = max_t, grace_period, reduction_factor
        self.num_stopped = 0
        self._stop_last = stop_last_trials
        self._seed = 0
        ladders = [_Bracket(grace_period, max_t, reduction_factor, s) for s in range(brackets)]
        self._brackets = [bracket for bracket in ladders if bracket.rungs]
        self._of: dict[str, _Bracket] = {}

    def set_search_properties(self, metric: str | None, mode: str | None, *, seed: int = 0) -> None:
        super().set_search_properties(metric, mode, seed=seed)
        if self.metric is None:
            raise ConfigError(f"{type(self).__name__} needs a metric to judge by: pass metric= and mode= to the run.")
        self.mode = self.mode or "max"
        self._seed = seed

    def on_trial_add(self, trial: Trial) -> None:
        self._bracket(trial.id)

    def _bracket(self, trial_id: str) -> _Bracket:
        """Return the trial's bracket, always the same for the same trial and seed."""
        if len(self._brackets) == 1:
            return self._brackets[0]
        if trial_id not in self._of:
            rungs = np.array([len(bracket.rungs) for bracket in self._brackets], dtype=float)
            weights = np.exp(rungs - rungs.max())
            number = int(trial_id.rpartition("_")[2])
            generator = np.random.default_rng(np.random.SeedSequence([self._seed, number]))
            self._of[trial_id] = self._brackets[int(generator.choice(len(weights), p=weights / weights.sum()))]
        return self._of[trial_id]

    def on_result(self, trial: Trial, result: Result, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        time, value = result.get(self.time_attr), result.get(self.metric or "")
        if time is None or value is None:
            return ()
        if time >= self.max_t and self._stop_last:
            return [StopTrial(trial.id, f"reached max_t: {self.time_attr}={time:g}")]
        cutoff = self._record(trial.id, time, value)
        if cutoff is None:
            return ()
        self.num_stopped += 1
        shown = cutoff if self.mode == "max" else -cutoff
        return [StopTrial(trial.id, f"stopped early: {self.metric}={value:.4g} at {time:g}, cutoff {shown:.4g}")]

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        if trial.last_result is not None:
            time, value = trial.last_result.get(self.time_attr), trial.last_result.get(self.metric or "")
            if time is not None and value is not None:
                self._record(trial.id, time, value)
        return ()

    def _record(self, trial_id: str, time: float, value: Any) -> float | None:
        number = float(value) if self.mode == "max" else -float(value)
        return self._bracket(trial_id).judge(trial_id, time, number, self.reduction_factor)

    def state(self) -> Any:
        return [
            [(rung.milestone, sorted(rung.seen), rung.cutoff(self.reduction_factor)) for rung in bracket.rungs]
            for bracket in self._brackets
        ]

    def debug_string(self) -> str:
        """Return how many were stopped and each rung's cutoff, for logs."""
        lines = [f"Using AsyncHyperBand: num_stopped={self.num_stopped}"]
        for bracket in self._brackets:
            rungs = [f"Iter {rung.milestone:.3f}: {rung.cutoff(self.reduction_factor)}" for rung in bracket.rungs]
            lines.append("Bracket: " + " | ".join(rungs))
        return "\n".join(lines)


ASHAScheduler = AsyncHyperBandScheduler
