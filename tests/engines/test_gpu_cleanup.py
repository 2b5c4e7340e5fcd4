"""Devices between two trials: looks at a memory that is made up."""

from __future__ import annotations

from functools import partial

import pytest
from conformance.engines import context

import sweep
from sweep.accelerators.meter import Holder, MemoryUse
from sweep.core.messages import Waiting
from sweep.core.resources import UNIT, Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.trial import Trial
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.gpu_cleanup import GpuCleanup

GIB = 1 << 30


PYTHON = Holder(1234, 3 * GIB, "python")
NODES = [Node("one", 1, devices=(Device("GPU-a"), Device("GPU-b"))), Node("two", 1, devices=(Device("GPU-a"),))]
A, B, OTHER = ("one", "GPU-a"), ("one", "GPU-b"), ("two", "GPU-a")  # two nodes may have devices of the same id
NOBODY = "of no process that the driver names"


def use(gibibytes, *processes):
    return MemoryUse(int(gibibytes * GIB), 80 * GIB, processes)


class World:
    """Devices, what is in use of them, and a loop whose alarms ring when a test says so."""

    def __init__(self, before=None, nodes=NODES, **options):
        self.now = dict(before or {})
        self.asked, self.told, self.alarms = [], [], []
        self.cleanup = GpuCleanup(
            nodes, self, emit=self.told.append, notice=self.told.append, read=self._read, **options
        )

    def alarm(self, after_s, action):
        self.alarms.append(action)

    def _read(self, devices):
        self.asked.append([(node, device.id) for node, device in devices])
        return None if self.now is None else {place: self.now[place] for place in self.asked[-1] if place in self.now}

    def end(self, name, *places, **options):
        """A trial that held these devices is over: its name is told when they are clean."""
        bundles = tuple(BundlePlacement(node, ((device, UNIT),)) for node, device in places)
        trial = Trial(name, {}, Resources((Bundle(cpu=1),)), placement=Placement(bundles))
        self.cleanup.after(trial, lambda: self.told.append(name), **options)

    def look(self):
        """Return what is told at the next look."""
        self.told.clear()
        (action,), self.alarms = self.alarms, []
        action()
        return list(self.told)


@pytest.mark.parametrize(
    ("used", "before", "options", "is_clean"),
    [
        (0, None, {}, True),
        (4, None, {}, True),  # 5% of 80
        (4.01, None, {}, False),
        (0.9, None, {"threshold": 0.01}, False),
        (0, None, {"threshold": 0}, True),
        (0.01, None, {"threshold": 0}, False),
        (10, 10, {}, True),  # somebody else's, from before the engine
        (10 + 64 / 1024, 10, {}, True),
        (10 + 65 / 1024, 10, {}, False),
        (4, 1, {}, True),
        (4.01, 1, {}, False),
    ],
)
def test_a_device_is_clean_up_to_a_part_of_its_memory_or_what_was_in_use_before(used, before, options, is_clean):
    world = World({} if before is None else {A: use(before)}, **options)
    world.now = {A: use(used)}
    world.end("x", A)
    assert world.told == ["x"] * is_clean
    assert len(world.alarms) == (not is_clean)


def test_memory_is_read_once_at_the_beginning_and_only_where_a_gpu_may_be_unclean():
    world = World({A: use(0)})
    assert world.asked == [[A, B, OTHER]]
    world.end("x")
    world.end("y", ("one", "tpu0"))
    assert (world.told, len(world.asked)) == (["x", "y"], 1)
    assert World(nodes=[Node("one", 1, devices=(Device("tpu0", kind="tpu"),))]).asked == []


def test_a_device_without_a_reading_is_clean_and_so_is_what_another_holds():
    world = World()
    world.now = {A: use(80)}
    world.end("x", B)
    world.end("y", A, spare=[A])
    assert world.told == ["x", "y"]


def test_a_reason_is_told_when_it_is_new_until_the_memory_comes_back():
    world = World()
    world.now = {A: use(9, PYTHON)}
    world.end("x", A)
    told = []
    for gibibytes in [9, 9, 8, 6.4, 0.1]:
        world.now[A] = use(gibibytes, PYTHON)
        told.append(world.look())
    nine, eight, six = (f"one:GPU-a still holds {n}GiB of 80GiB, pid 1234 (python) 3GiB" for n in ("9", "8", "6.4"))
    assert told == [[Waiting("x", nine)], [], [Waiting("x", eight)], [Waiting("x", six)], ["x"]]
    assert world.alarms == []


