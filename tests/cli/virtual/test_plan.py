"""`sweep plan`: what is printed before a sweep begins, from which trials, and that nothing of the sweep is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_experiment import MadeExperiment

from sweep.accelerators import inventory
from sweep.cli.main import sweep
from sweep.errors import ConfigError, ExperimentError

SCRIPT = """\
import time
import sweep

def train(config):
    for step in range(config.get("steps", 3)):
        time.sleep(0.02)
        sweep.report(loss=config["x"] / (step + 1))

def broken(config):
    raise ValueError("no good")

def slow(config):
    time.sleep(60)

@sweep.vectorized(num_lanes=3)
def lanes(x):
    return x
"""
ASHA = ["--minimize", "loss", "--scheduler", "asha", "--max-t", "9", "--grace", "1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "program.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\np.parse_args()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SWEEP_STORAGE", raising=False)
    yield tmp_path
    inventory.shutdown()  # --engine ray declares a cluster


def plan(*words: str) -> Result:
    return CliRunner().invoke(sweep, ["plan", *words])


def found(*words: str) -> dict[str, Any]:
    done = plan("--json", *words)
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_the_first_calls_are_those_that_a_run_with_that_seed_makes(here: Path) -> None:
    told = found(
        "train.py:train", "x=uniform(0,1)", "opt=choice(adam,sgd)", "--trials", "7", "--on", "cpu=3", "--seed", "4"
    )
    assert (told["num_trials"], told["at_once"], told["seed"]) == (7, 3, 4)
    first = told["calls"][0]
    assert first["call"] == f"train({first['config']!r})"
    assert [one["trial"] for one in told["calls"]] == [f"{number:05d}" for number in range(5)]
    again = found(
        "train.py:train", "x=uniform(0,1)", "opt=choice(adam,sgd)", "--trials", "7", "--on", "cpu=3", "--seed", "4"
    )
    assert again["calls"] == told["calls"]
    assert sorted(path.name for path in here.iterdir() if path.name != "__pycache__") == ["program.py", "train.py"]


def test_a_program_is_shown_as_its_command_with_places_left_open(here: Path) -> None:
    told = found("program.py", "lr=0.1,0.2", "--searcher", "grid")
    assert [one["call"] for one in told["calls"]] == ["python program.py --lr=0.1", "python program.py --lr=0.2"]
    told = found("--", "echo", "{lr=choice(7,7)}", "{trial_dir}/out")
    assert told["calls"][0]["call"] == "echo 7 '{trial_dir}/out'"


def test_hopeless_packing_is_a_warning_and_devices_are_shown_one_by_one(here: Path) -> None:
    shown = plan(
        "train.py:train", "x=uniform(0,1)", "--gpus", "5", "--on", "2*cpu=64,gpu=8", *ASHA, "--trials", "50"
    ).output
    assert "packing: 2 at a time\n" in shown
    assert "  node-1: 1 of 64 CPUs gpu0 gpu1 gpu2 gpu3 gpu4: 1; gpu5 gpu6 gpu7 idle\n" in shown
    assert "warning: 6 of 16 GPUs can never be used: a trial asks for cpu=1 gpu=5\n" in shown
    assert "rungs: of 50 trials 50 get to 1, " in shown
    assert "  node-0: lanes: 0 1 2\n" in plan("train.py:lanes", "x=uniform(0,1)", "--on", "cpu=8").output


def test_other_machines_are_planned_for_without_the_cluster_that_is_named(here: Path) -> None:
    words = ["train.py:train", "x=uniform(0,1)", "--trials", "7", "--on", "2*cpu=3"]
    told = found(*words, "--engine", "ray", "--address", "10.0.0.1:6379")
    assert (told["at_once"], list(told["nodes"])) == (6, ["node-0", "node-1"])


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["train.py:train", "x=unifrm(0,1)"], "Did you mean 'uniform'"),
        (["program.py", "rl=0.1,0.2"], "takes no parameter 'rl'"),
        (["train.py:train", "x=1", "--gpus", "9", "--on", "cpu=8,gpu=8"], "gpu=9 is more than this machine has: 8"),
        (["train.py:train", "x=1", "--scheduler", "asha"], "needs a metric"),
        (["train.py:train", "x=1", "--name", "old"], "there already is an experiment 'old'"),
        (["train.py:train", "x=1", "--from", "odl"], "Did you mean 'old'"),
        (["train.py:train", "x=1", "--from", "old"], "no trial has reported anything"),
        (["train.py:train", "x=1", "--on", "gpu=x"], "expected amounts such as cpu=64,gpu=8"),
        (["train.py:train", "x=1", "--on", "8"], "expected amounts such as cpu=64,gpu=8"),
        (["train.py:train", "x=1", "--on", "two*cpu=8"], "expected amounts such as cpu=64,gpu=8"),
        (["train.py:train", "x=1", "--on", "cpu=8", "--pilot", "4"], "--pilot runs trials here"),
    ],
)
def test_what_a_run_would_refuse_is_refused(words: list[str], error: str, here: Path) -> None:
    MadeExperiment(here / "sweep_results", "old").close()
    done = plan(*words)
    assert isinstance(done.exception, (ConfigError, ExperimentError, ValueError))
    assert error in str(done.exception)


@pytest.mark.slow
def test_pilot_trials_run_elsewhere_and_the_forecast_is_near_what_the_sweep_takes(here: Path) -> None:
    words = ["train.py:train", "x=uniform(0,1)", "steps=10", "--minimize", "loss", "--trials", "24", "--seed", "1"]
    told = found(*words, "--pilot", "8")["forecast"]
    assert (told["known"], told["cut"]) == (8, 0)
    assert not (here / "sweep_results").exists()
    assert CliRunner().invoke(sweep, ["run", *words, "--name", "real", "--quiet"]).exit_code == 0
    took = json.loads(CliRunner().invoke(sweep, ["simulate", "real", "--json"]).stdout.splitlines()[-1])["seconds"]
    assert took / 2 < told["seconds"]["median"] < took * 2  # others share the machine
    earlier = found(*words[:-2], "--from", "real", "--on", "cpu=4")["forecast"]
    assert earlier["known"] == 24
    assert earlier["seconds"]["median"] < told["seconds"]["median"]


@pytest.mark.slow
def test_the_pilots_of_an_early_stopping_sweep_run_to_its_last_rung_and_no_further(here: Path) -> None:
    shown = plan("train.py:train", "x=uniform(0,1)", "steps=30", *ASHA, "--trials", "40", "--pilot", "4").output
    assert shown.count("reached max_t: training_iteration=9") == 4
    assert "forecast from 4 trials, by 40 sweeps in virtual time:\n" in shown
    assert "  trials that run      40  " in shown


@pytest.mark.slow
def test_pilots_that_all_fail_say_why(here: Path) -> None:
    done = plan("train.py:broken", "x=1", "--pilot", "2")
    assert "2 of 2 pilot trials failed: ValueError: no good" in str(done.exception)


@pytest.mark.slow
def test_ctrl_c_ends_the_pilots_and_leaves_nothing(here: Path) -> None:
    code = "import sys; from sweep.cli.main import main; main(sys.argv[1:])"
    words = ["plan", "train.py:slow", "x=1", "--pilot", "2"]
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, "PYTHONPATH": root, "TMPDIR": str(here)}
    started = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, env=environ, text=True)
    assert started.stdout is not None
    for line in started.stdout:
        if "running" in line:
            started.send_signal(signal.SIGINT)
            break
    assert "forecast" not in started.communicate(timeout=60)[0]
    assert started.returncode == 130
    assert not list(here.glob("sweep-plan-*"))
