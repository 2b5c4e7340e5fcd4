"""Loggers of users' own, and what asks for log files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from callbacks.played import TRIAL, evolved, play, ready

from sweep.callbacks.loggers import LoggerCallback, TBXLoggerCallback
from sweep.callbacks.mlflow import MLflowLoggerCallback
from sweep.callbacks.wandb import WandbLoggerCallback
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.errors import ConfigError


def test_a_logger_of_ones_own_overrides_the_log_methods(tmp_path: Path) -> None:
    heard: list[Any] = []

    class Mine(LoggerCallback):
        def log_trial_start(self, trial: Trial) -> None:
            heard.append("start")

        def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
            heard.append((iteration, result["loss"]))

        def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
            heard.append(("end", failed))

    logger = ready(Mine(), tmp_path)
    logger.on_trial_start(TRIAL)
    logger.on_trial_result(TRIAL, TrialResult({"training_iteration": 7, "loss": 1}))
    logger.on_trial_error(TRIAL)
    logger.on_trial_complete(TRIAL)
    assert heard == ["start", (7, 1), ("end", True), ("end", False)]
    assert logger.layout.root == tmp_path


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        (TBXLoggerCallback, "tensorboardX"),
        (MLflowLoggerCallback, "mlflow-skinny"),
        (WandbLoggerCallback, "wandb"),
    ],
)
def test_a_missing_library_is_said_at_once(monkeypatch: pytest.MonkeyPatch, kind: Any, package: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"Run: pip install {package}$"):
        kind()


class _Writer:
    made: list[_Writer] = []

    def __init__(self, directory: str, flush_secs: float) -> None:
        self.directory = Path(directory)
        self.told: list[tuple[Any, ...]] = []
        self.closed = False
        self.file_writer = self
        self.made.append(self)

    def add_summary(self, summary: Any) -> None:
        self.told.append(("hparams", *summary))

    def close(self) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Any:
        return lambda tag, value, global_step: self.told.append((name, tag, global_step))


@pytest.fixture
def writers(monkeypatch):
    play(monkeypatch, "tensorboardX", "", SummaryWriter=_Writer)
    play(monkeypatch, "tensorboardX.summary", "", hparams=lambda hparam_dict, metric_dict: [(hparam_dict, metric_dict)])
    _Writer.made = []
    return _Writer.made


def test_tensorboard_gets_scalars_histograms_and_the_hyperparameters_and_all_files_are_closed(
    tmp_path: Path, writers: list[_Writer]
) -> None:
    result = {"loss": 0.5, "eval": {"acc": True}, "hist": [1, 2], "image": np.zeros((3, 2, 2)), "word": "x", "pid": 1}
    trial = evolved(last_result=TrialResult({"training_iteration": 3, **result}))
    logger = ready(TBXLoggerCallback(), tmp_path)
    logger.on_trial_result(trial, trial.last_result)
    logger.on_trial_complete(trial)
    logger.on_trial_result(evolved(id="abcde_00001"), TrialResult({"loss": 1.0}))
    writer, other = writers
    assert writer.directory == tmp_path / trial.id
    assert writer.told == [
        ("add_scalar", "loss", 3),
        ("add_scalar", "eval/acc", 3),
        ("add_histogram", "hist", 3),
        ("add_image", "image", 3),
        ("hparams", {"lr": 0.1, "net/width": 16}, {"loss": 0.5, "eval/acc": True}),
    ]
    assert (writer.closed, other.closed) == (True, False)
    logger.on_experiment_end([TRIAL])
    assert other.closed
