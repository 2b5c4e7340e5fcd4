"""Population based training: the worst trials continue from the best ones' checkpoints, with changed configs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, final

import numpy as np

from sweep.core.messages import CloneTrial, Decision, PauseTrial, ResizeTrial, SaveTrial
from sweep.core.results import Result, flatten
from sweep.core.trial import Status, Trial
from sweep.errors import ConfigError, MetricError
from sweep.schedulers.explore import checked_mutations, complete_config, explore, quantile_size
from sweep.schedulers.judging import MetricScheduler, check_number

__all__ = ["PopulationBasedTraining"]

_FIRST, _LATER = 0, 1  # what a random number is for: a config's missing values, or an exploit


class _Member:
    """What is known of one trial of the population.

    Attributes:
        score: at its last perturbation point; None: it has not come to one.
        last_point: the progress at which its current interval began.
        num_points: how many it came to; numbers its random draws.
        arrived_in: the attempt in which it reached the barrier (synchronous); 0: it has not. arrived_at: its progress.
        is_clone: it continues from another's checkpoint, so it has one.
    """

    __slots__ = ("arrived_at", "arrived_in", "is_clone", "last_point", "num_points", "score")

    def __init__(self) -> None:
        self.score: float | None = None
        self.last_point = self.arrived_at = 0.0
        self.num_points = self.arrived_in = 0
        self.is_clone = False


@final
class PopulationBasedTraining(MetricScheduler):
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
        log_config: whether the run writes who took what from whom to `pbt_global.txt` and `pbt_policy_<id>.txt`.
        require_attrs: whether a result without `time_attr` or `metric` is an error; otherwise it decides nothing.
        synch: whether all trials wait for each other at each perturbation point, and are then changed together.

    Raises:
        ConfigError: an argument is wrong, or nothing is given that could be changed.

    Source: Jaderberg et al. 2017, arXiv:1711.09846, with truncation selection. Departures from Tune: a number is kept
    within its domain's bounds. NaN is the worst score, so a trial that diverged is replaced; Tune leaves it alone. Only
    a trial that has a checkpoint is taken as a source. Every draw is keyed by the run's seed, the trial's number and
    its count of perturbation points, so that equal runs are equal (functions of your own draw as they like).
    """

    is_searching = True

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
        custom_explore_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_number("perturbation_interval", perturbation_interval, least=0, is_least_allowed=False)
        check_number("burn_in_period", burn_in_period, least=0)
        for name, share, most in (
            ("quantile_fraction", quantile_fraction, 0.5),
            ("resample_probability", resample_probability, 1.0),
        ):
            check_number(name, share, least=0)
            if share > most:
                raise ConfigError(f"{name} is {share!r}; expected a number from 0 to {most:g}.")
        if custom_explore_fn is not None and not callable(custom_explore_fn):
            raise ConfigError(f"custom_explore_fn is {custom_explore_fn!r:.100}; expected a function of a config.")
        self._mutations = checked_mutations(hyperparam_mutations or {})
        if not self._mutations and custom_explore_fn is None:
            raise ConfigError(
                "nothing is given that could be changed: pass hyperparam_mutations={'lr': uniform(0, 1)}, or "
                "custom_explore_fn."
            )
        self.mutated_paths = tuple(flatten(self._mutations))
        self._factors = _checked_factors(perturbation_factors)
        self.perturbation_interval, self.burn_in_period = perturbation_interval, burn_in_period
        self.quantile_fraction, self.resample_probability = quantile_fraction, resample_probability
        self.log_config, self.require_attrs, self.synch = log_config, require_attrs, synch
        self.num_checkpoints = self.num_perturbations = 0
        self._custom_explore = custom_explore_fn
        self._members: dict[str, _Member] = {}
        self._alive: dict[str, _Member] = {}  # those that have not ended
        self._barrier = float(max(perturbation_interval, burn_in_period))
        self._num_barriers = 0
        self._unpausable: set[str] = set()

    def complete_config(self, config: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Return a trial's config with a value for every key that may be changed and that it lacks.

        Args:
            number: of the trial in its sweep, from 0; the same number gives the same values.
        """
        return complete_config(config, self._mutations, self._rng(_FIRST, number, 0))

    def on_trial_add(self, trial: Trial) -> None:
        self._member(trial.id)

    def on_result(self, trial: Trial, result: Result, trials: Mapping[str, Trial]) -> Sequence[Decision]:
        read = self._read(result)
        if read is None:
            self._missing(result)
            return ()
        time, score = read
        member = self._member(trial.id)
        if self.synch:
            return self._at_barrier(trial, member, time, score)
        if time < self.burn_in_period or time - member.last_point < self.perturbation_interval:
            return ()
        member.score, member.last_point = score, time
        member.num_points += 1
        worst, best = self._quantiles()
        if trial.id in worst:
            clone = self._exploit(trial, best, trials, member.num_points)
            if clone is not None:
                return [clone]
        is_best = trial.id in best
        self.num_checkpoints += is_best
        is_free = trial.pending is None or isinstance(trial.pending, SaveTrial)  # a person's pause comes first
        if is_free and trial.id not in self._unpausable and self._is_anybody_waiting(trials):
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
            self._tell_once(
                "PopulationBasedTraining cannot pause a trial that never saved a checkpoint; it runs on without taking "
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
        clones: list[Decision] = []
        for trial_id in worst:
            if trial_id in idle and (clone := self._exploit(trials[trial_id], best, trials, number)) is not None:
                clones.append(clone)
        self.num_checkpoints += sum(trial_id in idle for trial_id in best)
        self._pass_barrier()
        cloned = {decision.trial_id for decision in clones}
        order = sorted((d for d in resumes if d.trial_id not in cloned), key=lambda d: d.trial_id not in best)
        return [*order, *clones]

    def _at_barrier(self, trial: Trial, member: _Member, time: float, score: float) -> Sequence[Decision]:
        """Pause a trial at the barrier; what happens there is decided when nothing runs any more and all are saved."""
        self._catch_up(trial, member)
        if time < self._barrier:
            return ()
        member.score, member.arrived_at = score, time
        member.arrived_in = trial.attempt or 1
        if trial.id in self._unpausable and trial.checkpoint is None:
            return ()
        return [PauseTrial(trial.id, f"waits for the population at {self.time_attr}={self._barrier:g}")]

    def _catch_up(self, trial: Trial, member: _Member) -> None:
        """Pass the barrier if `on_idle` resumed a trial there: that is no part of the record that is told again."""
        is_resumed = 0 < member.arrived_in < trial.attempt
        if is_resumed and all(other.arrived_in for other in self._alive.values()):
            self._pass_barrier()

    def _pass_barrier(self) -> None:
        last = max((member.arrived_at for member in self._alive.values() if member.arrived_in), default=0.0)
        self._barrier = max(self._barrier + self.perturbation_interval, last)
        self._num_barriers += 1
        for member in self._alive.values():
            member.arrived_in = 0

    def _quantiles(self) -> tuple[list[str], list[str]]:
        """Return the worst and the best of the trials that live and came to a perturbation point."""
        scores = {trial_id: m.score for trial_id, m in self._alive.items() if m.score is not None}
        ranking = sorted(scores, key=lambda trial_id: scores[trial_id])
        size = quantile_size(len(ranking), self.quantile_fraction)
        if size == 0:
            return [], []
        return ranking[:size], ranking[-size:]

    def _exploit(
        self, target: Trial, best: Sequence[str], trials: Mapping[str, Trial], number: int
    ) -> CloneTrial | None:
        """Return the decision that lets a trial continue from a random one of the best; None if none has saved."""
        sources = [
            trial_id
            for trial_id in best
            if trial_id in trials and (trials[trial_id].checkpoint is not None or self._members[trial_id].is_clone)
            if self._members[trial_id].score != -math.inf
        ]
        if not sources:
            self._tell_once(
                "PopulationBasedTraining skips an exploit: none of the best trials has saved a checkpoint. Report a "
                "checkpoint at least once in every perturbation_interval."
            )
            return None
        rng = self._rng(_LATER, target.number, number)
        source = sources[int(rng.integers(len(sources)))]
        config = explore(
            trials[source].config,
            self._mutations,
            rng=rng,
            resample_probability=self.resample_probability,
            perturbation_factors=self._factors,
            custom_explore_fn=self._custom_explore,
        )
        member, other = self._members[target.id], self._members[source]
        member.is_clone = True
        member.last_point = other.last_point
        self.num_perturbations += 1
        return CloneTrial(target.id, source, config)

    def _is_anybody_waiting(self, trials: Mapping[str, Trial]) -> bool:
        """Whether a trial waits for resources; one that still holds its own is about to start again."""
        waiting = (trials[trial_id] for trial_id in self._alive if trial_id in trials)
        return any(trial.status is Status.PENDING and trial.placement is None for trial in waiting)

    def _member(self, trial_id: str) -> _Member:
        member = self._members.get(trial_id)
        if member is None:
            member = self._members[trial_id] = _Member()
        self._alive.setdefault(trial_id, member)
        return member

    def _missing(self, result: Result) -> None:
        missing = [name for name in (self.time_attr, self.metric or "") if result.get(name) is None]
        what = " and ".join(repr(name) for name in missing) or f"a number as {self.time_attr!r}"
        told = f"a result lacks {what}, which PopulationBasedTraining judges by. Report it with every result"
        if self.require_attrs:
            raise MetricError(f"{told}, or pass require_attrs=False to let such results pass.")
        self._tell_once(f"{told}; such results decide nothing.")

    def _rng(self, purpose: int, number: int, count: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([self._seed, purpose, number, count]))

    def state(self) -> Any:
        """Return every trial's score at its last perturbation point and where its interval began; for replay checks."""
        members = {i: (m.score, m.last_point, m.num_points) for i, m in self._members.items()}
        return members, sorted(self._alive), self._barrier, self._num_barriers

    def debug_string(self) -> str:
        """Return how many checkpoints and perturbations there were, for logs."""
        return f"PopulationBasedTraining: {self.num_checkpoints} checkpoints, {self.num_perturbations} perturbs"


def _checked_factors(factors: Any) -> tuple[float, ...]:
    is_list = isinstance(factors, Sequence) and not isinstance(factors, str) and len(factors) > 0
    if not is_list or not all(isinstance(f, Real) and not isinstance(f, bool) and math.isfinite(f) for f in factors):
        raise ConfigError(f"perturbation_factors is {factors!r}; expected numbers to multiply by, such as (1.2, 0.8).")
    return tuple(factors)
