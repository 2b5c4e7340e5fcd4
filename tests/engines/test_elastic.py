"""Nodes that come when they are needed and are given back when idle, with plain processes as their agents."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from itertools import groupby
from pathlib import Path

import pytest
from agent_processes import AgentProcesses
from conformance.engines import CPU, Behaviour, collect, context, has_released, trial

import sweep
from sweep.core.messages import Continue, Declined, Exited, ExitKind, NodesChanged, Start
from sweep.core.resources import BundlePlacement, Node, Placement
from sweep.errors import ExperimentError
from sweep.record.facts import read_facts
from sweep.record.resume import load

pytestmark = pytest.mark.agents

ONE, TWO = (Node(name, cpus=1.0) for name in ("one", "two"))
SHORT = Behaviour(num_reports=1).as_function()


def on(node: str, number: int, attempt: int = 1):
    """Return a trial that was granted a CPU of a node."""
    return trial(number, attempt, resources=CPU, placement=Placement((BundlePlacement(node),)))


class Elastic(AgentProcesses):
    """A cluster that has nodes only while something waits that they could run."""

    def __init__(self, nodes, *, idle_s=1.0, comes_after_s=0.0):
        super().__init__([], heartbeat_timeout_s=5.0)
        self.idle_s = idle_s
        self.all, self.comes_after_s = tuple(nodes), comes_after_s
        self.asked, self.dismissed = [], []
        self.changed = lambda: None

    @property
    def away(self):
        return tuple(node for node in self.all if node not in self._nodes)

    def watch(self, changed):
        self.changed = changed

    def request(self, waiting, running):
        self.asked.append((len(waiting), len(running)))
        if waiting and self.away:
            threading.Timer(self.comes_after_s, self.come, [self.away[0]]).start()

    def come(self, node):
        if node not in self._nodes:
            self._nodes = (*self._nodes, node)
            self.changed()

    def dismiss(self, node):
        self.dismissed.append(node)
        self._nodes = tuple(one for one in self._nodes if one.id != node)


def run(cluster, tmp_path, train, **options):
    return sweep.run(
        train, engine=cluster, storage_path=tmp_path, name="made", verbose=0, resources_per_trial={"cpu": 1}, **options
    )


def machines(tmp_path):
    """Return the names of the nodes that were there, one after another."""
    events = [row.event for row in read_facts(tmp_path / "made" / "sweep.db")]
    return ["".join(node.id[0] for node in event.nodes) for event in events if isinstance(event, NodesChanged)]


def test_a_sweep_begins_without_a_node_says_what_it_waits_for_and_runs_when_one_comes(tmp_path):
    cluster = Elastic([ONE], comes_after_s=1.0)
    seen = []

    class Look(sweep.Callback):
        def on_step(self, trials, now, changed):
            seen.extend(trials[one].reason for one in changed if not cluster.nodes())

    analysis = run(cluster, tmp_path, lambda config: {"loss": 1.0}, num_samples=2, callbacks=[Look()])
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 2
    assert "waits for node 'one' (cpu=1), which is not available now; there is no node at all" in seen
    assert (2, 0) in cluster.asked
    assert sweep.replay(analysis.experiment_path).differences == []


def test_a_node_that_runs_nothing_is_given_back_and_called_again_when_something_waits(tmp_path):
    is_given_back, has_run = str(tmp_path / "given-back"), str(tmp_path / "has-run")

    def train(config):
        import os
        import time

        awaited = {0: is_given_back, 2: has_run}.get(config["x"])  # else which node is idle first is a matter of speed
        while awaited is not None and not os.path.exists(awaited):
            time.sleep(0.05)
        if config["x"] == 3:
            open(has_run, "w").close()
        return {"loss": 1.0}

    class Later(sweep.Searcher):
        """Suggests two trials, and two more once a node has gone."""

        given = 0

        def suggest(self, trial_id):
            if self.given == 2 and not cluster.dismissed:
                return None
            self.given += 1
            return {"x": self.given - 1}

        def on_trial_complete(self, trial_id, result=None, error=False):
            pass

    cluster = Elastic([ONE, TWO])
    dismiss = cluster.dismiss
    cluster.dismiss = lambda node: (dismiss(node), (tmp_path / "given-back").touch())
    analysis = run(cluster, tmp_path, train, num_samples=4, search_alg=Later(), metric="loss", mode="min")
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 4
    assert cluster.dismissed[0] == "two"
    seen = [names for names, _ in groupby(machines(tmp_path))][1:]
    assert seen[:4] == ["o", "ot", "o", "ot"]  # grown, given back, and grown again


def test_a_trial_for_a_node_that_was_given_back_meanwhile_is_declined(tmp_path):
    cluster = Elastic([ONE, TWO], idle_s=0.2)
    cluster._nodes = (ONE, TWO)
    engine = cluster(context(tmp_path / "experiment", SHORT, nodes=(ONE, TWO)))
    try:
        collect(engine, lambda seen: sum(isinstance(event, NodesChanged) for event in seen) == 2)
        assert sorted(cluster.dismissed) == ["one", "two"]
        assert (list(engine.nodes()), sorted(node.id for node in engine.away)) == ([], ["one", "two"])
        engine.execute(Start(on("two", 0)))
        assert engine.next_events(None) == [Declined("abcde_00000", 1)]
        cluster.come(TWO)
        collect(engine, lambda seen: any(isinstance(event, NodesChanged) and event.nodes for event in seen))
        engine.execute(Start(on("two", 0, attempt=2)))
        collect(engine, has_released(1), answer=lambda r: Continue(r.trial_id, r.attempt, r.seq))
    finally:
        engine.close()


def test_a_cluster_without_nodes_of_which_none_may_come_is_refused(tmp_path):
    with pytest.raises(ExperimentError, match="the cluster has no node, and none that may come"):
        Elastic([])(context(tmp_path / "experiment", SHORT, nodes=()))


def test_a_sweep_whose_only_node_comes_while_it_looks_at_what_there_is_runs_there(tmp_path):
    class JustThen(Elastic):
        def nodes(self):
            before, self._nodes = self._nodes, self.all
            return before

    cluster = JustThen([ONE])
    analysis = run(cluster, tmp_path, lambda config: {"loss": 1.0})
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"]
    assert (machines(tmp_path)[0], cluster.away) == ("", ())  # it came after the first look, and was the last to come


def test_a_node_that_has_come_and_is_not_taken_in_yet_counts_among_those_that_may_come(tmp_path):
    cluster = Elastic([ONE, TWO])
    cluster._nodes = (ONE,)
    engine = cluster(context(tmp_path / "experiment", SHORT, nodes=(ONE,)))
    try:
        assert (engine.nodes()[0].id, list(engine.away)) == ("one", [TWO])
        cluster._nodes = (ONE, TWO)  # `changed` would be called next
        assert (cluster.away, list(engine.away)) == ((), [TWO])
    finally:
        engine.close()


@pytest.mark.parametrize("how", ["signal", "command"])
def test_an_agent_that_is_told_to_end_has_its_trials_saved_and_taken_elsewhere_first(tmp_path, how):
    cluster = AgentProcesses([ONE, TWO], heartbeat_timeout_s=5.0)
    began = []
    num_steps = 30 if how == "signal" else 90
    if how == "command":
        cluster.notice_command = f"rm {tmp_path / 'leave'}"  # succeeds once: one of the two nodes leaves

    def train(config):
        checkpoint = sweep.get_checkpoint()
        first = int(Path(checkpoint.path, "step").read_text()) + 1 if checkpoint else 0
        for step in range(first, num_steps):
            time.sleep(0.1)
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "step").write_text(str(step))
                sweep.report({"step": step, "first": first}, checkpoint=sweep.Checkpoint.from_directory(directory))

    class Notice(sweep.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            if result["step"] == 10 and not began:
                began.append(trial.trial_id)
                if how == "command":
                    (tmp_path / "leave").touch()
                else:
                    os.kill(cluster.processes["two"].pid, signal.SIGTERM)

    analysis = run(cluster, tmp_path, train, num_samples=3, callbacks=[Notice()])
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 3
    frames = analysis.trial_dataframes.values()
    assert [list(frame["step"]) for frame in frames] == [list(range(num_steps))] * 3
    assert max(frame["first"].max() for frame in frames) > 0  # one went on from its checkpoint
    events = [row.event for row in read_facts(tmp_path / "made" / "sweep.db")]
    assert not [event for event in events if isinstance(event, Exited) and event.exit.kind is ExitKind.NODE_LOST]
    assert all(trial.node_losses == 0 for trial in load(tmp_path / "made" / "sweep.db", root=tmp_path / "made").trials)
    assert sweep.replay(analysis.experiment_path).differences == []


def test_a_node_that_has_left_for_good_is_not_called_again_and_forgotten_when_it_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("sweep.engines.cluster.agents._AGAIN_S", (0.1,))
    called = []

    class Counting(AgentProcesses):
        may_return = False

        def summon(self, node, invitation):
            called.append(node)
            super().summon(node, invitation)

    cluster = Counting([ONE, TWO], heartbeat_timeout_s=5.0)
    engine = cluster(context(tmp_path / "experiment", SHORT, nodes=(ONE, TWO)))

    def pump(until):
        give_up = time.monotonic() + 20
        while not until():
            assert time.monotonic() < give_up
            engine.next_events(engine.now() + 0.1)

    try:
        two = cluster.processes["two"]
        two.send_signal(signal.SIGTERM)
        pump(lambda: two.poll() is not None)
        enough = time.monotonic() + 2
        pump(lambda: time.monotonic() > enough)
        assert called == ["one", "two"]
        assert [node.id for node in engine.away] == ["two"]
        cluster._nodes = (ONE,)
        pump(lambda: not engine.away)
    finally:
        engine.close()
