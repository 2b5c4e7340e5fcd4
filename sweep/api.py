"""The Python API: `run`, with the parameters that Tune's users know."""

from __future__ import annotations

import copy
import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from searchers.base import Searcher
from sweep.callbacks.base import Callback
from sweep.core.config import CheckpointConfig, FailureConfig, ResumeConfig, SyncConfig, fields_of
from sweep.core.resources import Node
from sweep.engines.base import Engine
from sweep.errors import ConfigError, TrialsFailed, refuse_unknown
from sweep.launch.arguments import Request, ResumeMode
from sweep.launch.experiment import Experiment
from sweep.launch.launcher import Launch
from sweep.launch.registry import registered
from sweep.record.importing import end_module
from sweep.record.recipe import pack_recipe
from sweep.schedulers import Scheduler
from sweep.worker.nested import refuse_nested

if TYPE_CHECKING:
    from sweep.results.analysis import ExperimentAnalysis, TrialView

__all__ = ["run", "run_experiments"]

# Parameters that Tune once had, and what takes their place.
_FORMER = {
    "local_dir": "It is called storage_path now.",
    "upload_dir": "Give the URI as storage_path.",
    "sync_to_driver": "Everything is written in place; leave it out.",
    "loggers": "Pass them as callbacks.",
    "queue_trials": "Trials always wait for their resources; leave it out.",
    "trial_executor": "Choose where trials run with engine='local' or engine='inline'.",
    "server_port": "There is no server; `sweep ls` and `sweep why` read the record of a running sweep.",
    "ray_auto_init": "Nothing has to be started; declare resources with sweep.init().",
    "return_trials": "The trials are analysis.trials.",
    "export_formats": "Write the model in save_checkpoint() or cleanup(), or call export_model() by hand.",
    "checkpoint_score_attribute": "Pass checkpoint_config=sweep.CheckpointConfig(checkpoint_score_attribute=...).",
    "num_to_keep": "Pass checkpoint_config=sweep.CheckpointConfig(num_to_keep=...).",
    "param_space": "run() calls it config.",
    "max_t": "It is a parameter of schedulers: scheduler=sweep.ASHAScheduler(max_t=...).",
    "sync_to_cloud": "Give the URI as storage_path.",
    "global_checkpoint_period": "Every result is on disk before its trial goes on; leave it out.",
    "run_errored_only": "Write resume='ERRORED_ONLY'.",
    "trial_name_string": "It is called trial_name_creator.",
}
_THE_FUNCTION = "The function is the first argument: run(train, ...)."
# What others expect to find here, and where it is.
_ELSEWHERE = {
    "objective": "The function is the first argument, run(train, ...); the key that it reports is metric=.",
    "func": f"{_THE_FUNCTION} The key that it reports is metric=.",
    "fn": _THE_FUNCTION,
    "function": _THE_FUNCTION,
    "trainable": _THE_FUNCTION,
    "tune_config": "run() takes its fields themselves, or use sweep.Tuner(train, tune_config=...).",
    "run_config": "run() takes its fields themselves, or use sweep.Tuner(train, run_config=...).",
}
# Deprecated forms of fields of CheckpointConfig.
_CHECKPOINT_FORMS = {
    "keep_checkpoints_num": "num_to_keep",
    "checkpoint_score_attr": "checkpoint_score_attribute",
    "checkpoint_freq": "checkpoint_frequency",
    "checkpoint_at_end": "checkpoint_at_end",
}
# Not part of what a restored sweep is asked again: they are where it lies, or belong to one call.
_NOT_KEPT = {"name", "storage_path", "storage_filesystem", "resume", "resume_config"}


