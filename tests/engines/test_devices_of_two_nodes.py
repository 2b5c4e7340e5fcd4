"""Two declared nodes whose devices have the same ids: what is one device's is never the other's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conformance.driving import play
from conformance.engines import collect, context, has_released, trial

from sweep.core.messages import Continue, Reported, Start
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.engines.local.engine import LocalEngine

NODES = tuple(Node(name, 4, devices=(Device("GPU-0", visible=visible),)) for name, visible in (("m", "4"), ("n", "5")))


def placed(number, *nodes, cpu=1.0):
    """Return a trial that holds GPU-0 of some nodes."""
    return trial(
        number,
        resources=Resources((Bundle(cpu=cpu, gpu=1.0),) * len(nodes)),
        placement=Placement(tuple(BundlePlacement(node, (("GPU-0", 1.0),)) for node in nodes)),
    )


def look_around(config):
    """Report who this is and what it sees."""
    return {"pid": os.getpid(), "sees": os.environ["CUDA_VISIBLE_DEVICES"]}


@pytest.fixture
def drive(tmp_path):
    """Return a function that runs some trials at once, in workers that stay, and returns what each reported."""
    engine = LocalEngine(context(tmp_path, look_around, nodes=NODES, reuse_actors=True))

    def run(*trials):
        for one in trials:
            engine.execute(Start(one))
        events = collect(
            engine, has_released(len(trials)), answer=lambda one: Continue(one.trial_id, one.attempt, one.seq)
        )
        found = {event.trial_id: event.metrics for event in events if isinstance(event, Reported)}
        return [{name: found[one.id][name] for name in ("pid", "sees")} for one in trials]

    yield run
    engine.close()


def test_a_warm_worker_takes_no_trial_of_the_other_nodes_device(drive):
    on_m, on_n = drive(placed(0, "m"), placed(1, "n"))
    assert (on_m["sees"], on_n["sees"]) == ("4", "5")
    assert drive(placed(2, "n")) == [on_n]
    assert drive(placed(3, "m")) == [on_m]


def test_a_warm_worker_stays_while_another_request_takes_the_other_nodes_device(drive):
    on_m, on_n = drive(placed(0, "m"), placed(1, "n"))
    (other,) = drive(placed(2, "n", cpu=2.0))
    assert other["pid"] != on_n["pid"]
    assert not Path(f"/proc/{on_n['pid']}").exists()
    assert drive(placed(3, "m")) == [on_m]


def test_a_trial_on_both_nodes_sees_both_devices(tmp_path):
    story = play(tmp_path, look_around, [placed(0, "m", "n")], nodes=NODES)
    assert story.values("sees") == ["4,5"]
