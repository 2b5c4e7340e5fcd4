"""The Python API: `run` and `Tuner`, with the parameters that Tune's users know."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from searchers.base import Searcher
from sweep.arguments import Request, ResumeMode
from sweep.callbacks.base import Callback
from sweep.config import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from sweep.core.resources import Node
from sweep.engines.base import Engine
from sweep.errors import ConfigError, SweepError, TrialsFailed, nearest
from sweep.launch import Launch
from sweep.schedulers import Scheduler

if TYPE_CHECKING:
    from sweep.store.analysis import ExperimentAnalysis, ResultGrid

__all__ = ["Tuner", "run"]


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
    search_alg: Searcher | str | None = None,
    scheduler: Scheduler | str | None = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: int | None = None,
    progress_reporter: Callback | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    resume: bool | str | None = None,
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
    **unknown: Any,
) -> ExperimentAnalysis:
    """Run a sweep and return its analysis.

    Args:
        run_or_experiment: the trainable: a function of one config that calls `sweep.report`, or a
            `sweep.Trainable` class.
        name: directory of the experiment; None: `<trainable>_<date_time>`.
        metric, mode: what is optimised, "min" or "max"; lists for several objectives.
        stop: dict of result key -> value (a trial ends at value or above), a function `(trial_id, result) -> bool`, a
            `Stopper`, or a list of stoppers.
        time_budget_s: seconds of driving, or a timedelta; then everything ends.
        config: search space and constants, nested as you like.
        resources_per_trial: dict such as `{"cpu": 2, "gpu": 0.5, "memory": "4G"}`, a `PlacementGroupFactory`, or a
            function of the config that returns one of them. Default: 1 CPU.
        num_samples: how often the space is sampled (a grid multiplies it); -1: until something else ends the sweep.
        storage_path: directory that holds experiments; None: `$SWEEP_STORAGE`, else `./sweep_results`.
        search_alg, scheduler: objects, or names such as "tpe" and "asha"; None: random and grid search, FIFO.
        checkpoint_config: what is saved and kept.
        verbose: 0 prints nothing, 1 the live table, 2 results too; None: 1.
        progress_reporter: a callback that takes the place of the built-in display.
        max_failures: failures a trial may have and still be started again; -1: unlimited.
        fail_fast: the first failed trial ends the sweep; "raise": its exception leaves `run`.
        resume: True or "AUTO": continue the experiment `name` if it exists. `+ERRORED` also continues failed trials,
            `+RESTART_ERRORED` starts them anew, `+ERRORED_ONLY` and `+RESTART_ERRORED_ONLY` end unfinished ones.
        reuse_actors: keep a worker process for the next trial with the same request: faster, less isolated.
        raise_on_failed_trial: raise `TrialsFailed` at the end if some trial failed.
        callbacks: observers; the default loggers are added.
        max_concurrent_trials: how many trials may be open at a time, whatever the searcher; None or 0: as many as fit.
        seed: of searcher, scheduler and trials; None: random, and recorded.
        engine: "local" (processes), "inline" (this process, for pdb), or an `Engine`.
        nodes: the inventory; None: that of `sweep.init`, else this machine.
        start_method: "zygote" (fast), or "spawn" (for libraries that cannot be forked).
        preload: modules that trials import, imported once beforehand in addition to those found.
        env: environment variables for trials.
        durability: "full"; "fast" may lose the last moments at a power cut.
        strict_metric: a first report without the metric ends the sweep.
        import_path: `file.py:function` by which the trainable can be found again; found by itself where possible.

    Raises:
        ConfigError, SpaceError, UnknownNameError, ResourceError, TrainableError, ExperimentError: an argument is wrong;
            nothing was started.
        MetricError, SearchError, SweepStalled: the sweep could not go on; it can be resumed.
        TrialsFailed: it is over and some trials failed.
    """
    if unknown:
        _refuse_unknown(unknown)
    request = Request(
        trainable=run_or_experiment,
        name=name,
        storage_path=storage_path,
        config=config,
        num_samples=num_samples,
        search_alg=search_alg,
        scheduler=scheduler,
        resources_per_trial=resources_per_trial,
        max_concurrent=max_concurrent_trials,
        resume=ResumeMode.parse(resume),
        failures=FailureConfig(max_failures, fail_fast),
        checkpoints=checkpoint_config or CheckpointConfig(),
        metric=metric,
        mode=mode,
        stop=stop,
        time_budget_s=time_budget_s,
        verbose=1 if verbose is None else verbose,
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
        durability=durability,
        is_metric_strict=strict_metric,
        import_path=import_path,
    )
    analysis, was_interrupted = Launch(request).run()
    if not was_interrupted and (raise_on_failed_trial or str(fail_fast).lower() == "raise"):
        _raise_failed(analysis)
    return analysis


class Tuner:
    """Run a sweep described by configs; `fit` returns a `ResultGrid` and does not raise for failed trials.

    Args:
        trainable: as for `run`.
        param_space: search space and constants.
        tune_config, run_config: what is searched and how; where it lives.
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        resources_per_trial: Any = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            known = ["param_space", "tune_config", "run_config", "resources_per_trial"]
            raise ConfigError(f"Tuner has no parameter {next(iter(unknown))!r}. {nearest(next(iter(unknown)), known)}")
        self._space = param_space
        self._tune = tune_config or TuneConfig()
        own = getattr(trainable, "run_config", None)  # of a trainer
        self._run = run_config or (own if isinstance(own, RunConfig) else RunConfig())
        self._trainable = _with_hang_limit(trainable, self._run.failure_config)
        self._resources = resources_per_trial
        self._resume: bool | str = False
        self._results: ResultGrid | None = None

    def fit(self) -> ResultGrid:
        """Run the sweep to its end."""
        from sweep.store.analysis import ResultGrid

        failures = self._run.failure_config or FailureConfig()
        analysis = run(
            self._trainable,
            name=self._run.name,
            metric=self._tune.metric,
            mode=self._tune.mode,
            stop=self._run.stop,
            time_budget_s=self._tune.time_budget_s,
            config=self._space,
            resources_per_trial=self._resources,
            num_samples=self._tune.num_samples,
            storage_path=self._run.storage_path,
            search_alg=self._tune.search_alg,
            scheduler=self._tune.scheduler,
            checkpoint_config=self._run.checkpoint_config,
            verbose=self._run.verbose,
            progress_reporter=self._run.progress_reporter,
            max_failures=failures.max_failures,
            fail_fast=failures.fail_fast,
            resume=self._resume,
            reuse_actors=self._tune.reuse_actors,
            raise_on_failed_trial=False,
            callbacks=self._run.callbacks,
            env=self._run.env_vars,
            max_concurrent_trials=self._tune.max_concurrent_trials,
            seed=self._tune.seed,
        )
        self._results = ResultGrid(analysis)
        return self._results

    def get_results(self) -> ResultGrid:
        """Return the results of `fit`.

        Raises:
            SweepError: nothing was run yet.
        """
        if self._results is None:
            raise SweepError("nothing was run yet; call fit() first.")
        return self._results


