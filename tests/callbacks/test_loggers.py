"""Loggers of users' own, and what asks for log files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweep.callbacks.loggers import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
from sweep.callbacks.mlflow import MLflowLoggerCallback
from sweep.callbacks.wandb import WandbLoggerCallback
from sweep.core.plan import Plan
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial
from sweep.errors import ConfigError

TRIAL = Trial("abcde_00000", {"lr": 0.1, "net": {"width": 16}}, Resources(), Status.RUNNING, attempt=1)


def test_a_logger_of_ones_own_overrides_the_log_methods(tmp_path: Path) -> None:
    heard: list[Any] = []

    class Mine(LoggerCallback):
        def log_trial_start(self, trial: Trial) -> None:
            heard.append("start")

        def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
            heard.append((iteration, result["loss"]))

        def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
            heard.append(("end", failed))

    logger = Mine()
    logger.setup(experiment_dir=str(tmp_path), plan=Plan(), num_trials=2)
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


@pytest.mark.parametrize("kind", [JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback])
@pytest.mark.parametrize("hook", ["log_trial_result", "on_trial_result"])
def test_a_file_logger_whose_writing_would_be_overridden_is_refused(kind: Any, hook: str) -> None:
    with pytest.raises(ConfigError, match=rf"Mine overrides {hook} of {kind.__name__}, which .* from LoggerCallback"):
        type("Mine", (kind,), {hook: lambda self, *_, **__: None})
    assert type("Other", (JsonLoggerCallback,), {"name": "x"})().name == "x"
