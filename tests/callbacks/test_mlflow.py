"""Runs of MLflow: what each trial's run is told, with a client that is played, and with the real one on SQLite."""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Any

import pytest
from callbacks.played import TRIAL, evolved, in_trial, play, ready, train

import sweep
from sweep.callbacks import mlflow as ours
from sweep.callbacks.mlflow import MLflowLoggerCallback, setup_mlflow
from sweep.core.results import TrialResult
from sweep.errors import ConfigError


class Client:
    """Keeps what MLflow's own would send."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: list[Any] = []
        self.batches: list[tuple[int, int]] = []
        self.statuses: list[tuple[str, str]] = []

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.experiments.get(name)
        return None if found is None else types.SimpleNamespace(experiment_id=found)

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        self.experiments[name] = str(len(self.experiments) + 1)
        return self.experiments[name]

    def create_run(self, experiment_id: str, tags: dict[str, str], run_name: str) -> Any:
        info = types.SimpleNamespace(run_id=f"run{len(self.runs)}", status="RUNNING", experiment_id=experiment_id)
        data = types.SimpleNamespace(params={}, metrics=[], tags=tags)
        self.runs.append(types.SimpleNamespace(info=info, data=data, name=run_name, artifacts=[]))
        return self.runs[-1]

    def search_runs(self, ids: list[str], filter_string: str, max_results: int) -> list[Any]:
        return [
            run
            for run in self.runs
            if run.info.experiment_id in ids
            and " and ".join(f"tags.`{n}` = '{v}'" for n, v in run.data.tags.items() if n.startswith("sweep."))
            == filter_string
        ][:max_results]

    def _run(self, run_id: str) -> Any:
        return self.runs[int(run_id[3:])]

    def update_run(self, run_id: str, status: str) -> None:
        self.statuses.append((run_id, status))
        self._run(run_id).info.status = status

    set_terminated = update_run

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        self.batches.append((len(metrics), len(params)))
        data = self._run(run_id).data
        for metric in metrics:
            data.metrics.append((metric.key, metric.value, metric.step))
        for param in params:
            assert param.key not in data.params, "a parameter cannot be logged twice"
            data.params[param.key] = param.value

    def log_artifacts(self, run_id: str, directory: str) -> None:
        self._run(run_id).artifacts.append(directory)


class Started:
    """What the module's own functions were told."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **given: self.calls.append((name, given or arguments[0]))


@pytest.fixture
def client(monkeypatch):
    """The client, with the library played."""

    def entity(*names: str) -> Any:
        return lambda *values: types.SimpleNamespace(**dict(zip(names, values, strict=True)))

    found = Client()
    started = Started(found)
    names = ("set_tracking_uri", "set_registry_uri", "set_experiment", "start_run", "set_tags", "log_params")
    told = {name: getattr(started, name) for name in names}
    client = {"MlflowClient": lambda *where: found, "started": started, "get_tracking_uri": lambda: "memory"}
    play(monkeypatch, "mlflow", "MLFLOW_EXPERIMENT_NAME MLFLOW_TRACKING_TOKEN", **client, **told)
    entities = {"Metric": entity("key", "value", "timestamp", "step"), "Param": entity("key", "value")}
    play(monkeypatch, "mlflow.entities", "", **entities)
    return found


@pytest.fixture
def logger(tmp_path):
    return lambda **given: ready(MLflowLoggerCallback(**given), tmp_path / "tuning")


def test_each_trial_is_a_run_with_its_config_and_its_numbers(client, logger):
    callback = logger(tags={"team": 3})
    callback.on_trial_start(TRIAL)
    callback.on_trial_result(
        TRIAL, TrialResult({"training_iteration": 2, "eval": {"acc": 0.5}, "x@y": math.nan, "s": "t"})
    )
    callback.on_trial_result(
        TRIAL, TrialResult({"training_iteration": 3, "timesteps_total": 70, "pid": 4, "timestamp": 9})
    )
    callback.on_trial_complete(TRIAL)
    callback.on_experiment_end([])
    (run,) = client.runs
    assert client.experiments == {"tuning": "1"}
    assert run.name == str(TRIAL)
    assert run.data.tags == {
        "team": "3",
        "trial_name": str(TRIAL),
        "sweep.trial_id": TRIAL.id,
        "sweep.experiment": "tuning",
    }
    assert run.data.params == {"lr": "0.1", "net/width": "16"}
    assert [(name, step) for name, _, step in run.data.metrics] == [
        ("training_iteration", 2),
        ("eval/acc", 2),
        ("x_y", 2),
        ("training_iteration", 70),
        ("timesteps_total", 70),
    ]
    assert math.isnan(run.data.metrics[2][1])
    assert run.info.status == "FINISHED"
    assert run.artifacts == []


def test_a_resumed_sweep_goes_on_with_its_runs(client, logger):
    first = logger(experiment_name="mine")
    first.on_trial_start(TRIAL)
    first.on_trial_start(evolved(id="abcde_00001"))
    first.on_experiment_end([TRIAL])
    assert [run.info.status for run in client.runs] == ["KILLED", "KILLED"]
    client.statuses.clear()
    # each trial has a thread of its own, so either may have begun first
    own = next(run.info.run_id for run in client.runs if run.data.tags["sweep.trial_id"] == TRIAL.id)
    second = logger(experiment_name="mine")
    second.on_trial_start(TRIAL)
    second.on_trial_error(TRIAL)
    second.on_experiment_end([])
    assert client.statuses == [(own, "RUNNING"), (own, "FAILED")]
    status = {run.data.tags["sweep.trial_id"]: run.info.status for run in client.runs}
    assert status == {"abcde_00000": "FAILED", "abcde_00001": "KILLED"}
    assert client.experiments == {"mine": "1"}


