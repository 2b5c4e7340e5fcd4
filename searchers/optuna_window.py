"""Let a sampler of Optuna see a bounded number of a study's trials, so that its cost stops growing with them."""

from __future__ import annotations

import copy
import math
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from searchers.pareto import pareto_front

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState


CONSTRAINTS = "constraints"
"""The attribute of a study's trial under which Optuna keeps the violations."""


def best_and_newest(study: Study, size: int) -> list[FrozenTrial] | None:
    """Return `size` of the study's trials that ended, and all that go on, by number; None if no more ended.

    These are the newest `size - size // 2` by number, and the best `size // 2` of the others: complete ones by
    their value, then pruned ones by how far they came, then infeasible ones by their violation; ties by number. With
    several objectives the second half are the trials of the others' Pareto front, the newest of them.

    The choice depends on which trials ended, not on the order in which they did, so it survives a restart.
    """
    trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
    ended = [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]
    going_on = [trial for trial in trials if trial.state.name in ("RUNNING", "WAITING")]
    if len(ended) <= size:
        return None
    num_best = size // 2
    old, newest = ended[: num_best - size], ended[num_best - size :]
    if len(study.directions) > 1:
        complete = [trial for trial in old if _rank(trial, 1.0)[0] == 0]
        modes = ["min" if direction.name == "MINIMIZE" else "max" for direction in study.directions]
        front = [complete[i] for i in pareto_front([trial.values for trial in complete], modes)]
        best = front[-num_best:]
    else:
        sign = 1.0 if study.directions[0].name == "MINIMIZE" else -1.0
        best = sorted(old, key=lambda trial: (*_rank(trial, sign), trial.number))[:num_best]
    return sorted([*best, *newest, *going_on], key=lambda trial: trial.number)


def _rank(trial: FrozenTrial, sign: float) -> tuple[float, ...]:
    """Return a key by which trials are ordered as the Parzen estimator orders them, the best first."""
    violation = sum(value for value in trial.system_attrs.get(CONSTRAINTS, ()) if value > 0)
    if violation > 0:
        return 2, violation, 0.0
    if trial.state.name == "COMPLETE":
        return 0, sign * trial.values[0], 0.0
    if not trial.intermediate_values:
        return 1, 1.0, 0.0
    step, value = max(trial.intermediate_values.items())
    return 1, -step, math.inf if math.isnan(value) else sign * value


@contextmanager
def showing(study: Study, window: int | None) -> Iterator[None]:
    """Let samplers see the best and the newest of a study's trials only, where more ended than the window holds."""
    shown = None if window is None else best_and_newest(study, window)
    if shown is None:
        yield
        return

    def get_trials(
        deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> Sequence[FrozenTrial]:
        trials = [trial for trial in shown if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    changed: Any = study
    changed._get_trials = get_trials
    try:
        yield
    finally:
        del changed._get_trials
