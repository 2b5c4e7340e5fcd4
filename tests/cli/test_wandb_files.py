"""A sweep file of W&B and its script, as W&B's users have them, through `sweep run`: offline, without an edit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
pytest.importorskip("wandb")

SCRIPT = """\
import argparse, wandb

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch", type=int)
parser.add_argument("--opt", default="none")
with wandb.init(config=vars(parser.parse_args())) as run:
    for epoch in range(3):
        run.log({"val/loss": run.config.lr * run.config.batch / (epoch + 1)})
"""
FILE = """\
program: train.py
method: random
controller: {type: local}
metric: {name: val/loss, goal: minimize}
early_terminate: {type: hyperband, max_iter: 3, s: 1}
parameters:
  lr: {distribution: log_uniform_values, min: "1e-4", max: 1e-1}
  batch: {distribution: q_log_uniform_values, min: 8, max: 64, q: 8}
  opt: {values: ["adam w", sgd], probabilities: [0, 1]}
run_cap: 3
"""
CLOSED = """\
import sys, wandb

assert sys.argv[1:] == ["fit"], sys.argv
wandb.init()
wandb.log({"score": wandb.config["x y"] * wandb.config["net"]["width"]})
"""


def run(directory: Path, file: str) -> tuple[str, sweep.ExperimentAnalysis]:
    command = [sys.executable, "-m", "sweep.cli.main", "run", file, "--name", "ours", "--seed", "1"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=200, env={**os.environ})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr, sweep.ExperimentAnalysis(str(directory / "sweep_results" / "ours"))


def test_arguments_and_logged_metrics_need_no_edit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "sweep.yaml").write_text(FILE)
    notes, analysis = run(tmp_path, "sweep.yaml")
    assert notes == "note: sweep.yaml: without effect here: controller.\n"
    assert len(analysis.trials) == 3
    for trial in analysis.trials:
        assert trial.config["opt"] == "sgd"
        assert trial.config["batch"] in range(8, 72, 8)
    best = analysis.best_trial
    assert best.last_result["val/loss"] == pytest.approx(best.config["lr"] * best.config["batch"] / 3)


def test_a_command_without_a_macro_gets_its_values_through_wandb_config_and_run_cap_bounds_the_grid(tmp_path) -> None:
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "train.py").write_text(CLOSED)
    (tmp_path / "sweeps" / "grid.yaml").write_text(
        "program: train.py\nmethod: grid\nmetric: {name: score, goal: maximize}\nrun_cap: 2\n"
        'command: ["${env}", "${interpreter}", "${program}", fit]\n'
        'parameters: {"x y": {values: [1, 2, 3]}, net: {parameters: {width: {value: 7}}}}\n'
    )
    notes, analysis = run(tmp_path, "sweeps/grid.yaml")
    assert (notes, len(analysis.trials), analysis.best_result["score"]) == ("", 2, 14)
