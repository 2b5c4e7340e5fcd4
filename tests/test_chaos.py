"""Drivers killed at random moments, over and over: a seeded search for what the chosen moments do not hit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid

import pytest
from leftovers import MARK, wait_until_gone
from test_kill import SCRIPT, check_no_trial_runs_after_its_end

import sweep
from sweep.record.facts import read_facts


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_a_driver_killed_at_random_loses_nothing(tmp_path, seed):
    rng = random.Random(seed)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    kills = 0
    while True:
        mark = uuid.uuid4().hex
        driver = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), "200", "never", "", "0"], env={**os.environ, MARK: mark}
        )
        try:
            driver.wait(rng.uniform(0.3, 1.2))
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            kills += 1
        assert not wait_until_gone(mark), f"processes are left after kill {kills}"
        assert driver.returncode in (0, -signal.SIGKILL)
        if driver.returncode == 0:
            break
        assert kills < 300, "no progress is made"
    assert kills > 0
    trials = sweep.ExperimentAnalysis(tmp_path / "killed").trials
    assert [trial.status for trial in trials] == ["TERMINATED"] * 200
    check_no_trial_runs_after_its_end(list(read_facts(tmp_path / "killed" / "sweep.db")), 200)
    assert sweep.replay(tmp_path / "killed").differences == []
