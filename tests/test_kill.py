"""The driver is killed with SIGKILL at chosen moments of one sweep, and resumed each time: at seven, or at twenty."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from orphans import MARK, wait_until_gone

import sweep
from sweep.core.messages import Exited, Released, Reported
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader

TESTS = Path(__file__).parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process model is tested on Linux")

# What the driver script dies of: "before" or "after" the commit of the n-th batch that holds such an event or command.
MOMENTS = [
    ("after", "Suggested", 1),
    ("after", "Suggest", 1),
    ("before", "Suggested", 1),
    ("after", "Start", 1),  # a trial is STARTING
    ("before", "Started", 3),
    ("after", "Started", 5),
    ("before", "Reported", 7),  # a report is pending and not recorded
    ("after", "Reported", 9),  # it is recorded and not answered
    ("after", "checkpoint", 2),
    ("before", "checkpoint", 3),
    ("saving", "", 4),  # the trial is writing a checkpoint
    ("saving", "", 9),
    ("after", "Stop", 2),  # a trial is STOPPING
    ("before", "Stop", 4),
    ("before", "Exited", 3),
    ("after", "Exited", 6),
    ("before", "Released", 5),
    ("after", "Released", 8),
    ("after", "Start", 12),
    ("after", "Reported", 60),
]

SOME = [
    ("after", "Start", 1),
    ("before", "Reported", 7),
    ("saving", "", 4),
    ("after", "Stop", 2),
    ("after", "Exited", 3),
]

SCRIPT = """
import os, signal, subprocess, sys, tempfile
import sweep
from sweep.record.journal import Journal

root, when, what, durability = sys.argv[1], *sys.argv[3:5], sys.argv[6]
num_trials, number = int(sys.argv[2]), int(sys.argv[5])
seen = 0
commit = Journal.commit

def names(events, commands):
    found = {type(event).__name__ for event in events}
    found |= {type(command).__name__ for some in commands for command in some}
    if any(getattr(event, "checkpoint", None) for event in events):
        found.add("checkpoint")
    return found

def dying(self, events, commands, changes, now):
    global seen
    is_it = what in names(events, commands)
    seen += is_it
    if is_it and seen == number and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, events, commands, changes, now)
    if is_it and seen == number and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)

Journal.commit = dying
driver = os.getpid()

