"""Which metrics are reported under which names, and checkpoints that are made for one report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sweep.checkpoints.store import Checkpoint
from sweep.errors import CheckpointError, ConfigError, UserCodeError
from sweep.integration.reporting import MetricChoice, checkpoint_file, chosen_hooks, report_with, require

FOUND = {"loss": 0.5, "val_loss": 0.6, "acc": 0.7}


@pytest.mark.parametrize(
    ("metrics", "chosen"),
    [
        (None, FOUND),
        ([], FOUND),
        ("loss", {"loss": 0.5}),
        (["loss", "acc"], {"loss": 0.5, "acc": 0.7}),
        (("acc",), {"acc": 0.7}),
        ({"loss": "val_loss", "train": "loss"}, {"loss": 0.6, "train": 0.5}),
    ],
)
def test_metrics_are_chosen_and_renamed(metrics: Any, chosen: dict[str, float]) -> None:
    assert MetricChoice(metrics).of(FOUND) == chosen


@pytest.mark.parametrize("metrics", [3, [1], {"loss": None}, {1: "loss"}, ""])
def test_metrics_of_another_form_are_refused(metrics: Any) -> None:
    with pytest.raises(ConfigError, match="expected None for all"):
        MetricChoice(metrics)


def test_a_metric_that_is_not_there_yet_is_warned_of_once_and_left_out() -> None:
    choice = MetricChoice(["loss", "val_los"])
    with pytest.warns(UserWarning, match=r"no metric 'val_los' yet.*Did you mean 'val_loss'"):
        assert choice.of(FOUND) == {"loss": 0.5}
    assert choice.of(FOUND) == {"loss": 0.5}  # a second warning would be an error
    assert choice.of({**FOUND, "val_los": 1.0}) == {"loss": 0.5, "val_los": 1.0}


def test_a_metric_that_is_missing_where_all_are_told_is_an_error() -> None:
    with pytest.raises(UserCodeError, match=r"'los' yet\. Did you mean 'loss'.*acc, loss, val_loss"):
        MetricChoice("los", is_complete=True).of(FOUND)


@pytest.mark.parametrize(
    ("given", "hooks"),
    [
        ("fit_end", {"fit_end"}),
        ("on_fit_end", {"fit_end"}),
        (["fit_end", "epoch_end"], {"fit_end", "epoch_end"}),
        ([], set()),
    ],
)
def test_hooks_are_named_with_or_without_on(given: Any, hooks: set[str]) -> None:
    assert chosen_hooks(given, ["fit_end", "epoch_end"], argument="on") == hooks


@pytest.mark.parametrize("given", ["epoch_ends", ["fit_end", "epoch_ends"], [3]])
def test_an_unknown_hook_is_refused_with_those_that_are_known(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"is not a hook.*Known: epoch_end, fit_end") as caught:
        chosen_hooks(given, ["fit_end", "epoch_end"], argument="on")
    assert given == [3] or "Did you mean 'epoch_end'" in str(caught.value)


def test_a_checkpoint_is_made_in_the_trial_and_gone_after_the_report(trial: Any) -> None:
    report_with({"loss": 1}, lambda directory: Path(directory, "weights").write_text("w"))
    assert trial.reports == [({"loss": 1}, {"weights": "w"})]
    assert os.listdir(trial.home) == []


def test_a_save_that_writes_nothing_attaches_nothing(trial: Any) -> None:
    report_with({"loss": 1}, lambda directory: None)
    assert trial.reports == [({"loss": 1}, None)]


def test_outside_a_sweep_nothing_is_saved(trial: Any) -> None:
    trial.trial_id = None
    report_with({"loss": 1}, lambda directory: pytest.fail("saved"))
    assert trial.reports == [({"loss": 1}, None)]


def test_the_files_of_a_checkpoint_are_named_when_one_is_missing(tmp_path: Path) -> None:
    (tmp_path / "model.ubj").write_text("m")
    (tmp_path / ".hidden").write_text("m")
    assert checkpoint_file(Checkpoint(tmp_path), "model.ubj") == str(tmp_path / "model.ubj")
    with pytest.raises(CheckpointError, match=r"has no model.json; there is model.ubj\. Give"):
        checkpoint_file(Checkpoint(tmp_path), "model.json")
    with pytest.raises(CheckpointError, match="expected a Checkpoint"):
        checkpoint_file(None, "model.json")  # type: ignore[arg-type]


def test_a_missing_library_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(ImportError, match=r"sweep.integration.no_such needs nosuch, .* Run: pip install nosuch$"):
        require(["no_such.pytorch", "no_such"], library="nosuch")


def test_a_library_that_is_there_and_lacks_something_says_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import what_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs"):
        require(["half_installed"], library="half")
