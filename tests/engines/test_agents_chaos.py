"""Sweeps on several machines of which one part after another is killed, and links that are cut: nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from agents_chaos import APART, DRIVE, HEARTBEAT_TIMEOUT_S, PLAIN, TRAIN, Harm, agents_of, check, check_apart, prepared
from conformance.processes import Watch, of_experiment
from leftovers import open_files
from links import Linked, Links
from orphans import MARK, wait_until_gone

from sweep import Device, Node

NUM_TRIALS, NUM_KILLS = 120, 30
KINDS = ["agent", "fork_server", "supervisor", "supervisor", "node", "driver", "driver", "cut", "silence"]


@pytest.mark.agents
def test_a_few_kills_and_cuts_in_one_sweep_cost_nothing_that_was_recorded(tmp_path):
    """In one process: so sockets, pipes and threads of the driver are seen to be gone, too."""
    prepared(tmp_path)
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(TRAIN + DRIVE, str(tmp_path / "drive.py"), "exec"), script)
    links = Links(["one", "two"], lambda: int((tmp_path / "gate").read_text()))
    nodes = [Node(name, cpus=3, devices=(Device("0"),)) for name in links.ports]
    harm, is_over = Harm(5, links), threading.Event()
    before, threads = open_files(), set(threading.enumerate())

    def do_harm() -> None:
        kinds = ["agent", "fork_server", "supervisor", "node", "cut", "silence"]
        while kinds and not is_over.wait(harm.draw.uniform(0.2, 0.5)):
            if done := harm.do(os.getpid(), kinds):
                kinds.remove(done)
        is_over.wait(2 * HEARTBEAT_TIMEOUT_S + 1)
        harm.heal()

    killer = threading.Thread(target=do_harm)
    killer.start()
    try:
        engine = Linked(nodes, links.ports, tmp_path / "gate", heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S)
        script["drive"](str(tmp_path), 40, False, engine, 6)
    finally:
        is_over.set()
        killer.join()
    assert open_files() - before == {}
    assert set(threading.enumerate()) - threads == set()
    assert agents_of(os.getpid()) == []
    assert Watch(of_experiment(tmp_path / "chaos")).left() == []
    links.close()
    assert harm.done.total() == 6, harm.done
    check(tmp_path, 40)


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["function", "group", "apart"])
def test_whatever_is_killed_whenever_every_trial_ends_once_and_nothing_is_lost(tmp_path, kind, seed, monkeypatch):
    """`apart`: nodes share nothing but remote storage."""
    prepared(tmp_path)
    script, claims, mark = tmp_path / "drive.py", tmp_path / "claims", uuid.uuid4().hex
    script.write_text(TRAIN + (APART if kind == "apart" else DRIVE) + PLAIN)
    claims.mkdir()
    links = Links(["one", "two"], lambda: int((tmp_path / "gate").read_text()))
    harm = Harm(seed, links)
    command = [sys.executable, str(script), str(tmp_path), str(NUM_TRIALS), kind, json.dumps(links.ports)]
    environ = {**os.environ, MARK: mark, "SWEEP_CLAIMS": str(claims), "PYTHONPATH": str(Path(__file__).parents[1])}
    if kind == "apart":
        environ |= {"SWEEP_CACHE": str(tmp_path / "cache"), "SWEEP_SHARED_STORAGE": "0"}
        monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    give_up = time.monotonic() + 600
    try:
        while True:
            with (tmp_path / "driver.log").open("a") as log:
                driver = subprocess.Popen(command, env=environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            silent_until = 0.0
            while True:
                assert time.monotonic() < give_up, f"no progress is made: {harm.done}"
                try:
                    driver.wait(harm.draw.uniform(0.1, 1.2))
                    break
                except subprocess.TimeoutExpired:
                    pass
                if silent_until and time.monotonic() > silent_until:
                    harm.heal()
                    silent_until = 0.0
                if harm.done.total() >= NUM_KILLS:
                    continue  # the rest is left in peace
                if harm.do(driver.pid, [one for one in KINDS if one != "silence" or not silent_until]) == "silence":
                    silent_until = time.monotonic() + harm.draw.choice([0.5, 1.0, 2.5]) * 2 * HEARTBEAT_TIMEOUT_S
            harm.heal()
            assert driver.returncode in (0, -signal.SIGKILL), (tmp_path / "driver.log").read_text()
            if driver.returncode == 0:
                break
            if harm.draw.random() < 0.5:
                assert not wait_until_gone(mark, 2 * HEARTBEAT_TIMEOUT_S + 10), harm.done
    finally:
        driver.kill()
        driver.wait()
        links.close()
    print(f"{kind} {seed}: {dict(harm.done)}")
    assert harm.done.total() >= 10  # fewer come to pass in a sweep that is quick
    assert harm.done["driver"] >= 1
    assert not wait_until_gone(mark)
    assert [path.name for path in claims.iterdir()] == ["lock"], "a claim has outlived its sweep"
    if kind == "apart":
        check_apart(tmp_path)
    check(tmp_path, NUM_TRIALS)