@refuse_unknown(_FORMER | _ELSEWHERE, unlisted=_CHECKPOINT_FORMS)
def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | Sequence[str] | None = None,
    mode: str | Sequence[str] | None = None,
    stop: Any = None,
    time_budget_s: float | timedelta | None = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: str | os.PathLike[str] | None = None,
    storage_filesystem: Any = None,
    search_alg: Searcher | str | None = None,
    scheduler: Scheduler | str | None = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int | None = None,
    progress_reporter: Callback | None = None,
    log_to_file: bool | str | Sequence[str] = False,
    trial_name_creator: Callable[[Any], str] | None = None,
    trial_dirname_creator: Callable[[Any], str] | None = None,
    chdir_to_trial_dir: bool = False,
    sync_config: SyncConfig | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    failure_config: FailureConfig | None = None,
    trial_timeout_s: float | timedelta | None = None,
    report_timeout_s: float | timedelta | None = None,
    restore: str | os.PathLike[str] | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Callback] | None = None,
    max_concurrent_trials: int | None = None,
    seed: int | None = None,
    engine: str | Engine = "local",
    nodes: Sequence[Node] | None = None,
    start_method: str = "zygote",
    preload: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    durability: str = "full",
    strict_metric: bool = True,
    import_path: str | None = None,
    **deprecated: Any,
) -> ExperimentAnalysis:
    """Run a sweep and return its analysis.

    Args:
        run_or_experiment: the trainable: a function of one config that calls `sweep.report`, a `sweep.Trainable`
            class, a trainer, the name of something registered, or an `Experiment`.
        name: directory of the experiment; None: `<trainable>_<date_time>`.
        metric, mode: what is optimised, "min" or "max"; lists for several objectives.
        stop: dict of result key -> value (a trial ends at value or above), a function `(trial_id, result) -> bool`, a
            `Stopper`, or a list of stoppers.
        time_budget_s: seconds of driving, or a timedelta; then everything ends.
        config: search space and constants, nested as you like.
        resources_per_trial: dict such as `{"cpu": 2, "gpu": 0.5, "memory": "4G"}`, a `PlacementGroupFactory`, or a
            function of the config that returns one of them. Default: 1 CPU.
        num_samples: how often the space is sampled (a grid multiplies it); -1: until something else ends the sweep.
        storage_path: directory that holds experiments, or a URI such as `s3://bucket/sweeps` to which they are copied;
            None: `$SWEEP_STORAGE`, else `./sweep_results`.
        storage_filesystem: an fsspec file system; then `storage_path` is a path in it.
        search_alg, scheduler: objects, or names such as "tpe" and "asha"; None: random and grid search, FIFO.
        checkpoint_config: what is saved and kept.
        verbose: 0 prints nothing, 1 the live table, 2 results too; None: 1.
        progress_reporter: a callback that takes the place of the built-in display.
        log_to_file: True: what a trial prints goes to `stdout` and `stderr` in its directory; a name: both to that
            file; a pair of names. False: both to `output.log`.
        trial_name_creator: function of a trial that returns the name by which people see it.
        trial_dirname_creator: function of a trial that returns a name without separators; a link of that name to the
            trial's directory, which bears its id, is made in the experiment's.
        chdir_to_trial_dir: run each trial in its own directory.
        sync_config: how a URI is kept up to date.
        max_failures: failures a trial may have and still be started again; -1: unlimited.
        fail_fast: the first failed trial ends the sweep; "raise": its exception leaves `run`.
        failure_config: the same two, and more: which failures count, what becomes of those for lack of memory.
        trial_timeout_s: seconds that a trial may run, in all its attempts; then it is asked to stop, and killed if it
            does not.
        report_timeout_s: seconds that a report of a trial may take; then the stacks of its processes are written to its
            log, and it is killed.
        restore: a checkpoint's directory that every trial starts from.
        resume: True or "AUTO": continue the experiment `name` if it exists. `+ERRORED` also continues failed trials,
            `+RESTART_ERRORED` starts them anew, `+ERRORED_ONLY` and `+RESTART_ERRORED_ONLY` end unfinished ones.
        resume_config: the same as those suffixes, as an object.
        reuse_actors: keep a worker process for the next trial with the same request: faster, less isolated.
        raise_on_failed_trial: raise `TrialsFailed` at the end if some trial failed.
        callbacks: observers; the default loggers are added.
        max_concurrent_trials: how many trials may be open at a time, whatever the searcher; None or 0: as many as fit.
        seed: of searcher, scheduler and trials; None: random, and recorded.
        engine: "local" (processes), "inline" (this process, for pdb), or an `Engine`.
        nodes: the inventory; None: that of `sweep.init`, else this machine.
        start_method: "zygote" (fast), or "spawn" (for libraries that cannot be forked).
        preload: modules that trials import, imported once beforehand in addition to those found.
        env: environment variables for trials; the experiment keeps their names, and not their values.
        durability: "full"; "fast" may lose the last moments at a power cut.
        strict_metric: end the sweep early when no trial reports the metric: after three trials, or ten reports of one;
            and a trial that reports something else than a number under it is in ERROR.
        import_path: `file.py:function` by which the trainable can be found again; found by itself where possible.

    Raises:
        ConfigError, SpaceError, UnknownNameError, ResourceError, TrainableError, ExperimentError: an argument is wrong;
            nothing was started.
        MetricError, SearchError, SweepStalled: the sweep could not go on; it can be resumed.
        TrialsFailed: it is over and some trials failed.
    """
    given = dict(locals())
    end_module("sweep.run")
    refuse_nested()
    trainable, name_of_trainable = run_or_experiment, None
    if isinstance(trainable, (list, tuple)):
        trainable = _only_one(trainable)
    if isinstance(trainable, Experiment):
        return _run_experiment(trainable, given)
    if isinstance(trainable, str):
        name_of_trainable, trainable = trainable, registered(trainable)
    checkpoints = _checkpoint_config(checkpoint_config, deprecated)
    failures = _failure_config(
        failure_config,
        max_failures=max_failures,
        fail_fast=fail_fast,
        trial_timeout_s=trial_timeout_s,
        report_timeout_s=report_timeout_s,
    )
    request = Request(
        trainable=trainable,
        trainable_name=name_of_trainable,
        name=name,
        storage_path=storage_path,
        storage_filesystem=storage_filesystem,
        sync=sync_config or SyncConfig(),
        config=_as_dict(config),
        num_samples=num_samples,
        search_alg=search_alg,
        scheduler=scheduler,
        resources_per_trial=resources_per_trial,
        max_concurrent=max_concurrent_trials,
        resume=ResumeMode.parse(resume).with_config(resume_config),
        failures=failures,
        checkpoints=checkpoints,
        metric=metric,
        mode=mode,
        stop=stop,
        time_budget_s=time_budget_s,
        verbose=1 if verbose is None else int(verbose),
        reporter=progress_reporter,
        callbacks=tuple(callbacks or ()),
        seed=seed,
        engine=engine,
        nodes=tuple(nodes) if nodes is not None else None,
        engine_options={
            "reuse_actors": reuse_actors,
            "start_method": start_method,
            "preload": tuple(preload),
            "env": dict(env or {}),
        },
        is_chdir=chdir_to_trial_dir,
        log_to_file=log_to_file,
        durability=durability,
        is_metric_strict=strict_metric,
        import_path=import_path,
        start_from=restore,
        trial_name_creator=trial_name_creator,
        trial_dirname_creator=trial_dirname_creator,
        recipe=pack_recipe({key: value for key, value in _changed(given).items() if key not in _NOT_KEPT}),
    )
    analysis, was_interrupted = Launch(request).run()
    is_bare = str(failures.fail_fast).lower() == "raise"
    if not was_interrupted and (raise_on_failed_trial or is_bare):
        _raise_failed(analysis, is_bare=is_bare)
    return analysis


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
    found = _experiments(experiments)
    trials: list[TrialView] = []
    failed = []
    for experiment in found:
        analysis = run(
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
        trials += analysis.trials
        if any(trial.status == "ERROR" for trial in analysis.trials):
            failed.append(analysis)
    if failed and raise_on_failed_trial:
        _raise_failed(failed[0])
    return trials


def _experiments(given: Any) -> list[Experiment]:
    if isinstance(given, Mapping):
        found = [Experiment.from_json(name, spec) for name, spec in given.items()]
    else:
        found = list(given) if isinstance(given, (list, tuple)) else [given]
    for one in found:
        if not isinstance(one, Experiment):
            raise ConfigError(f"run_experiments was given {one!r:.100}; expected sweep.Experiment objects or a dict.")
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two experiments are called {name!r}; each needs a directory of its own.")
    return found


def _only_one(given: Sequence[Any]) -> Any:
    if len(given) == 1:
        return given[0]
    raise ConfigError(
        f"run was given a list of {len(given)} experiments; expected one. Use sweep.run_experiments([...]), which runs "
        "them one after another, or search over the trainable: config={'which': sweep.grid_search([...])}."
    )


def _run_experiment(experiment: Experiment, given: Mapping[str, Any]) -> ExperimentAnalysis:
    """Run an experiment with what `run` was given besides; the same thing from both sides is refused."""
    arguments = _changed(given)
    for key, value in experiment.arguments().items():
        if key in arguments:
            raise ConfigError(
                f"{key} was given twice: by run() and by the experiment {experiment.name!r}. Give it in one place."
            )
        arguments[key] = value
    return run(experiment.run, **arguments)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (bool, int, float, str, tuple)) and value == default)


