"""Sixty-four machines in one sweep, which come, leave and are lost, and drivers that are killed while they live."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from agents_chaos import DRIVE, TRAIN, check, prepared
from joining_machines import CLI, Machines

import sweep
from sweep.core.messages import Exited, ExitKind, PlanChanged, Reported
from sweep.engines.cluster.join import agents_directory
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader

pytestmark = [pytest.mark.agents, pytest.mark.chaos, pytest.mark.timeout(1500)]

NUM_MACHINES = 64
NUM_TRIALS, NUM_MOMENTS = 900, 50
NUM_SHORT, NUM_KILLS, MOST_AGAIN = 4000, 5, 0.02
PATIENCE_S = 1200.0

JOINED = """
if __name__ == "__main__":
    sweep.init(engine="agents", here=False)
    drive(sys.argv[1], int(sys.argv[2]), False, None, int(sys.argv[3]))
"""

SHORT = """
import time
import sweep

def train(config):
    time.sleep(1.5)
    sweep.report(loss=config["x"])
"""


@pytest.fixture
def machines(tmp_path):
    made = Machines(tmp_path / "chaos", tmp_path)
    yield made
    made.close()


def await_(is_so, driver: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not is_so():
        assert driver.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < give_up
        time.sleep(0.1)


def ended(driver: subprocess.Popen[bytes], machines: Machines, log: Path) -> None:
    """Wait until driver and machines have ended by themselves."""
    assert driver.wait(PATIENCE_S) == 0, log.read_text()[-4000:]
    for machine in machines.all:
        machine.process.wait(PATIENCE_S)


@pytest.mark.parametrize("seed", range(2))
def test_machines_that_come_leave_and_are_lost_cost_no_report_and_no_step_after_a_notice(tmp_path, machines, seed):
    prepared(tmp_path)
    draw, done, lost = random.Random(seed), Counter[str](), set[str]()
    script, log, notes = (tmp_path / name for name in ("drive.py", "driver.log", "notes"))
    script.write_text(TRAIN.replace("sleep(0.05)", "sleep(0.4)") + DRIVE + JOINED)
    command = [sys.executable, str(script), str(tmp_path), str(NUM_TRIALS), str(2 * NUM_MACHINES)]
    with log.open("wb") as out:
        driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        await_(agents_directory(tmp_path / "chaos").exists, driver, log)
        for _ in range(NUM_MACHINES):
            machines.join()
        staying = list(machines.all)
        while done.total() < NUM_MOMENTS:  # spread evenly over the trials
            due = (done.total() + 1) * NUM_TRIALS // (NUM_MOMENTS + 10)
            await_(lambda due=due: notes.exists() and notes.read_text().count(" 6 ") >= due, driver, log)
            kind = draw.choice(["agent", "machine", "leave", "join", "join"])
            one = draw.choice([machine for machine in staying if machine.num_joined])
            match kind:
                case "join":
                    machines.join()
                    staying.append(machines.all[-1])
                case "leave":
                    one.leave()
                case "machine":
                    one.kill()
                case "agent" if not one.kill_agent():
                    continue
            if kind in ("leave", "machine"):
                staying.remove(one)
            if kind in ("agent", "machine"):
                lost.add(one.name)
            done[kind] += 1
        ended(driver, machines, log)
    finally:
        driver.kill()
        driver.wait()
    assert {machine.process.returncode for machine in machines.all} <= {0, -signal.SIGKILL}
    check(tmp_path, NUM_TRIALS)
    again = check_only_lost_nodes_repeat(tmp_path / "chaos", lost)
    print(f"seed {seed}: {dict(done)}, {again} steps of trials on nodes that were lost ran again")


def check_only_lost_nodes_repeat(experiment: Path, lost: set[str]) -> int:
    """See that no trial was lost but on one of these nodes, and that all others went on with the next step; returns how
    many steps ran again."""
    last: dict[str, int] = {}
    is_lost: set[str] = set()  # trials that may repeat some steps
    num_again = 0
    for fact in read_facts(experiment / "sweep.db"):
        match fact.event:
            case Exited(trial_id, exit=ended) if ended.kind in (ExitKind.NODE_LOST, ExitKind.LOST):
                assert ended.error is not None
                assert ended.error.split()[1] in lost, ended.error
                is_lost.add(trial_id)
            case Reported(trial_id) if fact.metrics is not None:
                step = fact.metrics["step"]
                if step != last.get(trial_id, 0) + 1:
                    assert trial_id in is_lost, f"{trial_id} reports step {step} after {last[trial_id]}"
                    num_again += last[trial_id] - step + 1
                is_lost.discard(trial_id)
                last[trial_id] = step
    assert last
    return num_again


def test_a_driver_that_is_killed_and_resumed_finds_its_machines_and_starts_few_trials_again(tmp_path, machines):
    script, log = tmp_path / "mine.py", tmp_path / "driver.log"
    script.write_text(SHORT)
    where = ["--engine", "agents", "--cluster", "here=false", "--storage", str(tmp_path)]
    asked = [
        "run",
        f"{script}:train",
        "x=uniform(0,1)",
        "--minimize",
        "loss",
        "--trials",
        str(NUM_SHORT),
        "--cpus",
        "1",
    ]

    def drive(*words: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen([*CLI, *words, *where], stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def num_of(status: str) -> int:
        return sum(trial.status == status for trial in ExperimentReader(tmp_path / "chaos").trials())

    driver = drive(*asked, "--name", "chaos")
    try:
        await_(agents_directory(tmp_path / "chaos").exists, driver, log)
        for _ in range(NUM_MACHINES):
            machines.join()
        for kill in range(1, NUM_KILLS + 1):
            due = kill * NUM_SHORT // (NUM_KILLS + 1)
            await_(lambda due=due: num_of("TERMINATED") >= due, driver, log)
            driver.kill()
            driver.wait()
            driver = drive("resume", "chaos")
        ended(driver, machines, log)
    finally:
        driver.kill()
        driver.wait()
    assert {machine.process.returncode for machine in machines.all} == {0}
    assert {machine.num_joined for machine in machines.all} == {NUM_KILLS + 1}
    again = started_again(tmp_path / "chaos")
    print(f"started again after each kill, of {NUM_SHORT} trials: {[again[run] for run in range(2, NUM_KILLS + 2)]}")
    assert all(number <= MOST_AGAIN * NUM_SHORT for number in again.values())
    assert num_of("TERMINATED") == NUM_SHORT
    assert sweep.replay(tmp_path / "chaos").differences == []


def started_again(experiment: Path) -> Counter[int]:
    """Return how many trials each driver, counted from one, has started that had been started before; see that none of
    them had ended."""
    run, started, over, again = 0, set(), set(), Counter[int]()
    for fact in read_facts(experiment / "sweep.db"):
        run += isinstance(fact.event, PlanChanged)
        for command in fact.caused or ():
            if command[0] == "Start":
                assert command[1] not in over
                again[run] += command[1] in started
                started.add(command[1])
            elif command[:2] == ["Notify", "trial_complete"]:
                over.add(command[2])
    assert len(over) == NUM_SHORT
    return again
