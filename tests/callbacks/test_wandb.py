"""Runs of Weights & Biases: what each trial's run is told, with the library played, and with the real one offline."""

from __future__ import annotations

import importlib.machinery
import math
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.callbacks import wandb as ours
from sweep.callbacks.wandb import WandbLoggerCallback, setup_wandb
from sweep.core.plan import Plan
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef, Status, Trial, evolve
from sweep.errors import ConfigError

TRIAL = Trial("abcde_00000", {"lr": 0.1, "net": {"width": 16}}, Resources(), Status.RUNNING, attempt=1)


class Run:
    """A run as the library hands it out."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.rows: list[dict[str, Any]] = []
        self.artifacts: list[Any] = []
        self.exit_code: int | None = None
        self.x_axis: Any = None
        self.config = types.SimpleNamespace(update=self._update)

    def _update(self, values: dict[str, Any], allow_val_change: bool) -> None:
        assert allow_val_change
        self.options["config"] = values

    def define_metric(self, name: str, step_metric: str) -> None:
        self.x_axis = name, step_metric

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def log_artifact(self, artifact: Any) -> None:
        self.artifacts.append(artifact)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


class Artifact:
    def __init__(self, name: str, type: str) -> None:
        self.name, self.type = name, type

    def add_dir(self, path: str) -> None:
        self.files = os.listdir(path)


class Settings:
    model_fields = {"finish_timeout": None, "silent": None, "console": None}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that were opened, with the library played; somebody is logged in."""
    opened: list[Run] = []

    def init(**options: Any) -> Run:
        opened.append(Run(options))
        return opened[-1]

    played = types.ModuleType("wandb")
    played.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    vars(played).update(init=init, Artifact=Artifact, Settings=Settings, login=lambda prompt, verify: True)
    monkeypatch.setitem(sys.modules, "wandb", played)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT_NAME", "WANDB_GROUP_NAME"):
        monkeypatch.setenv(name, "")  # and what is set meanwhile is taken back
        monkeypatch.delenv(name)
    return opened


def ready(root: Path, *arguments: Any, **given: Any) -> WandbLoggerCallback:
    callback = WandbLoggerCallback(*arguments, **given)
    callback.setup(experiment_dir=str(root), plan=Plan(), num_trials=2)
    return callback


def test_each_trial_is_a_run_of_its_own_beside_others(runs: list[Run], tmp_path: Path) -> None:
    callback = ready(tmp_path / "tuning", "digits", tags=["first"])
    callback.on_trial_start(TRIAL)
    callback.on_trial_result(
        TRIAL, TrialResult({"training_iteration": 1, "loss": math.inf, "eval": {"acc": 1}, "pid": 3})
    )
    callback.on_trial_complete(TRIAL)
    callback.on_experiment_end([])
    (run,) = runs
    directory = tmp_path / "tuning" / TRIAL.id
    assert run.options == {
        "project": "digits",
        "group": "tuning",
        "id": TRIAL.id,
        "name": TRIAL.id,
        "dir": str(directory),
        "config": {"lr": 0.1, "net": {"width": 16}},
        "reinit": "create_new",
        "resume": "allow",
        "tags": ["first"],
        "settings": {"finish_timeout": 120.0, "silent": True, "console": "off"},
    }
    assert directory.is_dir()
    assert run.x_axis == ("*", "training_iteration")
    assert run.rows == [{"training_iteration": 1.0, "loss": math.inf, "eval/acc": 1.0}]
    assert run.exit_code == 0


