"""Trials on several machines, with plain processes as their agents: what is lost, what is refused, what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from agent_processes import AgentProcesses
from conformance.engines import CPU, Behaviour, collect, context, has_released, has_reported, shapes, trial
from conformance.processes import Watch, of_experiment

import sweep
from sweep.core.messages import Continue, Exited, ExitKind, Kill, NodesChanged, Released, Start
from sweep.core.resources import BundlePlacement as At
from sweep.core.resources import Device, Node, Placement
from sweep.core.trial import evolve
from sweep.engines.cluster import agents as agents_module
from sweep.engines.cluster.agent import Setup
from sweep.engines.local.fork_server_client import own_path
from sweep.errors import ExperimentError
from sweep.record.facts import read_facts

pytestmark = pytest.mark.agents

TWO = [Node(id=name, cpus=2.0, devices=(Device("0"), Device("1"))) for name in ("one", "two")]
ENDLESS = Behaviour(num_reports=1_000_000).as_function()


def on(node: str, number: int, attempt: int = 1):
    """Return a trial that was granted a CPU of a node."""
    return trial(number, attempt, resources=CPU, placement=Placement((At(node),)))


@pytest.fixture
def two(tmp_path):
    """Return `two(trainable)`: an engine on two nodes, and its cluster; closed afterwards."""
    made = []

    def make(trainable=ENDLESS, **fields):
        cluster = AgentProcesses(TWO, heartbeat_timeout_s=5.0)
        engine = cluster(context(tmp_path / "experiment", trainable, **{"nodes": TWO, **fields}))
        made.append(engine)
        return engine, cluster

    yield make
    for engine in made:
        engine.close()


def kinds(events):
    return [type(event).__name__ for event in events if not isinstance(event, sweep.core.messages.Waiting)]


def test_what_an_agent_that_dies_ran_is_lost_first_then_the_node_and_then_it_comes_back(two, tmp_path):
    engine, cluster = two()
    engine.execute(Start(on("one", 0)))
    engine.execute(Start(on("two", 1)))
    collect(engine, lambda seen: {s[1] for s in shapes(seen) if s[0] == "reported"} == {"abcde_00000", "abcde_00001"})
    before = cluster.processes["two"]
    os.kill(before.pid, signal.SIGKILL)

    seen = collect(engine, lambda seen: sum(isinstance(event, NodesChanged) for event in seen) == 2)

    of_node = [e for e in seen if isinstance(e, NodesChanged) or getattr(e, "trial_id", "") == "abcde_00001"]
    lost = kinds(of_node).index("Exited")
    assert kinds(of_node)[lost:] == ["Exited", "NodesChanged", "Released", "NodesChanged"]
    exited, gone, _, back = of_node[lost:]
    assert exited.exit.kind is ExitKind.NODE_LOST
    assert exited.exit.error == "node two was lost: its agent ended"
    assert [node.id for node in gone.nodes] == ["one"]
    assert [node.id for node in gone.away] == ["two"]
    assert [node.id for node in back.nodes] == ["one", "two"]
    assert back.away == ()
    assert cluster.processes["two"] is not before
    engine.execute(Start(on("two", 1, attempt=2)))
    again = collect(engine, lambda seen: any(s[:3] == ("reported", "abcde_00001", 2) for s in shapes(seen)))
    assert not any(isinstance(event, Exited) for event in again)  # the other node's trial goes on
    engine.close()
    assert Watch(of_experiment(tmp_path / "experiment")).left() == []


@pytest.mark.parametrize("bad", [1, 2])
def test_an_agent_that_ends_before_it_has_connected_is_called_again(tmp_path, monkeypatch, bad):
    """It is the first that a node has, or the one in place of another that was lost."""
    monkeypatch.setattr(agents_module, "_AGAIN_S", (0.05,))
    monkeypatch.setattr(agents_module, "_LOOK_S", 0.05)

    class Failing(AgentProcesses):
        calls = 0

        def summon(self, node, invitation):
            self.calls += node == "two"
            is_bad = node == "two" and self.calls == bad
            super().summon(node, replace(invitation, key="00" * 32) if is_bad else invitation)

    cluster = Failing(TWO, heartbeat_timeout_s=5.0)
    engine = cluster(context(tmp_path / "experiment", ENDLESS, nodes=TWO))
    try:
        assert len(engine.nodes()) == 2
        os.kill(cluster.processes["two"].pid, signal.SIGKILL)
        seen = collect(engine, lambda seen: sum(isinstance(event, NodesChanged) for event in seen) == 2)
        assert [len(event.nodes) for event in seen if isinstance(event, NodesChanged)] == [1, 2]
        assert cluster.calls == 3
    finally:
        engine.close()


def test_a_start_for_a_node_that_was_lost_meanwhile_ends_as_lost(two):
    engine, cluster = two()
    os.kill(cluster.processes["two"].pid, signal.SIGKILL)
    collect(engine, lambda seen: any(isinstance(event, NodesChanged) for event in seen))
    engine.execute(Start(on("two", 0)))
    seen = collect(engine, has_released(1))
    (exited,) = [event for event in seen if isinstance(event, Exited)]
    assert exited.exit.kind is ExitKind.NODE_LOST
    assert "before the trial started there" in exited.exit.error


def test_what_a_killed_trial_of_a_lost_node_has_said_is_said_once(two):
    engine, cluster = two()
    engine.execute(Start(on("two", 0)))
    collect(engine, has_reported(1))
    engine.execute(Kill("abcde_00000", 1))
    os.kill(cluster.processes["two"].pid, signal.SIGKILL)
    seen = collect(
        engine, lambda seen: any(isinstance(event, NodesChanged) for event in seen) and has_released(1)(seen)
    )
    assert [kind for kind in kinds(seen) if kind in ("Exited", "Released")] == ["Exited", "Released"]


def test_trials_of_a_node_see_its_devices_and_each_node_gives_out_its_own(tmp_path):
    def show(config):
        sweep.report({"devices": os.environ["CUDA_VISIBLE_DEVICES"], "cwd": os.getcwd()})

    analysis = sweep.run(
        show,
        num_samples=4,
        resources_per_trial={"cpu": 1, "gpu": 1},
        engine=AgentProcesses(TWO),
        storage_path=tmp_path,
        name="shown",
        verbose=0,
    )
    trials = list(analysis.trials)
    assert sorted((t.last_result["devices"]) for t in trials) == ["0", "0", "1", "1"]
    assert {t.last_result["cwd"] for t in trials} == {os.getcwd()}
    assert not list((tmp_path / "shown" / "code").glob("driver-*"))


def test_a_result_names_the_address_of_its_node(tmp_path):
    nodes = [replace(node, address=f"127.0.0.{last}") for last, node in enumerate(TWO, 3)]
    options = {"engine": AgentProcesses(nodes), "storage_path": tmp_path, "verbose": 0, "name": "addressed"}
    analysis = sweep.run(lambda config: {"loss": 1}, num_samples=2, resources_per_trial={"cpu": 2}, **options)
    assert sorted(trial.last_result["node_ip"] for trial in analysis.trials) == ["127.0.0.3", "127.0.0.4"]
    assert sorted(analysis.dataframe(full=True)["node_ip"]) == ["127.0.0.3", "127.0.0.4"]
    assert sweep.replay(analysis.experiment_path).differences == []


CLOCK = """
import time