@pytest.mark.parametrize(
    ("is_late", "logged"), [(False, {"lr": "0.1", "net/width": "16"}), (True, {"lr": "0.2", "new": "1"})]
)
def test_of_a_config_that_changes_the_first_values_stay_or_the_last_are_logged(client, logger, is_late, logged):
    callback = logger(log_params_on_trial_end=is_late)
    callback.on_trial_start(TRIAL)
    changed = evolved(config={"lr": 0.2, "new": 1})
    callback.on_trial_start(changed)
    callback.on_trial_complete(changed)
    callback.on_experiment_end([])
    expected = logged if is_late else {**logged, "new": "1"}
    assert client.runs[0].data.params == expected


def test_what_is_large_is_sent_in_parts_that_mlflow_takes(client, logger):
    callback = logger()
    trial = evolved(config={f"p{n}": n for n in range(250)})
    callback.on_trial_start(trial)
    callback.on_trial_result(trial, TrialResult({f"m{n}": n for n in range(1200)}))
    callback.on_experiment_end([])
    assert client.batches == [(0, 100), (0, 100), (0, 50), *[(100, 0)] * 12]


@pytest.mark.parametrize(("end", "num"), [("on_trial_complete", 1), ("on_trial_error", 1), ("on_trial_pause", 0)])
def test_a_trials_directory_is_uploaded_when_it_has_ended(client, logger, tmp_path, end: str, num: int):
    directory = tmp_path / "tuning" / TRIAL.id
    directory.mkdir(parents=True)
    callback = logger(save_artifact=True)
    callback.on_trial_start(TRIAL)
    getattr(callback, end)(TRIAL)
    callback.on_experiment_end([])
    assert client.runs[0].artifacts == [str(directory)] * num


# --- within a trial ------------------------------------------------------------------------------------------------


TAGS = {"sweep.trial_id": TRIAL.id, "sweep.experiment": "tuning"}


def test_a_trial_starts_its_own_run_and_goes_on_with_it_when_it_is_started_again(client, monkeypatch):
    in_trial(monkeypatch, ours)
    module = setup_mlflow({"lr": 0.1}, "memory", tags={"team": "a"})
    assert module.started.calls == [
        ("set_tracking_uri", "memory"),
        ("set_experiment", {"experiment_id": "1"}),
        ("start_run", {"run_name": "train_0", "tags": {"team": "a", **TAGS}}),
        ("log_params", {"lr": 0.1}),
    ]
    module.started.calls.clear()
    client.create_run("1", dict(TAGS), "train_0")
    client.runs[0].data.params["lr"] = "0.1"
    setup_mlflow({"lr": 0.1, "new": 1})
    assert module.started.calls == [
        ("set_experiment", {"experiment_id": "1"}),
        ("start_run", {"run_id": "run0"}),
        ("set_tags", TAGS),
        ("log_params", {"new": 1}),
    ]


def test_an_experiment_that_was_named_must_exist_or_be_asked_for(client, monkeypatch):
    in_trial(monkeypatch, ours)
    with pytest.raises(ConfigError, match=r"no experiment 'mine' at memory.*create_experiment_if_not_exists=True"):
        setup_mlflow(experiment_name="mine")
    setup_mlflow(experiment_name="mine", create_experiment_if_not_exists=True)
    assert client.experiments == {"mine": "1"}


def test_in_other_ranks_every_call_does_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    in_trial(monkeypatch, ours, rank=1)
    module = setup_mlflow({"lr": 0.1})
    with module.start_run(nested=True):
        module.log_metric("loss", 0.1)
    assert client.experiments == {}


# --- the real library ----------------------------------------------------------------------------------------------


def runs_of(uri: str, experiment: str) -> list[Any]:
    import mlflow

    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    runs = client.search_runs([found.experiment_id])
    return sorted(runs, key=lambda run: run.data.tags["sweep.trial_id"])


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_two_trials_are_two_runs_and_a_retry_goes_on_with_its_own(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow-skinny, which is not installed")
    uri = f"sqlite:///{tmp_path}/runs.db"
    given: dict[str, Any] = {"storage_path": tmp_path, "verbose": 0}
    callback = MLflowLoggerCallback(uri, experiment_name="digits")
    analysis = sweep.run(train, config={"lr": sweep.grid_search([0.1, 0.2])}, callbacks=[callback], **given)
    first, second = runs_of(uri, "digits")
    assert [run.data.tags["sweep.trial_id"] for run in (first, second)] == [t.trial_id for t in analysis.trials]
    assert [run.info.status for run in (first, second)] == ["FINISHED", "FINISHED"]
    assert first.data.params == {"lr": "0.1"}
    assert first.data.metrics["loss"] == pytest.approx(0.1 / 3)
    assert math.isnan(first.data.metrics["odd"])
    history = mlflow.MlflowClient(uri).get_metric_history(first.info.run_id, "loss")
    assert [metric.step for metric in history] == [1, 2, 3]

    def fail_once(config: Any) -> None:
        module = setup_mlflow(config, uri, experiment_name="own", create_experiment_if_not_exists=True)
        attempt = sweep.get_context().get_attempt()
        module.log_metric("loss", 1.0 / attempt, step=attempt)
        assert attempt == 2
        sweep.report(loss=1.0 / attempt)
        module.end_run()

    sweep.run(fail_once, config={"lr": 0.1}, max_failures=1, **given)
    (run,) = runs_of(uri, "own")
    assert (run.info.status, run.data.params, run.data.metrics) == ("FINISHED", {"lr": "0.1"}, {"loss": 0.5})
