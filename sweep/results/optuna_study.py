"""An experiment as a study of Optuna, for its plots, importances and dashboard, and for other programs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchers.optuna_space import quiet
from sweep import checks
from sweep.core.ranking import Objectives
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader
from sweep.results.optuna_trials import TRIAL_ID, frozen_trials

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study


_PREFIX = "sweep_experiment"  # the study's attribute that holds of which experiment it is


def to_study(
    reader: ExperimentReader,
    metric: str | Sequence[str] | None = None,
    mode: str | Sequence[str] | None = None,
    storage: str | os.PathLike[str] | BaseStorage | None = None,
    study_name: str | None = None,
) -> Study:
    """Return an experiment as a study of Optuna, as `Experiment.to_optuna` says.

    In a storage only trials that have ended are written, because Optuna cannot change them later.
    """
    objectives = objectives_for(reader, metric, mode)
    with quiet():
        trials = frozen_trials(reader, objectives)
        study = study_in(opened(storage), study_name or reader.name, objectives, reader)
        if storage is not None:
            known = {trial.user_attrs.get(TRIAL_ID) for trial in study.get_trials(deepcopy=False)}
            trials = [one for one in trials if one.state.is_finished() and one.user_attrs[TRIAL_ID] not in known]
        try:
            study.add_trials(trials)
        except ValueError as error:
            raise ConfigError(
                f"the study {study.study_name!r} cannot take the trials of {reader.name}: {error} "
                "The space was changed since it was published; give another study_name."
            ) from error
    return study


def objectives_for(
    reader: ExperimentReader, metric: str | Sequence[str] | None = None, mode: str | Sequence[str] | None = None
) -> Objectives:
    """Return metric and mode of each objective: those given, completed by the sweep's own.

    Raises:
        ConfigError: one is not known, or the two are not of equal length.
    """
    known: dict[Any, Any] = dict(reader.objectives) or {reader.metric: reader.mode}
    metrics: list[Any] = [metric] if isinstance(metric, str) else list(metric or known)
    modes: list[Any] = [mode] if isinstance(mode, str) else list(mode or [])
    modes = modes or [known.get(name) or reader.mode for name in metrics]
    if None in metrics or None in modes or len(metrics) != len(modes):
        raise ConfigError(
            f"a study needs metric and mode, and {reader.name} has metric={metric or reader.metric!r}, mode="
            f"{mode or reader.mode!r}; give metric='loss', mode='min', or two lists of equal length; "
            "on the command line --metric and --goal."
        )
    return tuple((str(name), checks.mode(one)) for name, one in zip(metrics, modes, strict=True) if one != "obs")


def study_in(storage: BaseStorage | None, name: str, objectives: Objectives, reader: ExperimentReader) -> Study:
    """Return the study of an experiment in a storage, made where there is none; its trials are not written.

    Raises:
        ConfigError: there is one of that name that is of something else, or has other directions.
    """
    import optuna

    directions: list[Any] = ["minimize" if mode == "min" else "maximize" for _, mode in objectives]
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=directions,
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(),
        pruner=optuna.pruners.NopPruner(),
    )
    of = f"{reader.name} {reader.meta.get('prefix', '')}".strip()
    known, there = study.user_attrs, [direction.name.lower() for direction in study.directions]
    if known.get(_PREFIX, of) != of or there != directions:
        raise ConfigError(
            f"the storage has a study {name!r} of {known.get(_PREFIX, 'something else')!r} that is to "
            f"{', '.join(there)}; expected none, or one of {of!r} that is to {', '.join(directions)}. "
            "Give another study_name."
        )
    study.set_metric_names([metric for metric, _ in objectives])
    described = {name: str(reader.meta.get(name) or "") for name in ("searcher", "scheduler")}
    for key, value in {_PREFIX: of, "experiment_path": str(reader.root), **described}.items():
        if known.get(key) != value:
            study.set_user_attr(key, value)
    return study


def opened(storage: Any) -> BaseStorage | None:
    """Return what a study takes for a storage that was given as a path, a URL or an object.

    Raises:
        ConfigError: it cannot be opened.
    """
    from optuna.storages import BaseStorage, JournalStorage, get_storage
    from optuna.storages.journal import JournalFileBackend

    if storage is None or isinstance(storage, BaseStorage):
        return storage
    expected = "expected a URL such as 'sqlite:///study.db', the path of a journal, or a storage of Optuna"
    if not isinstance(storage, (str, os.PathLike)):
        raise ConfigError(f"storage is {storage!r:.100}; {expected}.")
    is_url = isinstance(storage, str) and "://" in storage
    try:
        if is_url:
            return get_storage(str(storage))
        file = Path(storage).expanduser()
        if re.fullmatch(r"\.(db|sqlite\d?)", file.suffix):
            raise ValueError("a journal is no database")
        return JournalStorage(JournalFileBackend(str(file)))
    except Exception as error:  # of the database's driver; of a journal that is none
        hint = "" if is_url else f" For a database write sqlite:///{storage}."
        why = f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"
        raise ConfigError(f"the storage {str(storage)!r} cannot be opened: {why}; {expected}.{hint}") from error
