"""Analyses and grids of an experiment whose driver was killed, which still runs, and which was copied elsewhere."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweep import ExperimentAnalysis, Result, ResultGrid

WORK = """
import os, sys, time
import sweep

def train(config):
    for step in range(1, 4):
        own = os.path.join(sweep.get_context().get_trial_dir(), "next")
        os.makedirs(own, exist_ok=True)
        open(os.path.join(own, "step"), "w").write(str(step))
        sweep.report(loss=config["x"] / step, checkpoint=sweep.Checkpoint.from_directory(own))
        if config["x"] == 2 and step == 2:
            open("halfway", "w").close()
            time.sleep(600)
    if config["x"] == 1:
        raise ValueError("one")

sweep.init(num_cpus=1, num_gpus=0)
sweep.run(
    train, config={"x": sweep.grid_search([0, 1, 2, 3])}, metric="loss", mode="min", name="made", storage_path="here",
    verbose=0, raise_on_failed_trial=False, trial_dirname_creator=lambda trial: f"x={trial.config['x']}",
)
"""
STATUSES = ["TERMINATED", "ERROR", "RUNNING", "PENDING"]


@contextmanager
def half_run(directory: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """Start a sweep of four trials, of which the third waits after two of its three reports."""
    script = directory / "work.py"
    script.write_text(textwrap.dedent(WORK))
    driver = subprocess.Popen([sys.executable, str(script)], cwd=directory)
    try:
        while not ((directory / "halfway").exists() and list(directory.glob("here/made/*/error.txt"))):
            assert driver.poll() is None
        yield directory / "here" / "made", driver
    finally:
        if driver.poll() is None:
            driver.send_signal(signal.SIGKILL)
        driver.wait()


def look(root: Path, state: str) -> None:
    """Read all that an analysis and a grid offer of a half run experiment."""
    analysis = ExperimentAnalysis(root)
    trials = analysis.trials
    assert [trial.status for trial in trials] == STATUSES
    assert [trial.has_checkpoint() for trial in trials] == [True, True, True, False]
    assert [len(one) for one in analysis.results.values()] == [len(trial.last_result) for trial in trials]
    assert [trial.last_result.get("done") for trial in trials] == [True, True, False, None]
    assert [trial.last_result.get("training_iteration") for trial in trials] == [3, 3, 2, None]
    for trial in trials:
        assert Path(trial.path).parent == root
        assert trial.path == trial.logdir == trial.local_path
        assert os.path.isdir(trial.path)
        if trial.has_checkpoint():
            with trial.checkpoint.as_directory() as directory:
                assert (Path(directory) / "step").read_text() == str(trial.last_result["training_iteration"])
    assert (trials[2].reason == "") == (state == "runs")
    frame = analysis.dataframe(full=True)
    assert frame["status"].tolist() == STATUSES
    assert frame["state"].tolist() == ["finished", "failed", "running", "waiting"]
    assert frame["done"].tolist() == [True, True, False, False]
    assert frame["logdir"].tolist() == [trial.path for trial in trials]
    assert analysis.dataframe("loss", "min")["loss"].tolist() == [0.0, 1 / 3, 1.0]
    frames = analysis.fetch_trial_dataframes()
    assert [len(frames[trial.trial_id]) for trial in trials] == [3, 3, 2, 0]
    assert analysis.best_trial.trial_id == trials[0].trial_id
    assert (analysis.best_config, analysis.best_logdir) == ({"x": 0}, trials[0].path)
    assert Path(analysis.best_checkpoint.path).is_relative_to(root)
    assert Path(analysis.experiment_path) == root
    grid = ResultGrid(analysis)
    assert (len(grid), grid.num_errors, grid.num_terminated) == (4, 1, 1)
    assert [type(result.error).__name__ for result in grid] == ["NoneType", "UserCodeError", "NoneType", "NoneType"]
    assert [len(result.metrics_dataframe) for result in grid] == [3, 3, 2, 0]
    best = grid.get_best_result()
    assert (best.config, best.path) == ({"x": 0}, trials[0].path)
    assert all(str(root) in text for text in (best.path, str(best.checkpoint), repr(best)))
    assert ("no driver runs it" in repr(analysis)) == (state != "runs")
    assert grid.get_dataframe().equals(frame)
    assert (trials[0].error_file, trials[1].error_file) == (None, str(Path(trials[1].path, "error.txt")))
    paths = [path for path, _ in analysis.get_trial_checkpoints_paths(trials[0])]
    assert len(paths) == 3
    assert all(os.path.isdir(path) and Path(path).is_relative_to(root) for path in paths)
    for number in range(4) if (root / "x=0").is_symlink() else ():
        by_link = Result.from_path(root / f"x={number}")
        assert (by_link.trial_id, by_link.status) == (trials[number].trial_id, STATUSES[number])
        assert Path(by_link.path).parent == root
    again = pickle.loads(pickle.dumps(analysis))
    assert [trial.status for trial in again.trials] == STATUSES


def test_a_killed_a_running_and_a_copied_experiment_show_the_same(tmp_path: Path) -> None:
    with half_run(tmp_path) as (root, driver):
        while ExperimentAnalysis(root).trials[2].last_result.get("training_iteration") != 2:
            assert driver.poll() is None
        look(root, "runs")
        shutil.copytree(root, tmp_path / "while_it_ran" / "made")
        look(tmp_path / "while_it_ran" / "made", "copied")
    look(root, "killed")
    copy = tmp_path / "copied" / "other_name"
    shutil.copytree(root, copy, symlinks=True)
    shutil.rmtree(root)
    look(copy, "copied")
    look(tmp_path / "while_it_ran" / "made", "copied")
