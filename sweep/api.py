"""The Python API: `run`, with the parameters that Tune's users know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from searchers.base import Searcher
from sweep.callbacks.base import Callback
from sweep.core.config import CheckpointConfig, FailureConfig, ResumeConfig, SyncConfig
from sweep.core.resources import Node
from sweep.engines.base import Engine, EngineFactory
from sweep.errors import ConfigError, SweepInterrupted, TrialsFailed, refuse_unknown
from sweep.launch.execute import execute
from sweep.launch.spec import FORMER_FORMS, changed
from sweep.schedulers import Scheduler

if TYPE_CHECKING:
    from sweep.results.analysis import ExperimentAnalysis


# Parameters that Tune once had, and what takes their place.
_FORMER = {
    "upload_dir": "Give the URI as storage_path.",
    "sync_to_driver": "Everything is written in place; leave it out.",
    "loggers": "Pass them as callbacks.",
    "queue_trials": "Trials always wait for their resources; leave it out.",
    "trial_executor": "Choose where trials run with engine='local', 'inline' or 'ray'.",
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


@refuse_unknown(_FORMER | _ELSEWHERE, unlisted=FORMER_FORMS)
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
    chdir_to_trial_dir: bool | None = None,
    sync_config: SyncConfig | None = None,
    max_failures: int = 0,
    max_identical_failures: int | None = None,
    fail_fast: bool | str = False,
    failure_config: FailureConfig | None = None,
    trial_timeout_s: float | timedelta | None = None,
    report_timeout_s: float | timedelta | None = None,
    restore: str | os.PathLike[str] | None = None,
    warm_start: Any = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool | None = None,
    on_interrupt: str = "raise",
    callbacks: Sequence[Callback] | None = None,
    max_concurrent_trials: int | None = None,
    seed: int | None = None,
    engine: str | Engine | EngineFactory | None = None,
    nodes: Sequence[Node] | None = None,
    start_method: str = "forkserver",
    preload: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    durability: str = "normal",
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
        stop: dict of result key -> value (a trial ends at value or above; True and False end it when they are
            reported), a function `(trial_id, result) -> bool`, a `Stopper`, or a list of stoppers.
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
            trial's directory, which bears its id, is made in the experiment's. One of more than 240 bytes is shortened,
            with a hash.
        chdir_to_trial_dir: run each trial in its own directory. None: in the caller's; of what is called through
            `sweep.tune`, as in Tune, in its own unless the environment has RAY_CHDIR_TO_TRIAL_DIR=0.
        sync_config: how a URI is kept up to date.
        max_failures: failures a trial may have and still be started again; -1: unlimited.
        max_identical_failures: so many trials that fail alike before any trial has reported end the sweep, and it can
            be resumed; None: three times as many as run at a time, at least five; -1: no limit.
        fail_fast: the first failed trial ends the sweep; "raise": its exception leaves `run`.
        failure_config: the same two, and more: which failures count, what becomes of those for lack of memory.
        trial_timeout_s: seconds that a trial may run, in all its attempts; then it is asked to stop, and killed if it
            does not.
        report_timeout_s: seconds that a report of a trial may take; then the stacks of its processes are written to its
            log, and it is killed.
        restore: a checkpoint's directory that every trial starts from.
        warm_start: a former experiment (its directory, URI, analysis or results), a study of Optuna, or pairs of a
            config and its result: the searcher learns from it before its first suggestion. It is kept with the record,
            and a run that is continued goes on from that.
        resume: True or "AUTO": continue the experiment `name` if it exists. `+ERRORED` also continues failed trials,
            `+RESTART_ERRORED` starts them anew, `+ERRORED_ONLY` and `+RESTART_ERRORED_ONLY` end unfinished ones.
        resume_config: the same as those suffixes, as an object.
        reuse_actors: keep a worker process for the next trial with the same request: faster, less isolated.
        raise_on_failed_trial: raise `TrialsFailed`, which has the analysis, at the end if some trial failed; None: only
            warn in a notebook, so that a cell has its analysis, and raise elsewhere.
        on_interrupt: "raise": Ctrl-C, SIGTERM and their like stop this sweep in order and raise `SweepInterrupted`, so
            that a script does not go on to its next one. "return": as in Tune, return the analysis, whose `interrupted`
            is true.
        callbacks: observers; the default loggers are added.
        max_concurrent_trials: how many trials may be open at a time, whatever the searcher; None or 0: as many as fit.
        seed: of searcher, scheduler and trials; None: random, and recorded.
        engine: "local" (processes), "inline" (this process, for pdb), "ray" (the nodes of a cluster of Ray), an
            `Engine`, or a function that takes an `EngineContext` and returns one. None: "local", or what `sweep.init`
            has said: "ray" after `sweep.init(engine="ray")`, "inline" after `sweep.init(local_mode=True)`.
        nodes: the inventory; None: that of `sweep.init`, else this machine.
        start_method: "forkserver" (fast), or "spawn" (for libraries that cannot be forked).
        preload: modules that trials import, imported once beforehand in addition to those found.
        env: environment variables for trials; the experiment keeps their names, and not their values.
        durability: what a power cut may take: the last second ("normal"), or nothing ("full"). A kill takes nothing of
            what was reported.
        strict_metric: end the sweep early when no trial reports the metric: after three trials, or ten reports of one;
            and a trial that reports something else than a number under it is in ERROR.
        import_path: `file.py:function` by which the trainable can be found again; found by itself where possible.

    Raises:
        ConfigError, SpaceError, UnknownNameError, ResourceError, TrainableError, ExperimentError: an argument is wrong;
            nothing was started.
        MetricError, SearchError, SweepStalled: the sweep could not go on; it can be resumed.
        TrialsFailed: it is over and some trials failed; or all began to fail alike (`max_identical_failures`).
        SweepInterrupted: it was interrupted, and can be resumed; a `KeyboardInterrupt` or a `SystemExit`.
    """
    __tracebackhide__ = True
    arguments = dict(locals())
    del arguments["__tracebackhide__"]
    del arguments["run_or_experiment"], arguments["deprecated"]
    arguments |= deprecated
    if isinstance(run_or_experiment, (list, tuple)):
        run_or_experiment = _only_one(run_or_experiment)
    if hasattr(run_or_experiment, "__sweep_run__"):  # an Experiment: it says what is run, and how
        run_or_experiment, arguments = run_or_experiment.__sweep_run__(changed(arguments))
    try:
        return execute(run_or_experiment, arguments)
    except (TrialsFailed, SweepInterrupted) as error:  # how it came here says nothing of them
        raise error.with_traceback(None) from error.__cause__


def _only_one(given: Sequence[Any]) -> Any:
    if len(given) == 1:
        return given[0]
    raise ConfigError(
        f"run was given a list of {len(given)} experiments; expected one. Use sweep.run_experiments([...]), which runs "
        "them one after another, or search over the trainable: config={'which': sweep.grid_search([...])}."
    )
