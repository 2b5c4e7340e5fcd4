"""What is told that a sweep has ended: however it did, once, and without a say in how."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from made_experiment import MadeExperiment

import sweep
from sweep.errors import ConfigError, MetricError
from sweep.launch import on_end
from sweep.launch.on_end import tell_end
from sweep.results.analysis import ExperimentAnalysis


def train(config: dict[str, Any]) -> None:
    sweep.report(loss=config["x"])
    if config["x"] > 0.9:
        raise ValueError("diverged")


def run(tmp_path: Path, *xs: float, **options: Any) -> Any:
    given = {"metric": "loss", "mode": "min", "engine": "inline", "verbose": 0, "raise_on_failed_trial": False}
    space = {"x": sweep.grid_search(list(xs))}
    return sweep.run(train, config=space, storage_path=str(tmp_path), name="one", **{**given, **options})


def told_by_command(tmp_path: Path) -> tuple[list[str], Any]:
    """Return a command, and what gives the variables and the JSON that it was told."""

    def told() -> tuple[dict[str, str], dict[str, Any]]:
        lines = (tmp_path / "variables").read_text().splitlines()
        variables = dict(line.split("=", 1) for line in lines if line.startswith("SWEEP_"))
        return variables, json.loads((tmp_path / "stdin").read_text())

    return ["sh", "-c", f"env > {tmp_path}/variables; cat > {tmp_path}/stdin"], told


def test_a_function_gets_the_analysis_once_everything_is_closed(tmp_path):
    told = []
    analysis = run(tmp_path, 0.1, 0.2, on_end=told.append)
    assert told == [analysis]
    assert ExperimentAnalysis(analysis.experiment_path).best_config == {"x": 0.1}


def test_a_command_is_told_in_its_environment_and_on_its_standard_input(tmp_path):
    command, told = told_by_command(tmp_path)
    run(tmp_path, 0.2, 0.1, 0.95, on_end=command)
    variables, facts = told()
    assert {name: variables[f"SWEEP_{name}"] for name in ("NAME", "STATE", "METRIC", "BEST", "DIR")} == {
        "NAME": "one",
        "STATE": "ended",
        "METRIC": "loss",
        "BEST": "0.1",
        "DIR": str(tmp_path / "one"),
    }
    assert facts["best_config"] == {"x": 0.1}
    assert facts["best_trial"].endswith("_00001")
    assert facts["trials"] == {"finished": 2, "failed": 1}
    assert facts["error"] is None


def test_a_sweep_that_cannot_go_on_has_failed_and_so_has_one_whose_trials_all_have(tmp_path):
    command, told = told_by_command(tmp_path)
    with pytest.raises(MetricError):
        run(tmp_path, 0.1, 0.2, metric="losss", on_end=command)
    variables, facts = told()
    assert (variables["SWEEP_STATE"], variables["SWEEP_BEST"], facts["best"]) == ("failed", "", None)
    assert "expected the metric 'losss'" in facts["error"]
    run(tmp_path / "alike", 0.95, 0.96, on_end=command)
    assert told()[1] | {"error": None} == told()[1]
    assert (told()[1]["state"], told()[1]["trials"]) == ("failed", {"failed": 2})


def test_of_several_objectives_no_trial_is_best(tmp_path):
    command, told = told_by_command(tmp_path)
    made = MadeExperiment(tmp_path, metrics=["loss", "acc"], modes=["min", "max"])
    made.report(made.trial({"x": 1}), {"loss": 1.0, "acc": 2.0})
    analysis = ExperimentAnalysis(made.close())
    analysis.interrupted = True
    assert tell_end(command, analysis, made.root, None) == ""
    variables, facts = told()
    assert (variables["SWEEP_METRIC"], variables["SWEEP_BEST"], facts["state"]) == ("loss, acc", "", "interrupted")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("false", "ExperimentError: false ended with 1"),
        ("no-such-command x", "FileNotFoundError"),
        (lambda analysis: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_its_failure_is_said_and_changes_nothing(tmp_path, capsys, told, said):
    analysis = run(tmp_path, 0.1, on_end=told)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]
    assert f"on_end failed: {said}" in capsys.readouterr().err


def test_its_words_are_no_shells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(tmp_path, 0.1, on_end="touch 'a b' $HOME ;")
    assert {"a b", "$HOME", ";"} <= set(os.listdir(tmp_path))


def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(on_end, "_PATIENCE_S", 0.3)
    pid = tmp_path / "pid"
    root = MadeExperiment(tmp_path).close()
    began = time.monotonic()
    said = tell_end(["sh", "-c", f"sleep 1000 & echo $! > {pid}; wait"], None, root, None)
    assert said.startswith("on_end failed: TimeoutExpired: ")
    assert time.monotonic() - began < 30
    end = time.monotonic() + 30
    while Path(f"/proc/{int(pid.read_text())}").exists():
        state = Path(f"/proc/{int(pid.read_text())}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break
        assert time.monotonic() < end, "it outlived the command"


@pytest.mark.parametrize("wrong", ["", "'x", 3, [], [1]])
def test_what_is_neither_a_function_nor_a_command_is_refused_before_anything_starts(tmp_path, wrong):
    with pytest.raises(ConfigError, match="on_end is"):
        run(tmp_path, 0.1, on_end=wrong)
    assert not (tmp_path / "one").exists()


def test_it_belongs_to_one_call(tmp_path):
    told = []
    run(tmp_path, 0.1, on_end=told.append)
    run(tmp_path, 0.1, 0.2, resume=True)
    assert len(told) == 1
