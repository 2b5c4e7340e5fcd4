"""Log each trial as a run of MLflow, from the driver or from within the trial."""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from sweep.callbacks.loggers import required, step_of
from sweep.callbacks.tracking import TrackingCallback, numbers_of
from sweep.core.results import MOST_SECONDS, TrialResult, flatten
from sweep.core.trial import Trial
from sweep.core.values import as_float
from sweep.errors import ConfigError, refuse_unknown
from sweep.worker.session import get_context

_TRIAL_TAG = "sweep.trial_id"
_EXPERIMENT_TAG = "sweep.experiment"
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "paused": "SCHEDULED", "interrupted": "KILLED"}
_MOST = 100  # parameters in one call, by MLflow's own limit; of metrics it takes more


@refuse_unknown()
class MLflowLoggerCallback(TrackingCallback):
    """Log each trial as a run of MLflow; a resumed sweep goes on with its runs, which it finds by a tag.

    Numbers are logged, NaN and infinities too, by their flat names at the step `timesteps_total` or else
    `training_iteration`; the flat config as parameters. A parameter of a run never changes in MLflow: of a config that
    a scheduler changes the first value stays, or with `log_params_on_trial_end` the last is logged.

    Args:
        tracking_uri: where MLflow keeps the runs: a server, `sqlite:///...`, a directory; default
            `$MLFLOW_TRACKING_URI`, or what MLflow takes.
        experiment_name: MLflow's experiment, made when it is not there; default `$MLFLOW_EXPERIMENT_NAME`, else the
            name of the sweep's experiment.
        tags: of each run.
        tracking_token: for the server, instead of `$MLFLOW_TRACKING_TOKEN`.
        save_artifact: upload the trial's directory when the trial has ended, checkpoints and logs included.
        log_params_on_trial_end: log the config at the end.

    Raises:
        ConfigError: MLflow is not installed.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: Mapping[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        super().__init__()
        _require()
        self._tracking_uri = None if tracking_uri is None else str(tracking_uri)
        self._registry_uri = registry_uri
        self._experiment_name = experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        self._tags = {name: str(value) for name, value in (tags or {}).items()}
        self._token = tracking_token
        self._save_artifact = self.reads_log_files = save_artifact
        self._is_late = log_params_on_trial_end

    @cached_property
    def _client(self) -> Any:  # at first use, as the next: the sweep's start waits for no server
        if self._token is not None:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self._token
        return _require().MlflowClient(self._tracking_uri, self._registry_uri)

    @cached_property
    def _experiment_id(self) -> str:
        return _experiment_id(self._client, self._experiment_name or self.layout.root.name)

    def _begin(self, trial: Trial, run: Any | None) -> Any:
        if run is None:
            own = {_TRIAL_TAG: trial.id, _EXPERIMENT_TAG: self.layout.root.name}
            run = _find_run(self._client, self._experiment_id, own)
            if run is None:
                tags = {**self._tags, "trial_name": str(trial), **own}
                run = self._client.create_run(self._experiment_id, tags=tags, run_name=str(trial))
            else:
                self._client.update_run(run.info.run_id, status="RUNNING")
        if not self._is_late:
            self._log_params(trial, run)
        return run

    def _record(self, trial: Trial, run: Any, iteration: int, result: TrialResult) -> None:
        step = step_of(result, trial.count)
        stamp = as_float(result.get("timestamp"))
        milliseconds = int(1000 * (stamp if stamp is not None and 0 <= stamp < MOST_SECONDS else time.time()))
        metric = importlib.import_module("mlflow.entities").Metric
        numbers = numbers_of(result, ("pid", "timestamp", "done", "should_checkpoint"))
        self._send(run, "metrics", [metric(_key(name), value, milliseconds, step) for name, value in numbers])

    def _finish(self, trial: Trial, run: Any, outcome: str) -> None:
        if outcome in ("finished", "failed"):
            if self._is_late:
                self._log_params(trial, run)
            directory = self.layout.trial(trial.id)
            if self._save_artifact and directory.is_dir():
                self._client.log_artifacts(run.info.run_id, str(directory))
        self._client.set_terminated(run.info.run_id, status=_STATUS[outcome])

    def _log_params(self, trial: Trial, run: Any) -> None:
        """Log those of the config that the run does not have yet."""
        new = {name: str(value) for name, value in _new_params(trial.config, run.data.params).items()}
        param = importlib.import_module("mlflow.entities").Param
        self._send(run, "params", [param(name, value) for name, value in new.items()])
        run.data.params.update(new)

    def _send(self, run: Any, kind: str, items: list[Any]) -> None:
        for start in range(0, len(items), _MOST):
            self._client.log_batch(run.info.run_id, **{kind: items[start : start + _MOST]})


class _Nothing:
    """Stands in for MLflow in the other ranks: whatever is asked of it is there and does nothing."""

    def _same(self, *_: Any, **__: Any) -> _Nothing:
        return self

    __getattr__ = __call__ = __enter__ = _same

    def __exit__(self, *_: object) -> None:
        return


@refuse_unknown()
def setup_mlflow(
    config: Mapping[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: Mapping[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Start a run of MLflow in a trial and return the module `mlflow`, ready for `mlflow.log_metric` and `autolog`.

    A trial that is started again goes on with its run. Do not use `MLflowLoggerCallback` besides.

    Args:
        config: logged as the run's parameters, flat.
        experiment_id: MLflow's experiment; else `experiment_name`, `$MLFLOW_EXPERIMENT_NAME`, the name of the sweep's
            experiment, and "Default" outside a sweep.
        create_experiment_if_not_exists: make the experiment that was named. That of the sweep's own name
            is always made.
        run_name: default the trial's name.
        tags: of the run.
        rank_zero_only: in a group, ranks other than 0 get something on which every call does nothing.

    Raises:
        ConfigError: MLflow is not installed; the experiment that was named does not exist.
    """
    context = get_context()
    if rank_zero_only and context.get_world_rank():
        return _Nothing()
    mlflow = _require()
    if tracking_token is not None:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    if tracking_uri is not None:
        mlflow.set_tracking_uri(str(tracking_uri))
    if registry_uri is not None:
        mlflow.set_registry_uri(str(registry_uri))
    client = mlflow.MlflowClient()
    trial_id, own_name = context.get_trial_id(), context.get_experiment_name()
    if experiment_id is None:
        given = experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        name = given or own_name or "Default"
        if given is not None and not create_experiment_if_not_exists and client.get_experiment_by_name(name) is None:
            advice = "Make it, or pass create_experiment_if_not_exists=True."
            raise ConfigError(f"MLflow has no experiment {name!r} at {mlflow.get_tracking_uri()}. {advice}")
        experiment_id = _experiment_id(client, name, artifact_location)
    mlflow.set_experiment(experiment_id=experiment_id)
    own: dict[str, str] = {}
    found = None
    if trial_id is not None:
        rank = context.get_world_rank()
        own = {_TRIAL_TAG: f"{trial_id}-rank{rank}" if rank else trial_id, _EXPERIMENT_TAG: own_name or ""}
        found = _find_run(client, experiment_id, own)
    all_tags = {**{name: str(value) for name, value in (tags or {}).items()}, **own}
    if found is not None:
        mlflow.start_run(run_id=found.info.run_id)
        mlflow.set_tags(all_tags)
    else:
        mlflow.start_run(run_name=run_name or context.get_trial_name(), tags=all_tags)
    if params := _new_params(config or {}, found.data.params if found is not None else ()):
        mlflow.log_params(params)
    return mlflow


def _require() -> Any:
    return required("mlflow", "logging to MLflow", "mlflow-skinny")


def _experiment_id(client: Any, name: str, artifact_location: str | None = None) -> str:
    """Return the id of the experiment of this name, which is made when there is none."""
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifact_location))
        except Exception:  # another trial may have made it in this moment
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def _find_run(client: Any, experiment_id: str, tags: Mapping[str, str]) -> Any | None:
    """Return the latest run with these tags, or None."""
    text = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
    found = client.search_runs([experiment_id], filter_string=text, max_results=1)
    return found[0] if found else None


def _new_params(config: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    params = {_key(name): value for name, value in flatten(config).items()}
    return {name: value for name, value in params.items() if name not in known}


def _key(name: str) -> str:
    """Return a name in the characters that MLflow allows."""
    return re.sub(r"[^\w\-./ ]", "_", name)
