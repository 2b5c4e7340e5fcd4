"""The median stopping rule: ends a trial whose best result is worse than what the others had on average by then."""

from __future__ import annotations

import bisect
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, final

from sweep import checks
from sweep.core.messages import Decision, PauseTrial, ResizeTrial, StopTrial
from sweep.core.results import TrialResult, signed
from sweep.core.trial import Trial
from sweep.errors import refuse_unknown
from sweep.schedulers.base import MetricScheduler

_LARGEST = 1e300  # stands for infinity, so that means stay numbers


@dataclass(slots=True)
class _Curve:
    """What is known of one trial."""

    best: float = -math.inf  # the best score; -inf when there was no number
    mean: float = 0.0  # of the scores after the grace period
    num: int = 0  # of these
    times: array[float] = field(default_factory=lambda: array("d"))  # of the results after the grace period, increasing
    means: array[float] = field(default_factory=lambda: array("d"))  # the running mean at each
    asked_at: float = -math.inf  # when it was last looked whether it should make room for others

    def mean_at(self, time: float) -> float | None:
        """Return the running mean at a time; None if it began later, or has not come as far."""
        if not self.times or not self.times[0] <= time <= self.times[-1]:
            return None
        return self.means[bisect.bisect_right(self.times, time) - 1]

    def add(self, time: float, score: float | None) -> None:
        """Take a result; None: it was no number, and says no more than how far the trial is."""
        if score is not None:
            self.num += 1
            self.mean += (min(max(score, -_LARGEST), _LARGEST) - self.mean) / self.num
        if self.times and time <= self.times[-1]:  # it goes on from an older checkpoint
            self.means[-1] = self.mean
        elif self.num:
            self.times.append(time)
            self.means.append(self.mean)


@refuse_unknown()
@final
class MedianStoppingRule(MetricScheduler):
    """Stop a trial whose best result so far is worse than the median of the others' running means at the same time.

    Args:
        time_attr: result key that counts progress; the default counts seconds of training.
        metric, mode: what is judged; from the run unless given here.
        grace_period: progress before a trial is judged, in the unit of `time_attr`; earlier results count for a
            trial's best, not for means.
        min_samples_required: how many others must have come as far, at least 1; otherwise nothing is decided, but the
            trial makes room if others wait: it is saved and goes to the end of the queue.
        min_time_slice: how long a trial runs before it makes room (again), at least the grace period.
        hard_stop: whether a trial is ended; otherwise it is paused, and runs to its own end when all others have ended.

    Raises:
        ConfigError: an argument is no such number.

    Source: Golovin et al. 2017 (Google Vizier), section 3.2.2, median stopping rule. Departures: as in Tune, trials
    that still run count too. NaN is no part of a mean and no best result; a trial that reported nothing but NaN is
    worse than any median. Tune considers at every result whether to make room; here a trial does so once in a time
    slice.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        checks.number("grace_period", grace_period, least=0)
        checks.number("min_samples_required", min_samples_required, least=1)
        checks.number("min_time_slice", min_time_slice, least=0)
        self.grace_period, self.min_samples_required = grace_period, min_samples_required
        self.min_time_slice, self.hard_stop = min_time_slice, hard_stop
        self.first_judgement = ("grace_period", grace_period)
        self._slice = max(min_time_slice, grace_period)
        self.num_stopped = 0
        self._curves: dict[str, _Curve] = {}
        self._stopped: set[str] = set()
        self._unpausable: set[str] = set()

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        read = self._read(result)
        if read is None or trial.id in self._stopped:
            return ()  # paused once, it now runs to its own end
        time, score = read
        curve = self._curves.setdefault(trial.id, _Curve())
        is_number = not math.isnan(signed(result.get(self.metric or ""), "max"))
        if is_number:
            curve.best = max(curve.best, score)
        if time < self.grace_period:
            return ()
        curve.add(time, score if is_number else None)
        means = [other.mean_at(time) for other in self._curves.values() if other is not curve]
        known = [mean for mean in means if mean is not None]
        if len(known) < self.min_samples_required:
            return self._make_room(trial, curve, time, trials)
        cutoff = median(known)
        if not curve.best < cutoff:
            return ()
        self._stopped.add(trial.id)
        self.num_stopped += 1
        why = f"best {self._shown(curve.best)} at {time:g}, median of the others {self._number(cutoff)}"
        if self.hard_stop:
            return [StopTrial(trial.id, f"stopped early: {why}")]
        return [PauseTrial(trial.id, f"goes on when all others have ended: {why}")]

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        self._unpausable.discard(trial.id)
        if self.hard_stop:
            self._stopped.discard(trial.id)  # the user may let it run again, and then it is judged again
        return ()

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        self._unpausable.add(trial.id)
        return ()

    def _make_room(self, trial: Trial, curve: _Curve, time: float, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        """Send a trial that cannot be judged yet to the end of the queue, so that others get as far."""
        if not time > curve.asked_at or time - curve.asked_at < self._slice:
            return ()
        curve.asked_at = time
        if trial.id in self._unpausable or trial.pending is not None:
            return ()
        is_anybody_waiting = any(other.is_waiting for other in trials.values())
        return [ResizeTrial(trial.id, trial.resources)] if is_anybody_waiting else ()  # saved, then behind the others

    def state(self) -> Any:
        """Return the trials' bests and means; for replay checks."""
        curves = {trial_id: (c.best, c.mean, c.num, c.times, c.asked_at) for trial_id, c in self._curves.items()}
        return curves, sorted(self._stopped)

    def debug_string(self) -> str:
        return f"Using MedianStoppingRule: num_stopped={self.num_stopped}."
