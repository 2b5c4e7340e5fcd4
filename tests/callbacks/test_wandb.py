"""Runs of Weights & Biases: what each trial's run is told, with the library played, and with the real one offline."""

from __future__ import annotations

import math
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from callbacks.played import TRIAL, evolved, in_trial, play, ready, train

import sweep
from sweep.callbacks import wandb as ours
from sweep.callbacks.wandb import WandbLoggerCallback, setup_wandb
from sweep.core.results import TrialResult
from sweep.core.trial import CheckpointRef
from sweep.errors import ConfigError


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
def runs(monkeypatch):
    """The runs that were opened, with the library played; somebody is logged in."""
    opened: list[Run] = []

    def init(**options: Any) -> Run:
        opened.append(Run(options))
        return opened[-1]

    played = {"init": init, "Artifact": Artifact, "Settings": Settings, "login": lambda prompt, verify: True}
    play(monkeypatch, "wandb", "WANDB_API_KEY WANDB_MODE WANDB_PROJECT_NAME WANDB_GROUP_NAME", **played)
    return opened


@pytest.fixture
def logger(tmp_path):
    return lambda *arguments, **given: ready(WandbLoggerCallback(*arguments, **given), tmp_path / "tuning")


def test_each_trial_is_a_run_of_its_own_beside_others(runs, logger, tmp_path):
    callback = logger("digits", tags=["first"])
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
        "name": str(TRIAL),
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


def test_what_the_user_gives_to_init_wins_and_offline_runs_are_not_resumed(runs, logger, monkeypatch):
    monkeypatch.setenv("WANDB_GROUP_NAME", "of the environment")
    callback = logger(group="g", mode="offline", name="mine", settings={"silent": False}, upload_timeout=7)
    callback.on_trial_start(TRIAL)
    callback.on_experiment_end([TRIAL])
    (run,) = runs
    assert (run.options["name"], run.options["group"], run.options["mode"]) == ("mine", "g", "offline")
    assert run.options["settings"] == {"finish_timeout": 7.0, "silent": False, "console": "off"}
    assert "resume" not in run.options
    assert "project" not in run.options
    assert run.exit_code == 1  # the sweep was interrupted
    monkeypatch.setenv("WANDB_PROJECT_NAME", "p")
    callback = logger()
    callback.on_trial_start(TRIAL)
    callback.on_experiment_end([])
    assert (runs[1].options["project"], runs[1].options["group"]) == ("p", "of the environment")


def test_another_attempt_goes_on_in_its_run_with_the_config_that_it_has_now(runs, logger):
    callback = logger()
    callback.on_trial_start(TRIAL)
    callback.on_trial_recover(TRIAL)
    callback.on_trial_start(evolved(config={"lr": 0.2, "cls": Path}))
    callback.on_trial_pause(TRIAL)
    callback.on_trial_start(TRIAL)
    callback.on_trial_error(TRIAL)
    callback.on_experiment_end([])
    shown = [(run.options["id"], run.options["resume"], run.exit_code) for run in runs]
    assert shown == [(TRIAL.id, "allow", 0), (TRIAL.id, "allow", 1)]
    assert runs[0].options["config"] == {"lr": 0.2, "cls": str(Path)}


def test_a_key_is_given_once_as_a_text_or_a_file_and_its_absence_is_said_before_the_first_trial(
    runs, logger, tmp_path, monkeypatch
):
    file, empty = tmp_path / "key", tmp_path / "empty"
    file.write_text("  secret\n")
    empty.write_text("\n")
    for given, told in (({"api_key": "mine"}, "mine"), ({"api_key_file": str(file)}, "secret")):
        logger(**given)
        assert os.environ["WANDB_API_KEY"] == told
    for given, said in (
        ({"api_key": "k", "api_key_file": str(file)}, "api_key and api_key_file were both given"),
        ({"api_key_file": str(tmp_path / "none")}, "cannot be read: No such file"),
        ({"api_key_file": str(empty)}, "is empty"),
    ):
        for make in (WandbLoggerCallback, setup_wandb):
            with pytest.raises(ConfigError, match=said):
                make(**given)
    monkeypatch.setattr(sys.modules["wandb"], "login", lambda prompt, verify: False)
    with pytest.raises(ConfigError, match=r"no key for Weights & Biases.*mode='offline'"):
        logger()
    logger(mode="offline")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    logger()


