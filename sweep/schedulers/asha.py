"""ASHA: asynchronous successive halving; only trials that are among the best at a rung go on."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from sweep.core.messages import Decision, PauseTrial, StopTrial
from sweep.core.results import Result
from sweep.core.trial import Trial
from sweep.errors import ConfigError, refuse_unknown
from sweep.schedulers.metric import MetricScheduler
from sweep.schedulers.rungs import (
    CANNOT_PAUSE,
    PromotionLadder,
    check_brackets,
    clear_out,
    draw_ladder,
    place_rungs,
    signed,
)

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
    """A ladder of rungs, highest first, at which trials are stopped."""

    def __init__(self, milestones: Sequence[float], eta: float) -> None:
        self.rungs = [_Rung(m) for m in reversed(milestones)]
        self._eta = eta

    def judge(self, trial_id: str, time: float, score: float) -> float | None:
        """Record a result at the highest rung reached and not yet recorded; return the cutoff if it fell short."""
        for rung in self.rungs:
            if not time >= rung.milestone:
                continue
            if trial_id in rung.seen:
                return None
            cutoff = rung.cutoff(self._eta)
            rung.record(trial_id, score)
            if score != score:
                return math.inf if cutoff is None else cutoff
            return cutoff if cutoff is not None and score < cutoff else None
        return None

    def state(self) -> list[Any]:
        """Return per rung its milestone, who was seen and the cutoff."""
        return [(rung.milestone, sorted(rung.seen), rung.cutoff(self._eta)) for rung in self.rungs]

    def describe(self) -> str:
        """Return each rung's cutoff in one line, for logs."""
        return "Bracket: " + " | ".join(f"Iter {r.milestone:.3f}: {r.cutoff(self._eta)}" for r in self.rungs)


@refuse_unknown()
@final
class AsyncHyperBandScheduler(MetricScheduler):
    """Let a trial go on at a rung only if it is among the best 1/eta of those that got there.

    Rungs lie at `grace_period * eta**k` up to `max_t`. A trial is judged once at each, when its `time_attr` first
    reaches the rung. Nobody waits for a rung to fill, so the decision depends on the order of arrival. With
    `type="stopping"` a trial that is not among the best of those before it is stopped for good, and who comes first
    always continues. With `type="promotion"` every trial is paused at the rung, and goes on as soon as it is among the
    best floor(n/eta) of the n that got there; so of eta new trials one gets a rung further, and about
    `eta**(number of rungs)` are needed until one gets to `max_t`. Those that are promoted run before new ones.

    Promotion needs checkpoints: who waits is saved and holds no resources. A trial that never saved runs on instead;
    at its next rungs it goes on if it is among the best there, and is stopped otherwise.

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
        super().__init__(time_attr, metric, mode)
        if type not in ("stopping", "promotion"):
            raise ConfigError(f"type is {type!r}; expected 'stopping' or 'promotion'.")
        milestones = place_rungs(grace_period, max_t, reduction_factor, rungs)
        check_brackets(brackets)
        self.max_t = max_t if rungs is None else milestones[-1]
        self.grace_period, self.reduction_factor, self.type = milestones[0], reduction_factor, type
        self.num_stopped = 0
        self._stop_last = stop_last_trials
        starts = [milestones[s:] for s in range(min(brackets, len(milestones)))]
        self._brackets = [_Bracket(some, reduction_factor) for some in starts] if type == "stopping" else []
        self._ladders = [PromotionLadder(some, reduction_factor) for some in starts] if type == "promotion" else []
        self._sizes = [len(some) for some in starts]
        self._drawn: dict[str, int] = {}
        self._num_finished = 0

    def on_trial_add(self, trial: Trial) -> None:
        self._draw(trial)

    def _draw(self, trial: Trial) -> int:
        """Return the number of the trial's bracket, always the same for the same trial and seed."""
        if len(self._sizes) == 1:
            return 0
        if trial.id not in self._drawn:
            self._drawn[trial.id] = draw_ladder(self._sizes, self._seed, trial.number)
        return self._drawn[trial.id]

    def _read(self, result: Result) -> tuple[float, float] | None:
        """Return (time, score), a larger score being better; NaN is kept, because it counts where it arrives."""
        read = super()._read(result)
        return None if read is None else (read[0], signed(result[self.metric or ""], self.mode or "max"))

    def on_result(self, trial: Trial, result: Result, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        read = self._read(result)
        if read is None:
            return ()
        time, score = read
        if time >= self.max_t and self._stop_last:
            self._num_finished += 1
            return [StopTrial(trial.id, f"reached max_t: {self.time_attr}={time:g}")]
        if self._ladders:
            return self._promote(trial, time, score)
        cutoff = self._brackets[self._draw(trial)].judge(trial.id, time, score)
        if cutoff is None:
            return ()
        self.num_stopped += 1
        value, shown = (score, cutoff) if self.mode == "max" else (-score, -cutoff)
        return [StopTrial(trial.id, f"stopped early: {self.metric}={value:.4g} at {time:g}, cutoff {shown:.4g}")]

    def _promote(self, trial: Trial, time: float, score: float) -> Sequence[Decision]:
        ladder = self._ladders[self._draw(trial)]
        promoted = ladder.record(trial.id, time, score)
        if promoted is None:
            return ()
        decisions = ladder.answer(trial, promoted, f"{self.metric}={self._shown(score)}")
        self.num_stopped += sum(isinstance(decision, StopTrial) for decision in decisions)
        return decisions

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        read = self._read(trial.last_result) if trial.last_result is not None else None
        if self._ladders:
            return self._ladders[self._draw(trial)].leave(trial.id, read)
        if read is not None:
            self._brackets[self._draw(trial)].judge(trial.id, *read)
        return ()

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        if isinstance(decision, PauseTrial) and trial.checkpoint is None:
            self._tell_once(CANNOT_PAUSE)
        return ()

    def choose(self, startable: Sequence[Trial]) -> Trial | None:
        """Prefer who was promoted, from the highest rung; otherwise the oldest."""
        if not self._ladders:
            return startable[0]
        return max(startable, key=lambda trial: self._ladders[self._draw(trial)].level(trial.id))

    def on_idle(self, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        """Stop those that can never be promoted; whoever is paused for another reason goes on."""
        if not self._ladders:
            return super().on_idle(trials)
        decisions = clear_out(self._ladders, trials)
        stopped = sum(isinstance(decision, StopTrial) for decision in decisions)
        self.num_stopped += stopped
        if stopped and not self._num_finished and self._stop_last:
            needed = math.ceil(self.reduction_factor ** sum(m < self.max_t for m in self._ladders[0].milestones))
            self._tell_once(
                f"no trial was promoted to max_t={self.max_t:g}: about {needed} trials, alive at a time, are needed "
                "until one gets there. Raise num_samples or grace_period, or use type='stopping'."
            )
        return decisions

    def state(self) -> Any:
        """Return per bracket what its rungs hold, the highest first; for replay checks."""
        return [bracket.state() for bracket in self._brackets or self._ladders]

    def debug_string(self) -> str:
        """Return how many were stopped and what is at each rung, for logs."""
        lines = [f"Using AsyncHyperBand: num_stopped={self.num_stopped}"]
        return "\n".join(lines + [bracket.describe() for bracket in self._brackets or self._ladders])


ASHAScheduler = AsyncHyperBandScheduler