def _with_hang_limit(trainable: Any, failures: FailureConfig | None) -> Any:
    """Return a trainer with the hang limit of the run, which is for its groups; others cannot have one."""
    if failures is None or failures.hang_timeout_s is None:
        return trainable
    own = getattr(trainable, "run_config", None)
    if not isinstance(own, RunConfig):
        raise ConfigError("hang_timeout_s is for the workers of training groups; leave it out, or pass a trainer.")
    limited = copy.copy(trainable)
    limited.run_config = replace(own, failure_config=failures)
    return limited


def _refuse_unknown(unknown: Mapping[str, Any]) -> None:
    known = [name for name, p in inspect.signature(run).parameters.items() if p.kind is not p.VAR_KEYWORD]
    first = next(iter(unknown))
    raise ConfigError(f"run has no parameter {first!r}. {nearest(first, known)}")


def _raise_failed(analysis: ExperimentAnalysis) -> None:
    failed = [trial for trial in analysis.trials if trial.status == "ERROR"]
    if not failed:
        return
    shown = "\n".join(f"  {trial.trial_id}: {trial.error}" for trial in failed[:5])
    more = f"\n  and {len(failed) - 5} more" if len(failed) > 5 else ""
    cause = failed[0].error
    raise TrialsFailed(
        f"{len(failed)} of {len(analysis.trials)} trials failed:\n{shown}{more}\n"
        f"Everything is kept in {analysis.experiment_path}; pass raise_on_failed_trial=False to get the analysis "
        f"instead."
    ) from cause