def test_metrics_are_left_out_and_the_config_is_added_when_that_is_asked_for(runs, logger):
    callback = logger(excludes=["eval", "config/lr"], log_config=True)
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
def test_checkpoints_are_uploaded_when_that_is_asked_for(runs, logger, tmp_path, given, num):
    stored = tmp_path / "tuning" / TRIAL.id / "checkpoint_000001"
    stored.mkdir(parents=True)
    (stored / "weights").write_text("w")
    callback = logger(**given)
    callback.on_trial_start(TRIAL)
    callback.on_trial_save(TRIAL)  # without one
    for number in (1, 2):  # the second was deleted meanwhile
        ref = CheckpointRef(f"{TRIAL.id}/checkpoint_{number:06d}")
        callback.on_trial_save(evolved(tmp_path / "tuning", checkpoint=ref))
    callback.on_experiment_end([])
    found = [(artifact.name, artifact.type, artifact.files) for artifact in runs[0].artifacts]
    assert found == [(f"checkpoint_{TRIAL.id}", "model", ["weights"])] * num


# --- within a trial ------------------------------------------------------------------------------------------------


def test_a_trial_opens_its_own_run_by_its_names_or_by_those_of_the_user(runs, tmp_path, monkeypatch):
    in_trial(monkeypatch, ours, home=tmp_path / "trial")
    own = {"id": TRIAL.id, "name": "train_0", "group": "tuning"}
    rest = {"dir": str(tmp_path / "trial"), "config": {"lr": 0.1}, "resume": "allow"}
    assert setup_wandb({"lr": 0.1}, project="digits").options == own | rest | {"project": "digits"}
    options = setup_wandb({"lr": 0.1}, trial_id="7", trial_name="mine", group="7").options
    assert options == rest | {"id": "7", "name": "mine", "group": "7"}


def test_other_ranks_get_a_run_that_does_nothing_or_one_of_their_own(runs, monkeypatch):
    in_trial(monkeypatch, ours, rank=1)
    assert setup_wandb().options == {"mode": "disabled"}
    own = setup_wandb(rank_zero_only=False).options
    assert (own["id"], own["name"]) == (f"{TRIAL.id}-rank1", "train_0-rank1")


def test_outside_a_sweep_a_run_is_opened_as_it_was_asked_for(runs: list[Run]) -> None:
    assert setup_wandb({"lr": 0.1}, project="p").options == {"project": "p", "config": {"lr": 0.1}}


# --- the real library ----------------------------------------------------------------------------------------------


def train_with_own_run(config: Any) -> None:
    run = setup_wandb(config, mode="offline")
    run.log({"loss": config["lr"]})
    sweep.report(loss=config["lr"], run=run.id)
    run.finish()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_each_trial_leaves_an_offline_run_under_its_own_id_whoever_opens_it(tmp_path):
    pytest.importorskip("wandb", reason="needs wandb, which is not installed")
    given: dict[str, Any] = {"config": {"lr": sweep.grid_search([0.1, 0.2])}, "verbose": 0}
    logger = WandbLoggerCallback("digits", mode="offline")
    logged = sweep.run(train, callbacks=[logger], storage_path=tmp_path / "logged", **given)
    opened = sweep.run(train_with_own_run, storage_path=tmp_path / "opened", **given)
    for trial in [*logged.trials, *opened.trials]:
        (record,) = Path(trial.path).glob("wandb/offline-run-*/*.wandb")
        assert record.name == f"run-{trial.trial_id}.wandb"
        if trial in logged.trials:
            content = record.read_bytes()
            assert b"digits" in content
            assert content.count(b"time_this_iter_s") >= 3
