"""Drivers killed at random moments, over and over: a seeded search for what the chosen moments do not hit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid

import pytest
from orphans import MARK, wait_until_gone
from test_kill import SCRIPT, check_no_trial_runs_after_its_end

import sweep
from sweep.record.facts import read_facts


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "durability"), [(0, "normal"), (1, "full")])
def test_a_driver_killed_at_random_loses_nothing(tmp_path, seed, durability):
    rng = random.Random(seed)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    kills = 0
    while True:
        mark = uuid.uuid4().hex
        driver = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), "200", "never", "", "0", durability],
            env={**os.environ, MARK: mark},
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


SHARING = """
import fcntl, os, sys
import sweep

name, root, num_trials = sys.argv[1], sys.argv[2], int(sys.argv[3])

def train(config):
    held = []
    for device in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        # A device has two halves, and a trial locks as many of them as it was given: the kernel lets go when it dies.
        wanted = 1 if config["gpu"] == 0.5 else 2
        for half in ("a", "b"):
            descriptor = os.open(f"{root}/device-{device}{half}", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(descriptor)
                wanted -= 1
            except BlockingIOError:
                os.close(descriptor)
            if not wanted:
                break
        if wanted:
            with open(f"{root}/overlaps", "a") as file:
                file.write(f"{name} {config} {device}\\n")
    sweep.report(loss=config["x"])

sweep.run(
    train, name=name, storage_path=root, config={"x": sweep.uniform(0, 1), "gpu": sweep.choice([1, 1, 1, 0.5, 2])},
    num_samples=num_trials, metric="loss", mode="min", verbose=0, resume=True,
    resources_per_trial=lambda config: {"cpu": 0.5, "gpu": config["gpu"]},
    nodes=[sweep.Node(cpus=4, devices=(sweep.Device("0"), sweep.Device("1")))],
)
"""


@pytest.mark.chaos
@pytest.mark.timeout(3000)
def test_two_sweeps_of_which_one_is_killed_again_and_again_never_use_one_gpu_at_once(tmp_path):
    rng = random.Random(1)
    claims, script, mark = tmp_path / "claims", tmp_path / "train.py", uuid.uuid4().hex
    claims.mkdir()
    script.write_text(SHARING)
    environment = {**os.environ, MARK: mark, "SWEEP_CLAIMS": str(claims), "SWEEP_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
    numbers = {"steady": 7_000, "killed": 3_000}

    def start(name):
        return subprocess.Popen(
            [sys.executable, str(script), name, str(tmp_path), str(numbers[name])],
            env=environment,
        )

    steady, kills = start("steady"), 0
    while True:
        driver = start("killed")
        try:
            driver.wait(rng.uniform(0.4, 4.0))
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            kills += 1
        assert driver.returncode in (0, -signal.SIGKILL)
        assert not (tmp_path / "overlaps").exists(), (tmp_path / "overlaps").read_text()
        if driver.returncode == 0:
            break
        assert kills < 1_000, "no progress is made"
    assert steady.wait() == 0
    assert kills > 10
    assert not (tmp_path / "overlaps").exists()
    assert not wait_until_gone(mark)
    assert [path.name for path in claims.iterdir()] == ["lock"], "a claim has outlived its sweep"
    for name, number in numbers.items():
        trials = sweep.ExperimentAnalysis(tmp_path / name).trials
        assert [trial.status for trial in trials] == ["TERMINATED"] * number
        assert sweep.replay(tmp_path / name).differences == []