def shift(name, by):
    told = getattr(time, name)
    setattr(time, name, lambda: told() + by)

for name, by in {"time": -86400, "monotonic": 5000}.items():
    shift(name, by)
    shift(name + "_ns", by * 10**9)
"""


def test_the_clock_of_a_node_may_be_wrong_by_a_day(tmp_path):
    """Limits are kept, the sweep's own times are the driver's, and files that seem to come from the future are used."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    variables = {"PYTHONPATH": str(tmp_path / "clock"), "SWEEP_CLAIMS": str(tmp_path / "claims")}
    cluster = AgentProcesses(TWO[:1], environ={**os.environ, **variables})

    def train(config):
        for step in range(10_000 if config["is_endless"] else 3):
            time.sleep(0.05)
            sweep.report(step=step, ahead=time.time() - time.clock_gettime(time.CLOCK_REALTIME))

    began = time.time()
    analysis = sweep.run(
        train,
        config={"is_endless": sweep.grid_search([0, 1])},
        stop={"time_total_s": 1.0},
        engine=cluster,
        storage_path=tmp_path,
        name="made",
        verbose=0,
    )
    facts = list(read_facts(tmp_path / "made" / "sweep.db"))
    assert [one.status for one in analysis.trials] == ["TERMINATED"] * 2
    for one in analysis.trials:
        assert one.last_result["ahead"] == pytest.approx(-86400, abs=10)
        assert 0 < one.last_result["time_total_s"] < time.time() - began
    exits = [fact.event.exit.kind for fact in facts if isinstance(fact.event, Exited)]
    assert exits == [ExitKind.FINISHED, ExitKind.STOPPED]
    assert all(0 <= fact.at <= time.time() - began for fact in facts)
    assert sweep.replay(analysis.experiment_path).differences == []


