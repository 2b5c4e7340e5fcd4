"""Experiments as values: what to run and how, for `run` and `run_experiments`; and trials as callbacks see them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.api import run
from sweep.callbacks.observed import ObservedTrial
from sweep.core.config import storage_path_of
from sweep.errors import ConfigError, refuse_unknown
from sweep.launch.build import check_alone
from sweep.launch.execute import raise_failed
from sweep.launch.place import start_from
from sweep.launch.registry import registered
from sweep.launch.spec import PARAMETERS, RunSpec, changed
from sweep.record.layout import check_name
from sweep.results.views import TrialView
from sweep.schedulers import Scheduler
from sweep.worker.output import parse_log_to_file

Trial = ObservedTrial


@refuse_unknown(also=[*PARAMETERS, "local_dir"])
class Experiment:
    """What to run, a trainable or the name of a registered one, and how: the options are parameters of `sweep.run`, and
    checked at once: what that would refuse before it starts is refused here.

    `local_dir` is what `storage_path` was once called, and taken as that with a DeprecationWarning.
    """

    def __init__(self, name: str, run: Any, **options: Any) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"an experiment has the name {name!r}; expected the name of its directory.")
        if run is None:
            raise ConfigError(f"the experiment {name!r} has nothing to run; give it run=function.")
        options["storage_path"] = storage_path_of(options.get("storage_path"), options.pop("local_dir", None))
        vars(self).update(PARAMETERS, **options, name=name, run=run)
        self.name, self.run = name, run
        _, own = self.__sweep_run__({})
        spec = RunSpec.of(registered(run) if isinstance(run, str) else run, own)
        check_alone(spec)
        check_name(name)
        start_from(spec.restore)
        parse_log_to_file(spec.log_to_file)

    @classmethod
    def from_json(cls, name: str, spec: Mapping[str, Any]) -> Experiment:
        """Return the experiment that a dict describes: `{"run": train, "config": {...}, "num_samples": 4}`.

        A key `env` is put into the config, as Tune does.
        """
        if not isinstance(spec, Mapping):
            raise ConfigError(f"the experiment {name!r} is {spec!r:.100}; expected a dict with a key 'run'.")
        given = {"run": None, **spec}
        if "env" in given:
            given["config"] = {**(given.get("config") or {}), "env": given.pop("env")}
        return cls(name, **given)

    @property
    def public_spec(self) -> dict[str, Any]:
        """What searchers, schedulers and callbacks may know: `stop`, `num_samples` and `time_budget_s`."""
        return {name: vars(self)[name] for name in ("stop", "num_samples", "time_budget_s")}

    def __sweep_run__(self, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return what `run` runs, and with which arguments: what differs from the defaults, and `given`."""
        own = changed({name: value for name, value in vars(self).items() if name != "run"})
        for key in own.keys() & given.keys():
            raise ConfigError(f"{key} was given twice: by run() and by the experiment {self.name!r}. Give it once.")
        return self.run, {**given, **own}


@refuse_unknown(also=PARAMETERS)
def run_experiments(
    experiments: Experiment | Sequence[Experiment] | Mapping[str, Any],
    scheduler: Scheduler | str | None = None,
    *,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    **options: Any,
) -> list[TrialView]:
    """Run experiments one after another, each in its own directory, and return the trials of all.

    Args:
        experiments: one, several, or a dict of name -> specification (`run`, `config`, `stop`, `num_samples` ...).
        scheduler: an object is copied for each experiment.
        concurrent: has no effect: each experiment packs the whole machine, so two at a time would be no faster.
        options: parameters of `run` that are the same for all.

    Raises:
        ConfigError: something is no experiment, or two have one name. Others as `run`.
    """
    if isinstance(experiments, Mapping):
        experiments = [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    found: list[Any] = [*experiments] if isinstance(experiments, (list, tuple)) else [experiments]
    for one in found:
        if not isinstance(one, Experiment):
            raise ConfigError(f"run_experiments was given {one!r:.100}; expected sweep.Experiment objects or a dict.")
    for name, number in Counter(one.name for one in found).items():
        if number > 1:
            raise ConfigError(f"two experiments are called {name!r}; each needs a directory of its own.")
    options["raise_on_failed_trial"] = False  # before all have run
    analyses = [run(experiment, scheduler=copy.deepcopy(scheduler), **options) for experiment in found]
    failed = [analysis for analysis in analyses if any(trial.status == "ERROR" for trial in analysis.trials)]
    if failed and raise_on_failed_trial:
        raise_failed(failed[0])
    return [trial for analysis in analyses for trial in analysis.trials]
