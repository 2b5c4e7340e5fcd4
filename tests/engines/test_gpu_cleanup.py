"""Devices between two trials: looks at a memory that is made up, at times that are given."""

from __future__ import annotations

import pytest
from conformance.engines import context

import sweep
from sweep.accelerators.meter import Holder, MemoryUse
from sweep.core.messages import Waiting
from sweep.core.resources import Device, Node
from sweep.engines.local.engine import LocalEngine
from sweep.engines.local.gpu_cleanup import Clear, GpuCleanup, Quarantined, Waits

GIB = 1 << 30


def at(node, *arguments, **options):
    """Return a device of a node."""
    return node, Device(*arguments, **options)


A, B, C = (at("local", f"GPU-{letter}") for letter in "abc")
PYTHON = Holder(1234, 3 * GIB, "python")


def use(gibibytes, *processes):
    return MemoryUse(int(gibibytes * GIB), 80 * GIB, processes)


class Memory:
    """A reader of what is in `now` of one node, by device id; it keeps what it was asked."""

    def __init__(self, **now):
        self.now = {f"GPU-{name}": found for name, found in now.items()}
        self.asked = []
        self.is_there = True

    def __call__(self, devices):
        self.asked.append([device.id for _, device in devices])
        places = {device.id: (node, device.id) for node, device in devices}
        return {places[name]: found for name, found in self.now.items() if name in places} if self.is_there else None


def waiting(memory, *devices, now=100.0, **options):
    """Return a hand-over in which the devices wait under the key 7."""
    gpu_cleanup = GpuCleanup(memory, **options)
    assert not gpu_cleanup.enter(7, devices, now)
    return gpu_cleanup


# --- entering --------------------------------------------------------------------------------------------------------


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
    memory = Memory() if before is None else Memory(a=use(before))
    gpu_cleanup = GpuCleanup(memory, devices=[A], **options)
    memory.now = {"GPU-a": use(used)}
    assert gpu_cleanup.enter(7, [A], 100.0) is is_clean
    assert gpu_cleanup.is_empty is is_clean
    assert gpu_cleanup.next_look == (None if is_clean else 100.25)


def test_what_was_in_use_is_read_once_at_the_beginning_and_only_where_there_are_gpus():
    memory = Memory(a=use(0))
    GpuCleanup(memory, devices=[A, at("local", "tpu0", kind="tpu"), B])
    GpuCleanup(memory, devices=[at("local", "tpu0", kind="tpu")])
    GpuCleanup(memory)
    assert memory.asked == [["GPU-a", "GPU-b"]]


def test_a_device_without_a_reading_is_clean_at_once():
    gpu_cleanup = GpuCleanup(Memory(a=use(80)))
    assert gpu_cleanup.enter(7, [at("local", "0"), B], 100.0)
    assert not gpu_cleanup.enter(8, [B, A], 100.0)


def test_a_trial_without_a_gpu_costs_no_reading():
    memory = Memory(a=use(80))
    gpu_cleanup = GpuCleanup(memory)
    assert gpu_cleanup.enter(7, [], 100.0)
    assert gpu_cleanup.enter(8, [at("local", "GPU-a", kind="tpu")], 100.0)
    assert memory.asked == []


# --- looking ---------------------------------------------------------------------------------------------------------


def test_memory_that_comes_back_clears_the_devices():
    memory = Memory(a=use(3.2 * 2, PYTHON))
    gpu_cleanup = waiting(memory, A)
    assert gpu_cleanup.look(100.25) == [Waits(7, "GPU-a still holds 6.4GiB of 80GiB, pid 1234 (python) 3GiB")]
    assert gpu_cleanup.next_look == 100.5
    memory.now["GPU-a"] = use(0.1)
    assert gpu_cleanup.look(100.5) == [Clear(7)]
    assert gpu_cleanup.is_empty
    assert gpu_cleanup.next_look is None


def test_nothing_is_read_before_the_next_look_is_due():
    memory = Memory(a=use(9))
    gpu_cleanup = waiting(memory, A)
    memory.asked.clear()
    assert gpu_cleanup.look(100.24) == []
    assert memory.asked == []
    assert gpu_cleanup.next_look == 100.25


def test_a_reason_is_told_when_it_is_new():
    memory = Memory(a=use(9, PYTHON))
    gpu_cleanup = waiting(memory, A)
    first, second = (f"GPU-a still holds {n}GiB of 80GiB, pid 1234 (python) 3GiB" for n in (9, 8))
    told = []
    for step, gibibytes in enumerate([9, 9, 8, 8, 9], 1):
        memory.now["GPU-a"] = use(gibibytes, PYTHON)
        told.append(gpu_cleanup.look(100 + step / 4))
    assert told == [[Waits(7, first)], [], [Waits(7, second)], [], [Waits(7, first)]]


def test_devices_that_never_clear_are_quarantined_and_only_those():
    memory = Memory(a=use(9, PYTHON), b=use(0), c=use(80))
    gpu_cleanup = waiting(memory, A, B, C, patience_s=0.5, look_every_s=0.25)
    reason = (
        "GPU-a still holds 9GiB of 80GiB, pid 1234 (python) 3GiB; "
        "GPU-c still holds 80GiB of 80GiB, of no process that the driver names"
    )
    assert gpu_cleanup.look(100.25) == [Waits(7, reason)]
    assert gpu_cleanup.look(100.5) == [
        Quarantined(
            7,
            (("local", "GPU-a"), ("local", "GPU-c")),
            f"{reason}; not freed in 0.5s, so no more trials are started there",
        )
    ]
    assert gpu_cleanup.is_empty
    assert gpu_cleanup.next_look is None


