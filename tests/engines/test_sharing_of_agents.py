"""Agents of one run beside another sweep on their machine: it keeps off them, they keep off it, not off each other."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import pytest
from agent_processes import AgentProcesses
from conformance.engines import Behaviour, collect, context, has_released, has_reported, shapes, trial

import sweep
from sweep.core.messages import ClaimsChanged, Declined, Exited, ExitKind, Released, Start
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.engines.local.claims import Claims
from sweep.train import DataParallelTrainer, ScalingConfig

pytestmark = pytest.mark.agents

GPU = Resources((Bundle(gpu=1),))
GPUS = (Device("0"), Device("1"))
TWO = [Node(id=name, cpus=2.0, devices=GPUS) for name in ("one", "two")]  # the ids of their devices are the same
THEIRS = Node("local", cpus=4.0, devices=GPUS)


def on(node: str, device: str, number: int = 0):
    """Return a trial that was granted a GPU of a node."""
    return trial(number, resources=GPU, placement=Placement((BundlePlacement(node, ((device, 1.0),)),)))


def at(device: str) -> Placement:
    return Placement((BundlePlacement("local", ((device, 1.0),)),))


@pytest.fixture
def other(tmp_path, monkeypatch):
    """Another sweep of this machine."""
    path = tmp_path / "claims"
    path.mkdir()
    monkeypatch.setenv("SWEEP_CLAIMS", str(path))
    claims = Claims(path, (THEIRS,), experiment="other")
    yield claims
    claims.close()


@contextmanager
def engine_in(directory, trainable=None):
    trainable = trainable or Behaviour(num_reports=2).as_function()
    engine = AgentProcesses(TWO, heartbeat_timeout_s=5.0)(context(directory, trainable, nodes=TWO))
    try:
        yield engine
    finally:
        engine.close()


def news(events):
    """Return what is told of claims: the devices that others hold, and the trials that were declined."""
    return [
        {(node, device) for claim in event.others for node, _, device, _ in claim.held}
        if isinstance(event, ClaimsChanged)
        else event.trial_id
        for event in events
        if isinstance(event, (ClaimsChanged, Declined))
    ]


def has_news(number):
    return lambda seen: len(news(seen)) >= number


def test_nodes_of_one_run_on_one_machine_hold_equal_devices_at_once_and_another_sweep_keeps_off_both(tmp_path, other):
    with engine_in(tmp_path / "exp") as engine:
        assert engine.claims() == ()
        engine.execute(Start(on("one", "0", 0)))
        engine.execute(Start(on("two", "0", 1)))
        seen = collect(engine, has_reported(2), answer=None)
        assert {s[1] for s in shapes(seen) if s[0] == "reported"} == {"abcde_00000", "abcde_00001"}
        assert news(seen) == []
        assert not other.take("theirs", GPU, at("0"))
        assert other.take("theirs", GPU, at("1"))
        assert {row[2] for claim in other.others for row in claim.held} == {"0"}
        assert {claim.experiment for claim in other.others} == {"exp"}
    assert other.take("theirs too", GPU, at("0")), "a run that is over holds nothing"


def test_what_another_sweep_holds_is_told_of_all_nodes_and_a_start_there_is_declined_until_it_is_given_back(
    tmp_path, other
):
    other.take("theirs", GPU, at("0"))
    with engine_in(tmp_path / "exp") as engine:
        held = {(claim.experiment, row[::2]) for claim in engine.claims() for row in claim.held}
        assert held == {("other", ("one", "0")), ("other", ("two", "0"))}
        other.take("more", GPU, at("1"))
        engine.execute(Start(on("two", "1")))
        seen = collect(engine, lambda seen: any(isinstance(event, Declined) for event in seen))
        assert news(seen) == [{("one", "0"), ("two", "0"), ("two", "1")}, "abcde_00000"], "node one has not looked"
        assert shapes(seen) == []
        engine.want(GPU)
        assert news(collect(engine, has_news(1))) == [{("one", "0"), ("one", "1"), ("two", "0"), ("two", "1")}]
        other.give_back("more")
        seen = collect(engine, lambda seen: news(seen)[-1:] == [{("one", "0"), ("two", "0")}])
        engine.execute(Start(on("two", "1", 1)))
        engine.want(None)
        seen = collect(engine, has_released(1))
        assert [kind for kind, *_ in shapes(seen)] == ["started", "reported", "reported", "exited", "released"]
        assert other.take("more", GPU, at("1")), "what was released is given back"


def test_a_start_that_is_declined_again_and_again_is_tried_four_times_a_second_and_not_in_a_hot_loop(tmp_path, other):
    with engine_in(tmp_path / "exp") as engine:
        other.take("theirs", GPU, at("0"))
        number = 0
        until = engine.now() + 0.6
        while engine.now() < until:
            engine.execute(Start(on("one", "0", number)))
            collect(engine, lambda seen: any(isinstance(event, Declined) for event in seen))
            engine.want(GPU)
            number += 1
        assert number <= 5


@pytest.mark.slow
def test_an_agent_that_dies_takes_what_it_said_of_others_along_and_says_it_again_when_it_is_back(tmp_path, other):
    other.take("theirs", GPU, at("0"))
    with engine_in(tmp_path / "exp") as engine:
        engine.claims()
        engine.execute(Start(on("two", "1")))
        collect(engine, has_reported(1), answer=None)
        os.kill(engine._cluster.processes["two"].pid, signal.SIGKILL)
        seen = collect(engine, has_news(2))
        assert news(seen) == [{("one", "0")}, {("one", "0"), ("two", "0")}]
        assert [type(event) for event in seen if isinstance(event, (Exited, Released))] == [Exited, Released]
        assert other.take("more", GPU, at("1")), "what it held is free"


@pytest.mark.slow
def test_a_group_of_which_one_node_is_taken_is_declined_whole_and_holds_nothing_on_the_other(tmp_path, other):
    def on_both(device: str, number: int):
        places = [BundlePlacement(node, ((device, 1.0),)) for node, device in (("one", "1"), ("two", device))]
        two = Resources(GPU.bundles * 2)
        return trial(number, resources=two, placement=Placement(tuple(places)), config={"train_loop_config": {}})

    trainer = DataParallelTrainer(lambda config: None, scaling_config=ScalingConfig(num_workers=2))
    other.take("theirs", GPU, at("0"))
    with engine_in(tmp_path / "exp", trainer) as engine:
        engine.execute(Start(on_both("0", 0)))
        seen = collect(engine, lambda seen: any(isinstance(event, Declined) for event in seen))
        assert shapes(seen) == []
        assert other.take("more", GPU, at("1"))
        other.give_back("more")
        engine.execute(Start(on_both("1", 1)))
        ended = [event.exit.kind for event in collect(engine, has_released(1)) if isinstance(event, Exited)]
        assert ended == [ExitKind.FINISHED]


@pytest.mark.slow
def test_a_run_that_is_not_shared_sees_no_others_on_any_node_and_says_so_once(tmp_path, other, capfd):
    other.take("theirs", GPU, at("0"))
    other.take("too", GPU, at("1"))
    seen = []

    class Look(sweep.Callback):
        def on_trial_start(self, trial):
            seen.append((other.look(), len(other._rows)))

    try:
        sweep.init(shared=False)
        sweep.run(
            Behaviour(num_reports=1).as_function(),
            name="alone",
            storage_path=tmp_path,
            resources_per_trial={"gpu": 1},
            engine=AgentProcesses(TWO),
            callbacks=[Look()],
        )
    finally:
        sweep.shutdown()
    assert seen == [((), 0)]
    printed = "".join(capfd.readouterr())
    assert printed.count("sweep.init(shared=False): other sweeps of this machine are not seen") == 1


def test_a_sweep_on_two_nodes_uses_what_another_one_leaves_on_both(tmp_path, other):
    other.take("theirs", GPU, at("0"))

    def show(config):
        sweep.report({"devices": os.environ["CUDA_VISIBLE_DEVICES"]})

    analysis = sweep.run(
        show,
        num_samples=4,
        resources_per_trial={"gpu": 1},
        engine=AgentProcesses(TWO),
        storage_path=tmp_path,
        name="beside",
        verbose=0,
    )
    assert [one.last_result["devices"] for one in analysis.trials] == ["1"] * 4
