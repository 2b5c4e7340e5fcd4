"""A study of Optuna as points that were evaluated before, for the searcher of a sweep to start from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from searchers.optuna_space import quiet
from searchers.variants import unflatten
from sweep.core.values import shown
from sweep.errors import ConfigError, SpaceError, refuse_unknown
from sweep.record.encoding import decode
from sweep.results.optuna_trials import CONFIG

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial


class EvaluatedPoints(list[tuple[dict[str, Any], dict[str, float]]]):
    """Pairs of a config and its result, for `warm_start=` of a run; and the same apart, for searchers."""

    @property
    def points_to_evaluate(self) -> list[dict[str, Any]]:
        """The configs."""
        return [config for config, _ in self]

    @property
    def evaluated_rewards(self) -> list[Any]:
        """What each config reached: a number, or a list of one for each objective."""
        rewards = [list(result.values()) for _, result in self]
        return [reward[0] if len(reward) == 1 else reward for reward in rewards]


@refuse_unknown()
def from_optuna(
    study: Study | str,
    metric: str | Sequence[str] | None = None,
    *,
    storage: str | BaseStorage | None = None,
    include_pruned: bool = False,
) -> EvaluatedPoints:
    """Return what a study of Optuna has evaluated, to start a sweep from.

    It is a list of pairs of a config and its result, as `sweep.run(..., warm_start=...)` takes it; its attributes
    `points_to_evaluate` and `evaluated_rewards` are what searchers are built with. A parameter `net/width` is
    `config["net"]["width"]`. A study that `to_optuna` has made gives back the configs as they were recorded. Failed
    trials, and those that have not ended, are left out.

    Args:
        study: of Optuna, or its name in `storage`.
        metric: what the value is called in the sweep, or a list with a name for each objective; None: the study's own
            `metric_names`.
        storage: as in `optuna.load_study`; only with a name.
        include_pruned: also take trials that were pruned, with their last intermediate value. That is the value of an
            earlier step than those of the others, and a searcher would compare the two; so they are left out otherwise.

    Raises:
        ConfigError: it is no study, there is none of that name, no metric is known, or nothing was evaluated.
    """
    study = _loaded(study, storage)
    metrics = _metrics(study, metric)
    found = EvaluatedPoints()
    for trial in study.get_trials(deepcopy=False):
        values = _values(trial, len(metrics), include_pruned)
        if values is not None:
            found.append((config_of(trial), dict(zip(metrics, values, strict=True))))
    if not found:
        trials = study.get_trials(deepcopy=False)
        states = ", ".join(sorted({trial.state.name for trial in trials})) or "it has none"
        raise ConfigError(f"the study {study.study_name!r} has no completed trial to learn from ({states}).")
    return found


def is_study(thing: object) -> bool:
    """Whether something is a study of Optuna; optuna is not imported for it."""
    return any(f"{one.__module__}.{one.__name__}" == "optuna.study.study.Study" for one in type(thing).__mro__)


def _loaded(study: Any, storage: Any) -> Study:
    import optuna

    if is_study(study) and storage is None:
        return study  # type: ignore[no-any-return]
    if not isinstance(study, str) or storage is None:
        what = "a study and a storage" if is_study(study) else shown(study, 100)
        raise ConfigError(
            f"from_optuna was given {what}; expected a study of Optuna, or a name together with storage=."
        )
    try:
        with quiet():
            return optuna.load_study(study_name=study, storage=storage)
    except Exception as error:  # of the database's driver; there is none of that name
        raise ConfigError(
            f"the study {study!r} cannot be loaded from {shown(storage)}: {type(error).__name__}: {error}"
        ) from error


def _metrics(study: Study, metric: str | Sequence[str] | None) -> list[str]:
    metrics = [metric] if isinstance(metric, str) else list(metric or study.metric_names or [])
    number = len(study.directions)
    if len(metrics) != number:
        given = f"metric={metric!r}" if metric else "no names for them"
        raise ConfigError(
            f"the study {study.study_name!r} has {number} objective{'s' if number > 1 else ''} and {given}; expected "
            "what the sweep reports, such as metric='loss', or a list with a name for each."
        )
    return metrics


def _values(trial: FrozenTrial, number: int, include_pruned: bool) -> list[float] | None:
    if trial.state.name == "COMPLETE":
        return list(trial.values or ())
    if not include_pruned or trial.state.name != "PRUNED" or number > 1 or not trial.intermediate_values:
        return None
    last = trial.intermediate_values[max(trial.intermediate_values)]
    return None if math.isnan(last) else [last]


def config_of(trial: FrozenTrial) -> dict[str, Any]:
    """Return the parameters of a trial as a config: as it was recorded, where `to_optuna` has made it."""
    if CONFIG in trial.system_attrs:
        config: dict[str, Any] = decode(trial.system_attrs[CONFIG])
        return config
    return nested(trial.params)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters named `a/b` as a nested config; with both `a` and `a/b`, of somebody else's, as they are."""
    try:
        return unflatten(flat)
    except SpaceError:
        return dict(flat)