def test_what_the_user_gives_to_init_wins_and_offline_runs_are_not_resumed(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_GROUP_NAME", "of the environment")
    callback = ready(tmp_path, group="g", mode="offline", name="mine", settings={"silent": False}, upload_timeout=7)
    callback.on_trial_start(TRIAL)
    callback.on_experiment_end([TRIAL])
    (run,) = runs
    assert (run.options["name"], run.options["group"], run.options["mode"]) == ("mine", "g", "offline")
    assert run.options["settings"] == {"finish_timeout": 7.0, "silent": False, "console": "off"}
    assert "resume" not in run.options
    assert "project" not in run.options
    assert run.exit_code == 1  # the sweep was interrupted
    monkeypatch.setenv("WANDB_PROJECT_NAME", "p")
    callback = ready(tmp_path)
    callback.on_trial_start(TRIAL)
    callback.on_experiment_end([])
    assert (runs[1].options["project"], runs[1].options["group"]) == ("p", "of the environment")


def test_another_attempt_goes_on_in_its_run_with_the_config_that_it_has_now(runs: list[Run], tmp_path: Path) -> None:
    callback = ready(tmp_path)
    callback.on_trial_start(TRIAL)
    callback.on_trial_recover(TRIAL)
    callback.on_trial_start(evolve(TRIAL, config={"lr": 0.2, "cls": Path}))
    callback.on_trial_error(TRIAL)
    callback.on_experiment_end([])
    (run,) = runs
    assert run.options["config"] == {"lr": 0.2, "cls": str(Path)}
    assert run.exit_code == 1


def test_a_paused_trial_comes_back_to_the_run_of_the_same_id(runs: list[Run], tmp_path: Path) -> None:
    callback = ready(tmp_path)
    callback.on_trial_start(TRIAL)
    callback.on_trial_pause(TRIAL)
    callback.on_trial_start(TRIAL)
    callback.on_trial_complete(TRIAL)
    callback.on_experiment_end([])
    assert [(run.options["id"], run.options["resume"], run.exit_code) for run in runs] == [(TRIAL.id, "allow", 0)] * 2


def test_metrics_are_left_out_and_the_config_is_added_when_that_is_asked_for(runs: list[Run], tmp_path: Path) -> None:
    callback = ready(tmp_path, excludes=["eval", "config/lr"], log_config=True)
    callback.on_trial_start(TRIAL)
    callback.on_trial_result(
        TRIAL, TrialResult({"training_iteration": 2, "loss": 0.5, "eval": {"acc": 1}, "evaluated": 3})
    )
    callback.on_experiment_end([])
    assert runs[0].rows == [{"training_iteration": 2.0, "loss": 0.5, "evaluated": 3.0, "config/net/width": 16.0}]
    with pytest.raises(ConfigError, match=r"excludes='eval' is a text"):
        WandbLoggerCallback(excludes="eval")


@pytest.mark.parametrize(
    ("given", "num"), [({}, 0), ({"upload_checkpoints": True}, 1), ({"save_checkpoints": True}, 1)]
)
def test_checkpoints_are_uploaded_when_that_is_asked_for(runs: list[Run], tmp_path: Path, given: Any, num: int) -> None:
    stored = tmp_path / TRIAL.id / "checkpoint_000001"
    stored.mkdir(parents=True)
    (stored / "weights").write_text("w")
    callback = ready(tmp_path, **given)
    callback.on_trial_start(TRIAL)
    callback.on_trial_save(TRIAL)  # without one
    callback.on_trial_save(evolve(TRIAL, checkpoint=CheckpointRef(f"{TRIAL.id}/checkpoint_000001")))
    callback.on_trial_save(evolve(TRIAL, checkpoint=CheckpointRef(f"{TRIAL.id}/deleted_meanwhile")))
    callback.on_experiment_end([])
    found = [(artifact.name, artifact.type, artifact.files) for artifact in runs[0].artifacts]
    assert found == [(f"checkpoint_{TRIAL.id}", "model", ["weights"])] * num


def test_a_key_reaches_the_library_and_its_absence_is_said_before_the_first_trial(runs, tmp_path, monkeypatch):
    ready(tmp_path, api_key="secret")
    assert os.environ["WANDB_API_KEY"] == "secret"
    monkeypatch.setattr(sys.modules["wandb"], "login", lambda prompt, verify: False)
    with pytest.raises(ConfigError, match=r"no key for Weights & Biases.*mode='offline'"):
        ready(tmp_path)
    ready(tmp_path, mode="offline")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    ready(tmp_path)


def test_a_key_is_given_once_as_a_text_or_a_file(runs: list[Run], tmp_path: Path) -> None:
    file, empty = tmp_path / "key", tmp_path / "empty"
    file.write_text("  secret\n")
    empty.write_text("\n")
    setup_wandb(api_key_file=str(file))
    assert os.environ["WANDB_API_KEY"] == "secret"
    with pytest.raises(ConfigError, match="api_key and api_key_file were both given"):
        setup_wandb(api_key="k", api_key_file=str(file))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        WandbLoggerCallback(api_key_file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="is empty"):
        WandbLoggerCallback(api_key_file=str(empty))


# --- within a trial ------------------------------------------------------------------------------------------------


class Context:
    """Of a rank of a trial."""

    def __init__(self, home: Path, rank: int = 0) -> None:
        self.home, self.rank = home, rank

    def get_trial_id(self) -> str:
        return TRIAL.id

    def get_trial_name(self) -> str:
        return f"train_{TRIAL.id}"

    def get_trial_dir(self) -> str:
        return str(self.home)

    def get_experiment_name(self) -> str:
        return "tuning"

    def get_world_rank(self) -> int:
        return self.rank


def test_a_trial_opens_its_own_run(runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "get_context", lambda: Context(tmp_path / "trial"))
    run = setup_wandb({"lr": 0.1}, project="digits", group="mine")
    assert run.options == {
        "id": TRIAL.id,
        "name": f"train_{TRIAL.id}",
        "group": "mine",
        "project": "digits",
        "dir": str(tmp_path / "trial"),
        "config": {"lr": 0.1},
        "resume": "allow",
    }


def test_the_run_takes_tunes_names_of_its_id_and_name(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "get_context", lambda: Context(tmp_path))
    options = setup_wandb({}, trial_id="7", trial_name="mine", group="7").options
    assert (options["id"], options["name"], options["group"]) == ("7", "mine", "7")
    assert not {"trial_id", "trial_name"} & set(options)


def test_other_ranks_get_a_run_that_does_nothing_or_one_of_their_own(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(ours, "get_context", lambda: Context(tmp_path, rank=1))
    assert setup_wandb().options == {"mode": "disabled"}
    own = setup_wandb(rank_zero_only=False).options
    assert (own["id"], own["name"]) == (f"{TRIAL.id}-rank1", f"train_{TRIAL.id}-rank1")


def test_outside_a_sweep_a_run_is_opened_as_it_was_asked_for(runs: list[Run]) -> None:
    assert setup_wandb({"lr": 0.1}, project="p").options == {"project": "p", "config": {"lr": 0.1}}


# --- the real library ----------------------------------------------------------------------------------------------


def train(config: Any) -> None:
    for step in range(3):
        sweep.report(loss=config["lr"] / (step + 1), odd=math.nan)


def train_with_own_run(config: Any) -> None:
    run = setup_wandb(config, mode="offline")
    run.log({"loss": config["lr"]})
    sweep.report(loss=config["lr"], run=run.id)
    run.finish()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_two_trials_leave_an_offline_run_each(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs wandb, which is not installed")
    analysis = sweep.run(
        train,
        config={"lr": sweep.grid_search([0.1, 0.2])},
        callbacks=[WandbLoggerCallback("digits", mode="offline")],
        storage_path=tmp_path,
        verbose=0,
    )
    assert [trial.last_result["loss"] for trial in analysis.trials] == pytest.approx([0.1 / 3, 0.2 / 3])
    for trial in analysis.trials:
        (record,) = Path(trial.path).glob("wandb/offline-run-*/*.wandb")
        assert record.name == f"run-{trial.trial_id}.wandb"
        content = record.read_bytes()
        assert b"digits" in content
        assert content.count(b"time_this_iter_s") >= 3


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_trial_opens_a_run_under_its_own_id(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs wandb, which is not installed")
    analysis = sweep.run(train_with_own_run, config={"lr": 0.1}, storage_path=tmp_path, verbose=0)
    (trial,) = analysis.trials
    assert trial.last_result["run"] == trial.trial_id
    assert list(Path(trial.path).glob(f"wandb/offline-run-*/run-{trial.trial_id}.wandb"))
