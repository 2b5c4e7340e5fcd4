"""An experiment as a study of Optuna, for its plots, importances and dashboard; and a study as points to start from."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from searchers.optuna_space import quiet
from sweep import checks
from sweep.core.ranking import Objectives
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader
from sweep.results.optuna_trials import TRIAL_ID, RecordedTrials

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study


_DATABASES = re.compile(r"\.(db|sqlite\d?)")  # how the names of files end that are no journals
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
    recorded = RecordedTrials(reader, objectives)
    with quiet(), _in_turn(storage):
        trials = recorded.trials()
        study = _study_in(_opened(storage), study_name or reader.name, objectives, reader)
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
    reader: ExperimentReader,
    metric: str | Sequence[str] | None = None,
    mode: str | Sequence[str] | None = None,
) -> Objectives:
    """Return metric and mode of each objective: those given, completed by the sweep's own.

    Raises:
        ConfigError: one is not known, or the two are not of equal length.
    """
    known: tuple[tuple[Any, Any], ...] = reader.objectives or ((reader.metric, reader.mode),)
    metrics: list[Any] = [metric] if isinstance(metric, str) else list(metric or [name for name, _ in known])
    modes: list[Any] = [mode] if isinstance(mode, str) else list(mode or [])
    if not modes:
        by_metric = dict(known)
        modes = [by_metric.get(name) or reader.mode for name in metrics]
    if None in metrics or None in modes or len(metrics) != len(modes):
        raise ConfigError(
            f"a study needs metric and mode, and {reader.name} has metric={metric or reader.metric!r}, mode="
            f"{mode or reader.mode!r}; give metric='loss', mode='min', or two lists of equal length; "
            "on the command line --metric and --goal."
        )
    pairs = [(str(name), str(one)) for name, one in zip(metrics, modes, strict=True) if one != "obs"]
    return tuple((name, checks.mode(one)) for name, one in pairs)


def study_attributes(reader: ExperimentReader) -> dict[str, Any]:
    """Return the user attributes of an experiment's study."""
    return {
        _PREFIX: f"{reader.name} {reader.meta.get('prefix', '')}".strip(),
        "experiment_path": str(reader.root),
        "searcher": str(reader.meta.get("searcher") or ""),
        "scheduler": str(reader.meta.get("scheduler") or ""),
    }


def _is_path(storage: Any) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(storage, os.PathLike) or (isinstance(storage, str) and "://" not in storage)


@contextmanager
def _in_turn(storage: Any) -> Iterator[None]:
    """Let others who publish into the same journal wait, so that no trial is written twice."""
    with ExitStack() as stack:
        if _is_path(storage) and not _DATABASES.fullmatch(Path(storage).suffix):  # those are refused
            with suppress(OSError):  # said by whoever opens the journal itself
                file = stack.enter_context(Path(storage).expanduser().open("ab"))
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _opened(storage: Any) -> BaseStorage | str | None:
    """Return what a study takes for a storage that was given as a path, a URL or an object.

    Raises:
        ConfigError: it cannot be opened.
    """
    from optuna.storages import BaseStorage, get_storage

    if storage is None or isinstance(storage, BaseStorage):
        return storage
    expected = "expected a URL such as 'sqlite:///study.db', the path of a journal, or a storage of Optuna"
    if not _is_path(storage) and not isinstance(storage, str):
        raise ConfigError(f"storage is {storage!r:.100}; {expected}.")
    try:
        return _journal(storage) if _is_path(storage) else get_storage(str(storage))
    except Exception as error:  # of the database's driver; of a journal that is none
        hint = f" For a database write sqlite:///{storage}." if _is_path(storage) else ""
        why = f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"
        raise ConfigError(f"the storage {str(storage)!r} cannot be opened: {why}; {expected}.{hint}") from error


def _journal(path: str | os.PathLike[str]) -> BaseStorage:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    file = Path(path).expanduser()
    if _DATABASES.fullmatch(file.suffix):
        raise ValueError("a journal is no database")
    return JournalStorage(JournalFileBackend(str(file)))


def _study_in(storage: BaseStorage | str | None, name: str, objectives: Objectives, reader: ExperimentReader) -> Study:
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
    attributes, known = study_attributes(reader), study.user_attrs
    there = [direction.name.lower() for direction in study.directions]
    if known.get(_PREFIX, attributes[_PREFIX]) != attributes[_PREFIX] or there != directions:
        raise ConfigError(
            f"the storage has a study {name!r} of {known.get(_PREFIX, 'something else')!r} that is to "
            f"{', '.join(there)}; expected none, or one of {attributes[_PREFIX]!r} that is to {', '.join(directions)}. "
            "Give another study_name."
        )
    metrics = [metric for metric, _ in objectives]
    if study.metric_names != metrics:
        study.set_metric_names(metrics)
    for key, value in attributes.items():
        if known.get(key) != value:
            study.set_user_attr(key, value)
    return study