def train(config):
    subprocess.Popen(["setsid", "sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoint = sweep.get_checkpoint()
    first = 1 if checkpoint is None else int(open(checkpoint.path + "/step").read()) + 1
    for step in range(first, 6):
        loss = (config["x"] - 0.4) ** 2 + 1 / step
        if step != 2:
            sweep.report(loss=loss, step=step)
            continue
        with tempfile.TemporaryDirectory() as directory:
            with open(directory + "/step", "w") as file:
                file.write(str(step))
            with open(directory + "/ballast", "wb") as file:
                file.write(b"x" * 200_000)
            if when == "saving":
                with open(f"{root}/saves-{driver}", "ab") as file:
                    file.write(b"x")
                if os.path.getsize(f"{root}/saves-{driver}") == number:
                    os.kill(driver, signal.SIGKILL)
            sweep.report(loss=loss, step=step, checkpoint=sweep.Checkpoint.from_directory(directory))

sweep.run(
    train, name="killed", storage_path=root, config={"x": sweep.uniform(0, 1)}, num_samples=num_trials, metric="loss",
    mode="min", stop={"step": 4}, resources_per_trial={"cpu": 0.5}, nodes=[sweep.Node(cpus=2)], seed=3, verbose=0,
    resume=True, checkpoint_config=sweep.CheckpointConfig(num_to_keep=1), durability=durability,
)
"""


LANES = """
import os, signal, sys
import sweep
from lanes_programs import Climbs
from sweep.record.journal import Journal

root, num_lanes, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
commit, seen = Journal.commit, 0

def dying(self, *arguments):
    global seen
    seen += 1
    if seen == last:
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, *arguments)

Journal.commit = dying

class Members(Climbs):
    num_lanes = num_lanes if num_lanes == "auto" else int(num_lanes)

pbt = sweep.PopulationBasedTraining(
    time_attr="training_iteration", perturbation_interval=5, hyperparam_mutations={"lr": sweep.uniform(0.01, 0.3)}
)
sweep.run(
    Members, name="killed", storage_path=root, config={"x": sweep.uniform(0, 1), "lr": sweep.uniform(0.01, 0.3)},
    num_samples=8, metric="loss", mode="min", scheduler=pbt, stop={"training_iteration": 150}, seed=3, verbose=0,
    nodes=[sweep.Node(cpus=2)], resume=True,
)
"""


def drive(root: Path, script: Path, num_trials: int, moment, mark: str, durability: str) -> int:
    return ended(mark, script, root, num_trials, *moment, durability)


def ended(mark: str, *arguments: object) -> int:
    """Run a script to its end, which is that or SIGKILL; return the code."""
    environment = {**os.environ, MARK: mark, "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS)))}
    command = [sys.executable, *map(str, arguments)]
    ended = subprocess.run(command, env=environment, capture_output=True, timeout=100, text=True)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("moments", "num_trials", "durability"),
    [
        pytest.param(SOME, 40, "normal", id="five"),
        *[
            pytest.param(MOMENTS, 200, durability, marks=pytest.mark.chaos, id=f"twenty, {durability}")
            for durability in ("normal", "full")
        ],
    ],
)
def test_a_driver_killed_at_many_moments_loses_nothing(tmp_path, moments, num_trials, durability):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    for moment in moments:
        mark = uuid.uuid4().hex
        assert drive(tmp_path, script, num_trials, moment, mark, durability) == -signal.SIGKILL, f"{moment} never came"
        assert not wait_until_gone(mark), f"processes are left after {moment}"
    mark = uuid.uuid4().hex
    assert drive(tmp_path, script, num_trials, ("never", "", 0), mark, durability) == 0
    assert not wait_until_gone(mark)

    experiment = tmp_path / "killed"
    analysis = sweep.ExperimentAnalysis(experiment)
    assert len(analysis.trials) == num_trials
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    told = list(read_facts(experiment / "sweep.db"))
    check_no_trial_runs_after_its_end(told, num_trials)
    check_every_moment_left_its_trace(told, len(moments) + 1)
    again = sweep.replay(experiment)
    assert (again.num_runs, again.differences) == (len(moments) + 1, [])
    values = [row.metrics["loss"] for row in ExperimentReader(experiment).results()]
    best = analysis.get_best_trial("loss", "min", scope="all")
    assert min(values) == best.metric_analysis["loss"]["min"]
    xs = [trial.config["x"] for trial in analysis.trials]
    assert len(set(xs)) == num_trials, "a suggestion was lost or given twice"
    for trial in analysis.trials:
        assert trial.last_result["step"] == 4
        assert trial.checkpoint is not None
        sweep.Checkpoint(trial.checkpoint.path).to_directory(tmp_path / "copy" / trial.trial_id)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [pytest.param(3, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.chaos)])
def test_a_population_of_lanes_whose_driver_is_killed_at_random_moments_loses_nothing(tmp_path, number):
    """Also where the next run has fewer lanes, or finds out how many."""
    script = tmp_path / "train.py"
    script.write_text(LANES)
    moments, seen = random.Random(number), list[tuple[str, int, float]]()
    for num_lanes in itertools.islice(itertools.cycle(["8", "8", "3", "auto"]), number):
        mark = uuid.uuid4().hex
        assert ended(mark, script, tmp_path, num_lanes, moments.randint(1, 25)) == -signal.SIGKILL
        assert not wait_until_gone(mark)
        if (tmp_path / "killed" / "sweep.db").exists():
            seen = reports_after(tmp_path / "killed", seen)
    mark = uuid.uuid4().hex
    assert ended(mark, script, tmp_path, "8", -1) == 0
    assert not wait_until_gone(mark)
    reports_after(tmp_path / "killed", seen)
    trials = ExperimentReader(tmp_path / "killed").trials()
    assert [(row.status, row.count, row.failures) for row in trials] == [("TERMINATED", 150, 0)] * 8
    check_no_trial_runs_after_its_end(list(read_facts(tmp_path / "killed" / "sweep.db")), 8)
    again = sweep.replay(tmp_path / "killed")
    assert again.differences == []
    assert again.num_runs >= number


def reports_after(experiment: Path, before: list[tuple[str, int, float]]) -> list[tuple[str, int, float]]:
    """Return all that was reported; what was reported before is still there."""
    now = [(row.trial_id, row.metrics["step"], row.metrics["loss"]) for row in ExperimentReader(experiment).results()]
    assert now[: len(before)] == before
    return now


def check_no_trial_runs_after_its_end(told, num_trials: int) -> None:
    ended: set[str] = set()
    ends: Counter[str] = Counter()
    for row in told:
        for command in row.caused or ():
            if command[0] == "Start":
                assert command[1] not in ended, f"{command[1]} ran again after its committed end"
            if command[0] == "Notify" and command[1] in ("trial_complete", "trial_error"):
                ended.add(command[2])
                ends[command[2]] += 1
    assert len(ended) == num_trials
    assert set(ends.values()) == {1}


def check_every_moment_left_its_trace(told, num_runs: int) -> None:
    """At least one kill hit a trial in each of the states that the moments aim at."""
    runs: list[list] = []
    for row in told:
        if type(row.event).__name__ == "PlanChanged":
            runs.append([])
        runs[-1].append(row)
    assert len(runs) == num_runs
    # what the last commit of each run holds: its events share the time
    last = [[row for row in run if row.at == run[-1].at] for run in runs[:-1]]
    last_commands = [[command[0] for row in rows for command in row.caused or ()] for rows in last]
    assert any("Start" in commands for commands in last_commands)  # STARTING
    assert any("Stop" in commands for commands in last_commands)  # STOPPING
    assert any(isinstance(row.event, Reported) for rows in last for row in rows)  # a report waits for its answer
    assert any(isinstance(row.event, (Exited, Released)) for rows in last for row in rows)
