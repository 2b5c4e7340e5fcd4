"""Let a sampler of Optuna see a bounded number of a study's trials, so that its cost stops growing with them."""

from __future__ import annotations

import copy
import math
from bisect import insort
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from searchers.pareto import is_dominated

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState


CONSTRAINTS = "constraints"
"""The attribute of a study's trial under which Optuna keeps the violations."""


class _Ended(NamedTuple):
    """A trial that left the newest ones, ordered as the Parzen estimator orders trials, best first."""

    rank: int  # 0: complete and feasible, 1: pruned, 2: infeasible
    score: tuple[float, ...]
    number: int


class TrialWindow:
    """Choose which of a study's trials a sampler sees: `size` of those that ended, and all that go on.

    These are the newest `size - size // 2` by number, and the best `size // 2` of the others: complete ones by
    their value, then pruned ones by how far they came, then infeasible ones by their violation; ties by number. With
    several objectives the second half are the trials of the others' Pareto front, the newest of them.

    The choice depends on which trials ended, not on the order in which they did, so it survives a restart. A trial that
    ends costs O(log n) comparisons.

    Args:
        size: int of at least 2.
    """

    def __init__(self, size: int) -> None:
        self._num_best = size // 2
        self._num_newest = size - size // 2
        self._scanned = 0  # trials with lower numbers were looked at
        self._going_on: list[int] = []  # of those: the ones that had not ended
        self._newest: list[int] = []
        self._best: list[_Ended] = []
        self._num_ended = 0

    def is_exceeded(self, study: Study) -> bool:
        """Whether more trials ended than it shows."""
        self._update(study)
        return self._num_ended > self._num_best + self._num_newest

    def choose(self, study: Study) -> list[FrozenTrial]:
        """Return the trials, by number."""
        trials = self._update(study)
        best = self._best if len(study.directions) == 1 else self._best[-self._num_best :]
        return [trials[number] for number in sorted([one.number for one in best] + self._newest + self._going_on)]

    def _update(self, study: Study) -> Sequence[FrozenTrial]:
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        signs = [1.0 if direction.name == "MINIMIZE" else -1.0 for direction in study.directions]
        looked_at = [*self._going_on, *range(self._scanned, len(trials))]
        self._scanned = len(trials)
        self._going_on = []
        for number in looked_at:
            match trials[number].state.name:
                case "COMPLETE" | "PRUNED":
                    self._end(trials, number, signs)
                case "RUNNING" | "WAITING":
                    self._going_on.append(number)
        return trials

    def _end(self, trials: Sequence[FrozenTrial], number: int, signs: Sequence[float]) -> None:
        self._num_ended += 1
        insort(self._newest, number)
        if len(self._newest) <= self._num_newest:
            return
        leaving = trials[self._newest.pop(0)]
        ended = _ended(leaving, signs)
        if len(signs) == 1:
            insort(self._best, ended)
            del self._best[self._num_best :]
        elif ended.rank == 0 and not is_dominated(ended.score, [one.score for one in self._best]):
            self._best = [one for one in self._best if not is_dominated(one.score, [ended.score])]
            insort(self._best, ended, key=lambda one: one.number)


def _ended(trial: FrozenTrial, signs: Sequence[float]) -> _Ended:
    violation = sum(value for value in trial.system_attrs.get(CONSTRAINTS, ()) if value > 0)
    if violation > 0:
        return _Ended(2, (violation,), trial.number)
    if trial.state.name == "COMPLETE":
        return _Ended(0, tuple(sign * value for sign, value in zip(signs, trial.values, strict=True)), trial.number)
    if not trial.intermediate_values:
        return _Ended(1, (1.0, 0.0), trial.number)
    step, value = max(trial.intermediate_values.items())
    return _Ended(1, (-step, math.inf if math.isnan(value) else signs[0] * value), trial.number)


class _View:
    """A study that shows some of its trials; in everything else it is the study."""

    def __init__(self, study: Study, trials: Sequence[FrozenTrial]) -> None:
        self._study = study
        self._trials = trials

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def get_trials(self, deepcopy: bool = True, states: Container[TrialState] | None = None) -> list[FrozenTrial]:
        return self._get_trials(deepcopy, states)

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        trials = [trial for trial in self._trials if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials


class _Windowed:
    """A sampler that answers for one ask from the trials that a window shows."""

    def __init__(self, sampler: BaseSampler, trials: Callable[[Study], list[FrozenTrial]]) -> None:
        self._sampler = sampler
        self._trials = trials
        self._view: _View | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Any:
        return self._sampler.infer_relative_search_space(self._seen(study), trial)

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: Any) -> Any:
        return self._sampler.sample_relative(self._seen(study), trial, search_space)

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        return self._sampler.sample_independent(self._seen(study), trial, param_name, param_distribution)

    def _seen(self, study: Study) -> Study:
        if self._view is None:
            self._view = _View(study, self._trials(study))
        return cast("Study", self._view)


def windowed(sampler: BaseSampler, window: TrialWindow) -> BaseSampler:
    """Return a sampler for one ask that sees what the window shows; anything else goes to `sampler`."""
    return cast("BaseSampler", _Windowed(sampler, window.choose))