@pytest.mark.slow
def test_a_killed_driver_leaves_no_process_on_any_node_and_what_had_ended_is_not_run_again(tmp_path):
    script = tmp_path / "drive.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys, time
            import sweep
            from sweep import Node
            from agent_processes import AgentProcesses

            def train(config):
                open(f"{config['seen']}/{config['x']}", "a").write("x")
                for step in range(3 if config["x"] < 2 else 10_000):
                    sweep.report({"loss": step})
                    if config["x"] >= 2 and os.path.exists(config["seen"] + "/resumed"):
                        return

            class Dying(sweep.Callback):
                ended = 0
                def on_trial_complete(self, iteration, trials, trial, **info):
                    self.ended += 1
                    if self.ended == 2 and sys.argv[3] == "die":
                        os.kill(os.getpid(), signal.SIGKILL)

            sweep.run(
                train, config={"x": sweep.grid_search([0, 1, 2, 3]), "seen": sys.argv[2]}, storage_path=sys.argv[1],
                name="killed", engine=AgentProcesses([Node("one", cpus=1), Node("two", cpus=1)], heartbeat_timeout_s=5),
                resume="AUTO", callbacks=[Dying()], verbose=0, max_failures=0,
            )
            """
        )
    )
    seen = tmp_path / "seen"
    seen.mkdir()
    command = [sys.executable, str(script), str(tmp_path), str(seen)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    killed = subprocess.run([*command, "die"], env=environ, capture_output=True, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert Watch(of_experiment(tmp_path / "killed")).left() == []
    (seen / "resumed").touch()
    resumed = subprocess.run([*command, "live"], env=environ, capture_output=True, text=True, timeout=60)
    assert resumed.returncode == 0, resumed.stderr
    assert [(seen / name).read_text() for name in ("0", "1")] == ["x", "x"]
    frame = sweep.ExperimentAnalysis(tmp_path / "killed").dataframe()
    assert len(frame) == 4
    assert Watch(of_experiment(tmp_path / "killed")).left() == []


def refused(tmp_path, change, monkeypatch):
    """Return the error of a run whose setup or hello was changed."""
    monkeypatch.setattr("sweep.engines.cluster.agents.Setup", lambda *given, **more: change(Setup(*given, **more)))
    cluster = AgentProcesses(TWO, heartbeat_timeout_s=5.0)
    with pytest.raises(ExperimentError) as raised:
        cluster(context(tmp_path / "experiment", ENDLESS, nodes=TWO))
    assert cluster.processes == {}
    assert Watch(of_experiment(tmp_path / "experiment")).left() == []
    return str(raised.value)


def test_a_directory_that_a_node_does_not_see_is_refused_by_name(tmp_path, monkeypatch):
    def elsewhere(setup):
        return replace(setup, context=replace(setup.context, directory=tmp_path / "elsewhere"))

    said = refused(tmp_path, elsewhere, monkeypatch)
    assert said.startswith("trials cannot run on one: it does not see the files of")
    assert "; on two: it does not see" in said
    assert said.endswith("Nothing was started.")


def test_a_module_that_a_node_cannot_import_is_refused_by_name(tmp_path, monkeypatch):
    def with_more(setup):
        trainable = replace(setup.context.trainable, imports=("numpy", "no_such_module.part"))
        return replace(setup, context=replace(setup.context, trainable=trainable))

    said = refused(tmp_path, with_more, monkeypatch)
    assert "trials cannot run on one: it cannot import no_such_module.part, which the trainable needs" in said


def test_an_agent_of_another_version_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(agents_module, "VERSION", "99.0")
    said = refused(tmp_path, lambda setup: setup, monkeypatch)
    assert f"trials cannot run on one: it has sweep {sweep.__version__}, the driver 99.0" in said


@pytest.mark.slow
def test_a_node_whose_agent_does_not_come_is_left_out_and_one_without_any_is_refused(tmp_path):
    class Lame(AgentProcesses):
        start_s = 3.0
        lame = ("two",)

        def summon(self, node, invitation):
            if node not in self.lame:
                super().summon(node, invitation)

        def problem(self, node):
            return "its machine is on fire"

    said = []
    engine = Lame(TWO)(context(tmp_path / "one", ENDLESS, nodes=TWO, notice=said.append))
    try:
        assert [node.id for node in engine.nodes()] == ["one"]
        assert [node.id for node in engine.away] == ["two"]
        assert said == ["node two is not there yet: its machine is on fire; the sweep begins without it"]
    finally:
        engine.close()
    none = Lame(TWO)
    none.lame = ("one", "two")
    with pytest.raises(ExperimentError, match=r"on one: its machine is on fire; on two: its machine is on fire"):
        none(context(tmp_path / "none", ENDLESS, nodes=TWO))


def test_a_process_that_was_an_agent_lives_on_as_it_was(tmp_path, monkeypatch):
    """As a worker of Dask does, in which agents are tasks."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mine_of_a_driver.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    code = f"""
        import sys
        sys.path[:] = {[entry for entry in own_path() if str(tmp_path) not in entry]!r}
        import json, pathlib, threading, time, sweep
        before, line = sys.path.copy(), sys.stdin.readline()
        sweep.run_agent(line)
        give_up = time.monotonic() + 30  # for the thread that asks whether the node will be taken away
        while [one.name for one in threading.enumerate()] != ["MainThread"] and time.monotonic() < give_up:
            time.sleep(0.05)
        threads = [one.name for one in threading.enumerate()]
        pathlib.Path({str(tmp_path / "seen")!r}).write_text(json.dumps([threads, sys.path == before]))
    """
    monkeypatch.setattr("agent_processes._BOOT", textwrap.dedent(code).replace("{", "{{").replace("}", "}}"))
    cluster = AgentProcesses(TWO[:1])
    cluster.notice_command = "false"
    cluster(context(tmp_path / "experiment", ENDLESS, nodes=TWO[:1])).close()
    assert json.loads((tmp_path / "seen").read_text()) == [["MainThread"], True]


def test_objects_of_the_users_own_never_reach_an_agent(two, tmp_path):
    """The agent would have to unpickle them; only the worker does."""

    def load():
        import os

        return {} if "SWEEP_TRIAL" in os.environ else os._exit(3)

    class Poison:
        def __reduce__(self):
            return load, ()

    def train(config):
        sweep.report({"kind": type(config["x"]).__name__})

    engine, _ = two(train)
    engine.execute(Start(evolve(on("one", 0), config={"x": Poison()})))
    seen = collect(engine, has_released(1), answer=lambda r: Continue(r.trial_id, r.attempt, r.seq))
    (exited,) = [event for event in seen if isinstance(event, Exited)]
    assert exited.exit.kind is ExitKind.FINISHED, exited.exit
    assert isinstance(seen[-1], Released)