def _changed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that differ from their defaults, the trainable apart."""
    parameters = inspect.signature(run).parameters
    changed = {
        name: value
        for name, value in given.items()
        if name not in ("run_or_experiment", "deprecated") and not _is_default(value, parameters[name].default)
    }
    return {**changed, **given["deprecated"]}


def _as_dict(config: Any) -> Any:
    to_dict = getattr(config, "to_dict", None)
    return to_dict() if to_dict is not None and not isinstance(config, Mapping) else config


def _checkpoint_config(given: CheckpointConfig | None, deprecated: Mapping[str, Any]) -> CheckpointConfig:
    """Return the config, also where it was given by the deprecated parameters that Tune still honours."""
    if not deprecated:
        return given or CheckpointConfig()
    fields = {_CHECKPOINT_FORMS[name]: value for name, value in deprecated.items() if value is not None}
    attribute = fields.get("checkpoint_score_attribute")
    if isinstance(attribute, str) and attribute.startswith("min-"):
        fields |= {"checkpoint_score_attribute": attribute.removeprefix("min-"), "checkpoint_score_order": "min"}
    shown = ", ".join(f"{name}={value!r}" for name, value in fields.items())
    if given is not None:
        raise ConfigError(
            f"{next(iter(deprecated))} and checkpoint_config were both given; put {shown} into the config."
        )
    warnings.warn(
        f"{', '.join(deprecated)}: deprecated; write checkpoint_config=sweep.CheckpointConfig({shown}).",
        DeprecationWarning,
        stacklevel=4,
    )
    return CheckpointConfig(**fields)


def _failure_config(given: FailureConfig | None, **own: Any) -> FailureConfig:
    """Return the config with what `run` itself was given; both may not say different things."""
    if given is None:
        return FailureConfig(**own)
    if not isinstance(given, FailureConfig):
        raise ConfigError(f"failure_config is {given!r:.100}; expected a sweep.FailureConfig.")
    default = FailureConfig()
    said = {name: value for name, value in own.items() if value != getattr(default, name)}
    for name, value in said.items():
        other = getattr(given, name)
        if other not in (value, getattr(default, name)):
            raise ConfigError(f"{name}={value!r} and failure_config, which says {other!r}, were both given; give one.")
    return replace(given, **said)


def _raise_failed(analysis: ExperimentAnalysis, *, is_bare: bool = False) -> None:
    """Raise for failed trials.

    Args:
        is_bare: raise the first one's own exception, when it could be kept.
    """
    failed = [trial for trial in analysis.trials if trial.status == "ERROR"]
    if not failed:
        return
    shown = "\n".join(f"  {trial.trial_id}: {trial.error}" for trial in failed[:5])
    more = f"\n  and {len(failed) - 5} more" if len(failed) > 5 else ""
    cause = failed[0].error
    own = cause.__cause__ if cause is not None else None
    if is_bare and own is not None:
        own.add_note(f"in trial {failed[0].trial_id}:\n{getattr(cause, 'traceback', '')}".rstrip())
        raise own
    raise TrialsFailed(
        f"{len(failed)} of {len(analysis.trials)} trials failed:\n{shown}{more}\n"
        f"Everything is kept in {analysis.experiment_path}; pass raise_on_failed_trial=False to get the analysis "
        f"instead."
    ) from cause
