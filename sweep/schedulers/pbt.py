"""Population based training: the worst trials continue from the best ones' checkpoints, with changed configs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from sweep import checks
from sweep.core.messages import CloneTrial, Decision, PauseTrial, ResizeTrial, SaveTrial
from sweep.core.results import TrialResult, flatten
from sweep.core.trial import Trial, number_of
from sweep.errors import ConfigError, MetricError, refuse_unknown
from sweep.schedulers.base import MetricScheduler
from sweep.schedulers.explore import checked_mutations, complete_config, customised, explore, quantile_size

Explore = Callable[[dict[str, Any]], Mapping[str, Any]]
FIRST, LATER = 0, 1  # what a random number is for: a config's missing values, or an exploit


@dataclass(slots=True)
class _Member:
    """What is known of one trial of the population."""

    joined: int = 0  # counts the trials that joined; of equal scores the younger is the better
    score: float | None = None  # at its last perturbation point; None: it has not come to one
    last_point: float = 0.0  # the progress at which its current interval began
    num_points: int = 0  # how many it came to; numbers its random draws
    arrived_in: int = 0  # the attempt in which it reached the barrier (synchronous); 0: it has not
    arrived_at: float = 0.0  # its progress there
    is_clone: bool = False  # it continues from another's checkpoint, so it has one


class PopulationScheduler(MetricScheduler):
    """Let the worst of a population continue from the best; subclasses say how a config is changed.

    The arguments are those of `PopulationBasedTraining`.
    """

    is_searching = True

    def __init__(
        self,
        time_attr: str,
        metric: str | None,
        mode: str | None,
        perturbation_interval: float,
        burn_in_period: float,
        quantile_fraction: float,
        custom_explore_fn: Explore | None,
        log_config: bool,
        require_attrs: bool,
        synch: bool,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        checks.number("perturbation_interval", perturbation_interval, above=0)
        checks.number("burn_in_period", burn_in_period, least=0)
        checks.number("quantile_fraction", quantile_fraction, least=0, most=0.5)
        if custom_explore_fn is not None and not callable(custom_explore_fn):
            checks.refuse("custom_explore_fn", custom_explore_fn, "a function of a config")
        self.perturbation_interval, self.burn_in_period = perturbation_interval, burn_in_period
        self.quantile_fraction = quantile_fraction
        self.log_config, self.require_attrs, self.synch = log_config, require_attrs, synch
        self.num_checkpoints = self.num_perturbations = 0
        self._custom_explore = custom_explore_fn
        self._members: dict[str, _Member] = {}
        self._alive: dict[str, _Member] = {}  # those that have not ended
        self._num_joined = 0
        self._barrier = float(max(perturbation_interval, burn_in_period))
        self.first_judgement = ("perturbation_interval", self._barrier)
        self._num_barriers = 0
        self._unpausable: set[str] = set()

    @abstractmethod
    def _explored(self, target_id: str, source: Trial, rng: np.random.Generator) -> dict[str, Any]:
        """Return a changed copy of the source's config for the target, before `custom_explore_fn` sees it."""

    def _heard(self, trial: Trial, time: float, score: float) -> None:
        """Take every result that says something."""

    def _came_to_point(self, trial: Trial, time: float, score: float) -> None:
        """Take note that a trial's interval is over."""

    def _became_clone(self, target_id: str, source_id: str, config: Mapping[str, Any]) -> None:
        """Take note that the target will continue from the source with that config."""

    def _recall_clone(self, target_id: str, source_id: str, rng: np.random.Generator) -> None:
        """Take note that the target became the source's clone at a barrier that the record does not repeat."""

    def on_trial_add(self, trial: Trial) -> None:
        self._member(trial.id)

    def on_result(self, trial: Trial, result: TrialResult, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        read = self._read(result)
        if read is None:
            self._missing(result)
            return ()
        time, score = read
        member = self._member(trial.id)
        if self.synch:
            return self._at_barrier(trial, member, time, score)
        self._heard(trial, time, score)
        if time < self.burn_in_period or time - member.last_point < self.perturbation_interval:
            return ()
        self._came_to_point(trial, time, score)
        member.score, member.last_point = score, time
        member.num_points += 1
        worst, best = self._quantiles()
        if trial.id in worst:
            clone = self._exploit(trial, trials, member.num_points)
            if clone is not None:
                return [clone]
        is_best = trial.id in best
        self.num_checkpoints += is_best
        is_free = trial.pending is None or isinstance(trial.pending, SaveTrial)  # the user's pause comes first
        if is_free and trial.id not in self._unpausable and any(other.is_waiting for other in trials.values()):
            return [ResizeTrial(trial.id, trial.resources)]  # saved, then PENDING behind those that wait
        return [SaveTrial(trial.id)] if is_best else ()

    def on_trial_end(self, trial: Trial) -> Sequence[Decision]:
        if (member := self._alive.get(trial.id)) is not None:
            self._catch_up(trial, member)
            del self._alive[trial.id]
        return ()

    def on_refused(self, trial: Trial, decision: Decision) -> Sequence[Decision]:
        if isinstance(decision, (PauseTrial, ResizeTrial)) and trial.checkpoint is None:
            self._unpausable.add(trial.id)
            self._note(
                f"{type(self).__name__} cannot pause a trial that never saved a checkpoint; it runs on without taking "
                "turns. Report a checkpoint at least once in every perturbation_interval."
            )
        return ()

    def on_idle(self, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        """At the barrier of a synchronous population, when all are saved: clone the worst and resume the others."""
        resumes = super().on_idle(trials)
        if not any(member.arrived_in for member in self._alive.values()):
            return resumes
        worst, best = self._quantiles()
        number = self._num_barriers + 1
        idle = {decision.trial_id for decision in resumes}
        found = [self._exploit(trials[trial_id], trials, number) for trial_id in worst if trial_id in idle]
        clones = [clone for clone in found if clone is not None]
        self.num_checkpoints += sum(trial_id in idle for trial_id in best)
        self._pass_barrier()
        cloned = {decision.trial_id for decision in clones}
        return [*(resume for resume in resumes if resume.trial_id not in cloned), *clones]

    def _at_barrier(self, trial: Trial, member: _Member, time: float, score: float) -> Sequence[Decision]:
        """Pause a trial at the barrier; what happens there is decided when nothing runs any more and all are saved."""
        self._catch_up(trial, member)
        self._heard(trial, time, score)
        if time < self._barrier:
            return ()
        if not member.arrived_in:
            self._came_to_point(trial, time, score)
        member.score, member.arrived_at = score, time
        member.arrived_in = trial.attempt or 1
        if trial.id in self._unpausable and trial.checkpoint is None:
            return ()
        return [PauseTrial(trial.id, f"waits for the population at {self.time_attr}={self._barrier:g}")]

    def _catch_up(self, trial: Trial, member: _Member) -> None:
        """Pass the barrier if `on_idle` resumed a trial there: the record does not repeat that after a restart."""
        is_resumed = 0 < member.arrived_in < trial.attempt
        if not is_resumed or not all(other.arrived_in for other in self._alive.values()):
            return
        for target_id in self._quantiles()[0]:
            rng = self._rng(LATER, number_of(target_id), self._num_barriers + 1)
            source_id = self._drawn_source(rng, None)
            if source_id is not None:
                self._bind(target_id, source_id)
                self._recall_clone(target_id, source_id, rng)
        self._pass_barrier()

    def _pass_barrier(self) -> None:
        last = max((member.arrived_at for member in self._alive.values() if member.arrived_in), default=0.0)
        self._barrier = max(self._barrier + self.perturbation_interval, last)
        self._num_barriers += 1
        for member in self._alive.values():
            member.arrived_in = 0

    def _quantiles(self) -> tuple[list[str], list[str]]:
        """Return the worst and the best of the trials that live and came to a perturbation point."""
        ranking = sorted((m.score, m.joined, trial_id) for trial_id, m in self._alive.items() if m.score is not None)
        size = quantile_size(len(ranking), self.quantile_fraction)
        ids = [trial_id for *_, trial_id in ranking]
        return ids[:size], ids[len(ids) - size :]

    def _exploit(self, target: Trial, trials: Mapping[str, Trial], number: int) -> CloneTrial | None:
        """Return the decision that lets a trial continue from a random one of the best; None if none has saved."""
        rng = self._rng(LATER, target.number, number)
        source_id = self._drawn_source(rng, trials)
        if source_id is None:
            self._note(
                f"{type(self).__name__} skips an exploit: none of the best trials has saved a checkpoint. Report a "
                "checkpoint at least once in every perturbation_interval."
            )
            return None
        config = customised(self._explored(target.id, trials[source_id], rng), self._custom_explore)
        self._bind(target.id, source_id)
        self._became_clone(target.id, source_id, config)
        self.num_perturbations += 1
        return CloneTrial(target.id, source_id, config)

    def _drawn_source(self, rng: np.random.Generator, trials: Mapping[str, Trial] | None) -> str | None:
        """Return a random one of the best that can be a source; `trials` None: all of them were saved."""
        best = [one for one in self._quantiles()[1] if self._members[one].score != -math.inf]
        if trials is not None:
            best = [one for one in best if self._members[one].is_clone or trials[one].checkpoint is not None]
        return best[int(rng.integers(len(best)))] if best else None

    def _bind(self, target_id: str, source_id: str) -> None:
        member = self._members[target_id]
        member.is_clone = True
        member.last_point = self._members[source_id].last_point

    def _member(self, trial_id: str) -> _Member:
        if trial_id not in self._alive:
            self._alive[trial_id] = member = self._members.setdefault(trial_id, _Member())
            member.joined = self._num_joined
            self._num_joined += 1
        return self._alive[trial_id]

    def _missing(self, result: TrialResult) -> None:
        missing = [name for name in (self.time_attr, self.metric or "") if result.get(name) is None]
        what = " and ".join(repr(name) for name in missing) or f"a number as {self.time_attr!r}"
        lack = f"a result lacks {what}, which {type(self).__name__} judges by. Report it with every result"
        if self.require_attrs:
            raise MetricError(f"{lack}, or pass require_attrs=False to let such results pass.")
        self._note(f"{lack}; such results decide nothing.")

    def _rng(self, purpose: int, number: int, count: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([self._seed, purpose, number, count]))

    def state(self) -> Any:
        """Return every trial's score at its last perturbation point and where its interval began; for replay checks."""
        members = {i: (m.score, m.last_point, m.num_points) for i, m in self._members.items()}
        return members, sorted(self._alive), self._barrier, self._num_barriers

    def debug_string(self) -> str:
        return f"{type(self).__name__}: {self.num_checkpoints} checkpoints, {self.num_perturbations} perturbs"


@refuse_unknown()
@final
class PopulationBasedTraining(PopulationScheduler):
    """Let the worst of a population continue from the best, with changed hyperparameters.

    At the end of every interval a trial's result is compared with those of the others at the end of theirs. One of the
    best `quantile_fraction` saves a checkpoint. One of the worst takes the checkpoint of a random one of the best and a
    changed copy of its config. `num_samples` is the size of the population; trials that wait for resources take turns
    with those that run, one interval at a time.

    Args:
        time_attr: result key that counts progress; the default counts seconds of training.
        metric, mode: what is judged; from the run unless given here.
        perturbation_interval: progress between two perturbation points, above 0.
        burn_in_period: progress before a trial is judged for the first time.
        hyperparam_mutations: what may be changed: per config key a list or `choice` (a value moves to a neighbour), a
            domain or a function without arguments (a number is multiplied by a factor), or a dict of these.
        quantile_fraction: the share of the best, and of the worst; 0 to 0.5.
        resample_probability: how often a value is drawn anew instead.
        perturbation_factors: what numbers are multiplied by; one is drawn.
        custom_explore_fn: called last with the changed config; returns the one to use.
        log_config: whether the run writes each exploit to `pbt_global.txt` and `pbt_policy_<id>.txt`.
        require_attrs: whether a result without `time_attr` or `metric` is an error; otherwise it decides nothing.
        synch: whether all trials wait for each other at each perturbation point, and are then changed together.

    Raises:
        ConfigError: an argument is wrong, or nothing is given that could be changed.

    Source: Jaderberg et al. 2017, arXiv:1711.09846, with truncation selection. Departures from Tune: a number is kept
    within its domain's bounds. NaN is the worst score, so a trial that diverged is replaced; Tune leaves it alone. Only
    a trial that has a checkpoint is taken as a source. Every draw is keyed by the run's seed, the trial's number and
    its count of perturbation points, so that equal runs are equal (functions of your own draw as they like).
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: Sequence[float] = (1.2, 0.8),
        custom_explore_fn: Explore | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        limits = (perturbation_interval, burn_in_period, quantile_fraction)
        super().__init__(time_attr, metric, mode, *limits, custom_explore_fn, log_config, require_attrs, synch)
        checks.number("resample_probability", resample_probability, least=0, most=1)
        self._mutations = checked_mutations(hyperparam_mutations or {})
        if not self._mutations and custom_explore_fn is None:
            raise ConfigError(
                "nothing is given that could be changed: pass hyperparam_mutations={'lr': uniform(0, 1)}, or "
                "custom_explore_fn."
            )
        self.mutated_paths = tuple(flatten(self._mutations))
        self.resample_probability = resample_probability
        factors = perturbation_factors
        is_list = isinstance(factors, Sequence) and not isinstance(factors, str) and len(factors) > 0
        if not is_list or not all(map(checks.is_number, factors)):
            checks.refuse("perturbation_factors", factors, "numbers to multiply by, such as (1.2, 0.8)")
        self._factors = tuple(factors)

    def complete_config(self, config: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return a trial's config with a value for every key that may be changed and that it lacks."""
        return complete_config(config, self._mutations, self._rng(FIRST, number, 0))

    def _explored(self, target_id: str, source: Trial, rng: np.random.Generator) -> dict[str, Any]:
        return explore(source.config, self._mutations, rng, self.resample_probability, self._factors)