def test_devices_that_never_clear_are_put_out_of_use_and_only_those():
    world = World(patience_s=0.5, look_every_s=0.25)
    world.now = {A: use(9, PYTHON), B: use(0), OTHER: use(80)}
    world.end("x", A, B, OTHER)
    reason = (
        f"one:GPU-a still holds 9GiB of 80GiB, pid 1234 (python) 3GiB; two:GPU-a still holds 80GiB of 80GiB, {NOBODY}"
    )
    assert world.look() == [Waiting("x", reason)]
    line, changed, name = world.look()
    assert (line, name) == (f"{reason}; not freed in 0.5s, so no more trials are started there", "x")
    assert changed.nodes == world.cleanup.nodes
    assert [[device.id for device in node.devices] for node in changed.nodes] == [["GPU-b"], []]


def test_a_reader_that_goes_away_clears_what_waits():
    world = World()
    world.now = {A: use(9)}
    world.end("x", A)
    world.now = None
    assert world.look() == ["x"]


def test_several_are_looked_at_together_and_told_in_the_order_of_entry():
    world = World()
    world.now = {A: use(9), B: use(8), OTHER: use(7)}
    for name, place in (("x", A), ("y", B), ("z", OTHER)):
        world.end(name, place, is_waiting=name != "z")
    world.asked.clear()
    world.now[B] = use(0)
    assert world.look() == [Waiting("x", f"one:GPU-a still holds 9GiB of 80GiB, {NOBODY}"), "y"]
    assert world.asked == [[A, B, OTHER]]
    world.now[A] = world.now[OTHER] = use(0)
    assert world.look() == ["x", "z"]


def test_a_device_of_another_node_with_the_same_id_is_not_waited_for():
    world = World({A: use(9), OTHER: use(0)})
    world.now = {A: use(30), OTHER: use(0)}
    world.end("two", OTHER)
    world.end("one", A)
    assert world.told == ["two"]
    world.now[A] = use(9)  # what was in use there before the sweep, and not at the other
    assert world.look() == ["one"]


# --- in a sweep ------------------------------------------------------------------------------------------------------


class Stubborn:
    """What a made-up driver says of one GPU: in use for so many looks, once trials run."""

    def __init__(self, looks):
        self.looks = looks
        self.is_used = False

    def __call__(self, devices):
        left = 0
        if self.is_used and self.looks:
            self.looks -= 1
            left = 30 << 30
        return {
            (node, device.id): MemoryUse(left, 80 << 30, (Holder(4321, left, "python"),)) for node, device in devices
        }


@pytest.mark.parametrize("looks", [3, 10**6])
def test_a_gpu_is_given_on_only_when_its_memory_is_back_and_the_wait_says_whose_it_is(tmp_path, looks):
    memory = Stubborn(looks)
    node = Node(cpus=2, devices=(Device("GPU-a", visible="0"),))
    gpu_cleanup = partial(GpuCleanup, read=memory, patience_s=0.5, look_every_s=0.02)
    engine = LocalEngine(context(tmp_path / "x", uses_gpu, nodes=[node]), gpu_cleanup=gpu_cleanup)
    memory.is_used = True
    reasons = []
    first = engine.next_events

    def next_events(deadline):
        events = first(deadline)
        reasons.extend(event.reason for event in events if isinstance(event, Waiting))
        return events

    engine.next_events = next_events
    analysis = sweep.run(
        uses_gpu,
        num_samples=2,
        resources_per_trial={"gpu": 1},
        engine=engine,
        storage_path=tmp_path,
        name="x",
        raise_on_failed_trial=False,
        verbose=0,
    )
    assert [reason for reason in reasons if "GPU" in reason] == [
        "GPU-a still holds 30GiB of 80GiB, pid 4321 (python) 30GiB"
    ]
    second = analysis.trials[1]
    if looks == 3:
        assert second.status == "TERMINATED"
    else:  # it never came back: the device is put out of use, and what can run nowhere says so
        assert second.status == "ERROR"
        assert "gpu=1" in second.reason
        assert engine.nodes()[0].devices == ()


def uses_gpu(config):
    """Report once."""
    sweep.report(loss=1.0)
