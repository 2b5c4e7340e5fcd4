"""The driver of a sweep on a cluster of Ray is killed: the cluster is free at once, and a resume goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from sweep.record.reader import ExperimentReader

pytestmark = pytest.mark.ray

SCRIPT = """
import os, pathlib, sys, tempfile, time
import sweep

root, address = pathlib.Path(sys.argv[1]), sys.argv[2]

def train(config):
    with open(root / "ran", "a") as file:
        file.write(f"{config['i']}\\n")
    checkpoint = sweep.get_checkpoint()
    first = 1 if checkpoint is None else int((pathlib.Path(checkpoint.path) / "step").read_text()) + 1
    for step in range(first, 4):
        with tempfile.TemporaryDirectory() as directory:
            (pathlib.Path(directory) / "step").write_text(str(step))
            sweep.report(score=config["i"], step=step, checkpoint=sweep.Checkpoint.from_directory(directory))
        while step == 1 and config["i"] >= 6 and not (root / "go").exists():
            time.sleep(0.02)

if __name__ == "__main__":
    sweep.init(engine="ray", address=address)
    sweep.run(
        train, config={"i": sweep.grid_search(list(range(20)))}, resources_per_trial={"cpu": 1}, storage_path=root,
        name="killed", resume="AUTO", verbose=0, max_failures=0, metric="score", mode="max",
    )
"""


def test_nothing_is_left_of_a_killed_driver_and_a_resume_runs_nothing_again_that_had_finished(cluster, tmp_path, left):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path), cluster.address]
    driver = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    experiment = tmp_path / "killed"
    try:
        await_trials(experiment, driver, finished=6, started=14)
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate(timeout=30)
    finally:
        driver.kill()
    assert left(experiment) == []

    ran = Counter((tmp_path / "ran").read_text().split())
    assert len(ran) == 14
    (tmp_path / "go").touch()
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert left(experiment) == []
    trials = list(ExperimentReader(experiment).trials())
    assert Counter(trial.status for trial in trials) == {"TERMINATED": 20}
    ran = Counter((tmp_path / "ran").read_text().split())
    assert {number for number, times in ran.items() if times == 2} == {str(i) for i in range(6, 14)}
    assert all(trial.count == 3 for trial in trials)  # from its checkpoint on, not from the beginning


def await_trials(experiment: Path, driver: subprocess.Popen[bytes], *, finished: int, started: int) -> None:
    """Wait until so many trials are over and so many have begun."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        assert driver.poll() is None, driver.communicate()[1].decode()
        if (experiment / "sweep.db").exists():
            trials = list(ExperimentReader(experiment).trials())
            over = sum(trial.status == "TERMINATED" for trial in trials)
            if over >= finished and sum(trial.count > 0 for trial in trials) >= started:
                return
        time.sleep(0.05)
    raise AssertionError(f"{finished} trials did not finish, or {started} did not start")
