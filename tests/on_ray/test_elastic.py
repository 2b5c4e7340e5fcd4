"""A sweep beside others on a cluster of Ray: it takes what comes free, waits for what is held, and gives back."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import sweep
from sweep.core.messages import Exited, ExitKind, NodesChanged
from sweep.record.facts import read_facts

LATER = "127.0.0.6"  # a node that these tests add

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture
def hold(joined):
    """Return a function that holds so many CPUs, of one node after another, and returns what gives each back."""
    held = []

    class Other:  # here, so that it travels by value
        def ping(self):
            return True

    def take(*cpus):
        new = [
            joined.remote(Other).options(num_cpus=number, name=f"model server {time.time_ns()}").remote()
            for number in cpus
        ]
        joined.get([one.ping.remote() for one in new])
        held.extend(new)
        return [lambda one=one: joined.kill(one) for one in new]

    yield take
    for one in held:
        joined.kill(one)


def nodes_seen(analysis):
    """Return how many CPUs the sweep had, one time after another."""
    events = [row.event for row in read_facts(Path(analysis.experiment_path, "sweep.db"))]
    return [sum(node.cpus for node in event.nodes) for event in events if isinstance(event, NodesChanged)]


def test_a_sweep_on_a_cluster_that_others_hold_waits_names_them_and_runs_when_they_give_back(hold, run, left, tmp_path):
    give_back, _ = hold(4, 4)
    reasons = []
    options = {"max_nodes": 1}  # so that nothing may come but the agent of the node that is given back

    class Look(sweep.Callback):
        def on_step(self, trials, now, changed):
            if not reasons:
                threading.Timer(1.0, give_back).start()
            reasons.extend(trials[one].reason for one in changed)

    analysis = run(
        lambda config: {"loss": 1.0}, num_samples=2, resources_per_trial={"cpu": 2}, callbacks=[Look()], init=options
    )
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert any("held by model server" in reason for reason in reasons)
    assert nodes_seen(analysis)[0] == 0
    assert max(nodes_seen(analysis)) == 4


def test_what_comes_free_is_taken_while_trials_wait_and_what_runs_nothing_is_given_back(hold, joined, run):
    (give_back,) = hold(3)
    free, is_over = [], threading.Event()

    def train(config):
        time.sleep(12.0 if config["x"] < 4 else 25.0)
        return {"loss": 1.0}

    def look():
        while joined.available_resources().get("CPU", 0.0) and not is_over.wait(0.1):
            continue  # until the sweep has taken what the other one has left
        give_back()
        while not is_over.wait(0.2):
            free.append(joined.available_resources().get("CPU", 0.0))

    looking = threading.Thread(target=look)
    looking.start()
    analysis = run(
        train,
        config={"x": sweep.grid_search(list(range(9)))},
        resources_per_trial={"cpu": 1},
        init={"idle_s": 3.0},
    )
    is_over.set()
    looking.join()
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 9
    assert nodes_seen(analysis)[0] == 5
    assert max(nodes_seen(analysis)) == 8  # what was held there, on its own
    assert 3.0 in free or 4.0 in free  # given back before the end
    assert sweep.replay(analysis.experiment_path).differences == []


def test_trials_of_a_node_that_is_drained_save_and_go_on_elsewhere_before_it_is_gone(cluster, joined, run):
    node = cluster.add_node(node_ip_address=LATER, num_cpus=1, resources={"later": 1})
    key = next(one["NodeID"] for one in joined.nodes() if one["NodeManagerAddress"] == LATER)
    drain = [*(sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", cluster.address)]
    drain += ["--node-id", key, "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot"]
    drained = []

    def train(config):
        checkpoint = sweep.get_checkpoint()
        first = int(Path(checkpoint.path, "step").read_text()) + 1 if checkpoint else 0
        for step in range(first, 40):
            time.sleep(0.4)
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "step").write_text(str(step))
                sweep.report({"step": step, "first": first}, checkpoint=sweep.Checkpoint.from_directory(directory))

    class Drain(sweep.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if not drained and result["step"] == 3 and result["node_ip"] == LATER:
                drained.append(subprocess.Popen([*drain, "--deadline-remaining-seconds", "120"]))

    try:
        analysis = run(train, num_samples=9, resources_per_trial={"cpu": 1}, callbacks=[Drain()])
    finally:
        cluster.remove_node(node)
    assert drained[0].wait() == 0
    frames = analysis.trial_dataframes.values()
    assert [list(frame["step"]) for frame in frames] == [list(range(40))] * 9
    assert max(frame["first"].max() for frame in frames) > 3
    events = [row.event for row in read_facts(Path(analysis.experiment_path, "sweep.db"))]
    assert not [event for event in events if isinstance(event, Exited) and event.exit.kind is ExitKind.NODE_LOST]