def test_memory_that_comes_back_at_the_last_look_is_clean_however_late_that_is():
    memory = Memory(a=use(9))
    gpu_cleanup = waiting(memory, A)
    memory.now["GPU-a"] = use(0)
    assert gpu_cleanup.look(1000.0) == [Clear(7)]


def test_without_patience_the_first_look_decides_and_it_is_due_at_once():
    gpu_cleanup = waiting(Memory(a=use(9)), A, patience_s=0)
    assert gpu_cleanup.next_look == 100.0
    assert [type(change) for change in gpu_cleanup.look(100.0)] == [Quarantined]


def test_a_reader_that_goes_away_clears_what_waits():
    memory = Memory(a=use(9))
    gpu_cleanup = waiting(memory, A)
    memory.is_there = False
    assert gpu_cleanup.look(100.25) == [Clear(7)]


# --- several ---------------------------------------------------------------------------------------------------------


def test_several_entries_are_looked_at_together_and_told_in_the_order_of_entry():
    memory = Memory(a=use(9), b=use(8), c=use(7))
    gpu_cleanup = waiting(memory, A)
    assert not gpu_cleanup.enter("x", [B], 100.1)
    assert not gpu_cleanup.enter("y", [C], 100.2)
    assert gpu_cleanup.next_look == 100.25
    memory.asked.clear()
    memory.now["GPU-b"] = use(0)
    assert gpu_cleanup.look(100.25) == [
        Waits(7, "GPU-a still holds 9GiB of 80GiB, of no process that the driver names"),
        Clear("x"),
        Waits("y", "GPU-c still holds 7GiB of 80GiB, of no process that the driver names"),
    ]
    assert memory.asked == [["GPU-a", "GPU-b", "GPU-c"]]
    memory.now["GPU-a"] = memory.now["GPU-c"] = use(0)
    assert gpu_cleanup.look(100.5) == [Clear(7), Clear("y")]


def test_each_entry_has_a_patience_of_its_own():
    gpu_cleanup = waiting(Memory(a=use(9), b=use(9)), A, patience_s=1, look_every_s=10)
    gpu_cleanup.enter(8, [B], 100.75)
    assert gpu_cleanup.next_look == 101.0
    assert [(type(change), change.key) for change in gpu_cleanup.look(101.0)] == [(Quarantined, 7), (Waits, 8)]
    assert gpu_cleanup.next_look == 101.75
    assert [(type(change), change.key) for change in gpu_cleanup.look(101.75)] == [(Quarantined, 8)]


# --- two nodes with devices of the same id ---------------------------------------------------------------------------

ONE, TWO = at("one", "0"), at("two", "0")


class Nodes:
    """A reader of what is in use by (node, id)."""

    def __init__(self, **now):
        self.now = {(node, "0"): found for node, found in now.items()}

    def __call__(self, devices):
        return {place: use for place, use in self.now.items() if place in {(node, d.id) for node, d in devices}}


def test_a_device_of_another_node_with_the_same_id_is_not_waited_for():
    memory = Nodes(one=use(9), two=use(0))
    gpu_cleanup = GpuCleanup(memory, devices=[ONE, TWO])
    memory.now["one", "0"] = use(30)
    assert gpu_cleanup.enter("two", [TWO], 100.0)
    assert not gpu_cleanup.enter("one", [ONE], 100.0)
    assert gpu_cleanup.look(100.25) == [
        Waits("one", "one:0 still holds 30GiB of 80GiB, of no process that the driver names")
    ]
    memory.now["one", "0"] = use(9)  # what was in use there before the sweep, and not at the other
    assert gpu_cleanup.look(100.5) == [Clear("one")]
    memory.now["two", "0"] = use(9)
    assert not gpu_cleanup.enter("two", [TWO], 101.0)


def test_two_entries_wait_for_devices_of_the_same_id_at_once():
    memory = Nodes(one=use(9), two=use(9))
    gpu_cleanup = GpuCleanup(memory)
    assert not gpu_cleanup.enter("one", [ONE], 100.0)
    assert not gpu_cleanup.enter("two", [TWO], 100.0)
    memory.now["two", "0"] = use(0)
    changes = gpu_cleanup.look(100.25)
    assert [(type(change), change.key) for change in changes] == [(Waits, "one"), (Clear, "two")]


def test_only_the_device_of_the_node_whose_memory_stays_is_put_into_quarantine(tmp_path):
    memory = Nodes(one=use(0), two=use(0))
    nodes = [Node("one", 1, devices=(Device("0"),)), Node("two", 1, devices=(Device("0"),))]
    gpu_cleanup = GpuCleanup(memory, devices=[ONE, TWO], patience_s=0.05, look_every_s=0.02)
    memory.now["one", "0"] = use(30)
    engine = LocalEngine(context(tmp_path / "x", uses_gpu, nodes=nodes), gpu_cleanup=gpu_cleanup)
    analysis = sweep.run(
        uses_gpu,
        num_samples=4,
        resources_per_trial={"gpu": 1},
        engine=engine,
        storage_path=tmp_path,
        name="x",
        verbose=0,
    )
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert [len(node.devices) for node in engine.nodes()] == [0, 1]


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
    gpu_cleanup = GpuCleanup(
        memory, devices=[(node.id, device) for device in node.devices], patience_s=0.5, look_every_s=0.02
    )
    memory.is_used = True
    engine = LocalEngine(context(tmp_path / "x", uses_gpu, nodes=[node]), gpu_cleanup=gpu_cleanup)
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
