"""Experiments as values: what to run and how, for `run` and `run_experiments`."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from sweep.api import run
from sweep.callbacks.base import Callback
from sweep.core.config import CheckpointConfig, ResumeConfig, SyncConfig, fields_of, storage_path_of
from searchers.keywords import meant
from sweep.errors import ConfigError, refuse_unknown
from sweep.launch.build import check_alone
from sweep.launch.execute import raise_failed
from sweep.launch.place import start_from
from sweep.launch.registry import registered
from sweep.launch.spec import RunSpec
from sweep.record.layout import check_name
from sweep.schedulers import Scheduler
from sweep.worker.output import parse_log_to_file

if TYPE_CHECKING:
    from sweep.results.views import TrialView

__all__ = ["Experiment", "run_experiments"]


@refuse_unknown()
@dataclass(frozen=True)
class Experiment:
    """What to run, a trainable or the name of a registered one, and how; the other fields are parameters of
    `sweep.run`, and checked at once: what that would refuse before it starts is refused here.

    `local_dir` is what `storage_path` was once called, and taken as that with a DeprecationWarning.
    """

    name: str
    run: Any
    stop: Any = None
    time_budget_s: float | timedelta | None = None
    config: Mapping[str, Any] | None = None
    resources_per_trial: Any = None
    num_samples: int = 1
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    checkpoint_config: CheckpointConfig | None = None
    sync_config: SyncConfig | None = None
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    log_to_file: bool | str | Sequence[str] = False
    max_failures: int = 0
    restore: str | os.PathLike[str] | None = None
    local_dir: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_path", storage_path_of(self.storage_path, self.local_dir))
        object.__setattr__(self, "local_dir", None)
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"an experiment has the name {self.name!r}; expected the name of its directory.")
        if self.run is None:
            raise ConfigError(f"the experiment {self.name!r} has nothing to run; give it run=function.")
        trainable, own = self.__sweep_run__({})
        check_alone(RunSpec.of(registered(trainable) if isinstance(trainable, str) else trainable, own))
        check_name(self.name)
        start_from(self.restore)
        parse_log_to_file(self.log_to_file)

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Return the experiment that a dict describes: `{"run": train, "config": {...}, "num_samples": 4}`.

        A key `env` is put into the config, as Tune does.
        """
        if not isinstance(spec, Mapping):
            raise ConfigError(f"the experiment {name!r} is {spec!r:.100}; expected a dict with a key 'run'.")
        given = dict(spec)
        if "env" in given:
            given["config"] = {**(given.get("config") or {}), "env": given.pop("env")}
        known = [item.name for item in fields(cls) if item.name != "name"]
        for key in given.keys() - set(known):
            raise ConfigError(f"the experiment {name!r} has an unknown key {key!r}. {meant(str(key), known)}")
        return cls(name, **{"run": None, **given})

    @property
    def public_spec(self) -> dict[str, Any]:
        """What searchers, schedulers and callbacks may know: `stop`, `num_samples` and `time_budget_s`."""
        return {"stop": self.stop, "num_samples": self.num_samples, "time_budget_s": self.time_budget_s}

    def __sweep_run__(self, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return what `run` runs, and with which arguments: the fields that differ from their defaults, and `given`."""
        values = {item: getattr(self, item.name) for item in fields(self) if item.name != "run"}
        own = {item.name: value for item, value in values.items() if value is not item.default}
        for key in own.keys() & given.keys():
            raise ConfigError(f"{key} was given twice: by run() and by the experiment {self.name!r}. Give it once.")
        return self.run, {**given, **own}


@refuse_unknown(fields_of(Experiment, "experiments"))
def run_experiments(
    experiments: Experiment | Sequence[Experiment] | Mapping[str, Any],
    scheduler: Scheduler | str | None = None,
    verbose: int | None = None,
    progress_reporter: Callback | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Callback] | None = None,
) -> list[TrialView]:
    """Run experiments one after another, each in its own directory, and return the trials of all.

    Args:
        experiments: one, several, or a dict of name -> specification (`run`, `config`, `stop`, `num_samples` ...).
        concurrent: has no effect: each experiment packs the whole machine, so two at a time would be no faster.

    The others are those of `run`; a scheduler object is copied for each experiment.

    Raises:
        ConfigError: something is no experiment, or two have one name. Others as `run`.
    """
    if isinstance(experiments, Mapping):
        found = [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    else:
        found = [*experiments] if isinstance(experiments, (list, tuple)) else [cast(Any, experiments)]
    for one in found:
        if not isinstance(one, Experiment):
            raise ConfigError(f"run_experiments was given {one!r:.100}; expected sweep.Experiment objects or a dict.")
    for name, number in Counter(one.name for one in found).items():
        if number > 1:
            raise ConfigError(f"two experiments are called {name!r}; each needs a directory of its own.")
    analyses = [
        run(
            experiment,
            scheduler=scheduler if isinstance(scheduler, str) else copy.deepcopy(scheduler),
            verbose=verbose,
            progress_reporter=progress_reporter,
            resume=resume,
            resume_config=resume_config,
            reuse_actors=reuse_actors,
            raise_on_failed_trial=False,
            callbacks=callbacks,
        )
        for experiment in found
    ]
    failed = [analysis for analysis in analyses if any(trial.status == "ERROR" for trial in analysis.trials)]
    if failed and raise_on_failed_trial:
        raise_failed(failed[0])
    return [trial for analysis in analyses for trial in analysis.trials]
