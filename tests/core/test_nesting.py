"""Where a group lies inside its trial's own placement: tables of what the trial holds and what the group wants."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.nesting import place_inside
from sweep.core.packing import Packer
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources

KINDS = {("a", "g0"): "gpu", ("a", "g1"): "gpu", ("a", "t0"): "tpu", ("a", "t1"): "tpu", ("b", "g0"): "gpu"}

Held = tuple[Bundle, BundlePlacement]


def on(node: str, bundle: Bundle, *devices: tuple[str, float]) -> Held:
    return bundle, BundlePlacement(node, devices)


def placed(
    held: list[Held],
    workers: list[Bundle],
    *,
    strategy: str = "PACK",
    distinct: bool = False,
    shared: bool = False,
    only: str = "",
) -> list[str] | None:
    """Return node and devices of each worker as "a g0=0.5", or None."""
    request = Resources(tuple(workers), strategy, distinct, shared_devices=shared)
    resources = Resources(tuple(bundle for bundle, _ in held))
    found = place_inside(request, resources, Placement(tuple(place for _, place in held)), KINDS, only=only)
    if found is None:
        return None
    return [" ".join([place.node, *(f"{one}={share:g}" for one, share in place.devices)]) for place in found.bundles]


def want(**amounts: float) -> Bundle:
    """Return a bundle of these amounts; what is neither a device, CPUs nor memory is custom."""
    known = {name: amounts.pop(name) for name in ("cpu", "gpu", "tpu", "memory") if name in amounts}
    return Bundle(**known, custom=tuple(sorted(amounts.items())))


def at(node: str, *devices: str, **amounts: float) -> Held:
    """Return what a trial holds on a node: `at("a", "g0=0.5", gpu=0.5)`."""
    shares = [device.split("=") for device in devices]
    return on(node, want(**amounts), *[(device, float(share)) for device, share in shares])


EMPTY = at("a")


HELD: dict[str, tuple[list[Held], list[Bundle], list[str] | None]] = {
    # cpus come from the trial's own bundles
    "all_of_the_cpus": ([at("a", cpu=2)], 2 * [want(cpu=1)], ["a", "a"]),
    "one_cpu_too_many": ([at("a", cpu=2)], 3 * [want(cpu=1)], None),
    "ten_tenths_of_a_cpu": ([at("a", cpu=1)], 10 * [want(cpu=0.1)], 10 * ["a"]),
    "eleven_tenths": ([at("a", cpu=1)], 11 * [want(cpu=0.1)], None),
    "three_thirds": ([at("a", cpu=1)], 3 * [want(cpu=1 / 3)], 3 * ["a"]),
    "bundles_of_one_node_are_one": ([at("a", cpu=1), at("a", cpu=1)], [want(cpu=2)], ["a"]),
    "bundles_of_two_nodes_are_not": ([at("a", cpu=1), at("b", cpu=1)], [want(cpu=2)], None),
    "one_bundle_for_each_worker_in_order": ([EMPTY, at("b", cpu=1), at("a", cpu=1)], 2 * [want(cpu=1)], ["b", "a"]),
    "the_first_bundle_is_spared": ([at("a", cpu=1), at("b", cpu=1)], [want(cpu=1)], ["b"]),
    "the_first_bundle_is_used_last": ([at("a", cpu=1), at("b", cpu=1)], 2 * [want(cpu=1)], ["b", "a"]),
    "the_first_bundle_alone_is_large_enough": ([at("a", cpu=4), at("b", cpu=1)], [want(cpu=2)], ["a"]),
    "a_head_leaves_the_large_bundles_to_the_workers": (
        [at("a", cpu=1), at("b", cpu=2), at("b", cpu=2)],
        [want(cpu=1), want(cpu=2), want(cpu=2)],
        ["a", "b", "b"],
    ),
    "a_large_head": (
        [at("a", cpu=2), at("b", cpu=1), at("c", cpu=1)],
        [want(cpu=2), want(cpu=1), want(cpu=1)],
        ["a", "b", "c"],
    ),
    "a_gpu_that_is_not_held": ([at("a", cpu=1)], [want(gpu=1)], None),
    # whole devices come from the trial's own
    "a_gpu_each": ([at("a", "g0=1", "g1=1", gpu=2)], 2 * [want(gpu=1)], ["a g0=1", "a g1=1"]),
    "both": ([at("a", "g0=1", "g1=1", gpu=2)], [want(gpu=2)], ["a g0=1 g1=1"]),
    "one_too_many": ([at("a", "g0=1", gpu=1)], 2 * [want(gpu=1)], None),
    "on_two_nodes": ([at("a", "g1=1", gpu=1), at("b", "g0=1", gpu=1)], 2 * [want(gpu=1)], ["b g0=1", "a g1=1"]),
    "no_block_of_chips_from_two_bundles": ([at("a", "t0=1", tpu=1), at("a", "t1=1", tpu=1)], [want(tpu=2)], None),
    "no_whole_of_a_share": ([at("a", "g0=0.5", gpu=0.5)], [want(gpu=1)], None),
    "tpu_chips": ([at("a", "t0=1", "t1=1", tpu=2)], 2 * [want(tpu=1)], ["a t0=1", "a t1=1"]),
    "a_chip_is_no_gpu": ([at("a", "t0=1", tpu=1)], [want(gpu=1)], None),
    "a_gpu_is_no_chip": ([at("a", "g0=1", gpu=1)], [want(tpu=1)], None),
    "one_of_each": ([at("a", "t0=1", "g0=1", gpu=1, tpu=1)], [want(gpu=1, tpu=1)], ["a g0=1 t0=1"]),
    "both_cpu_and_gpu_from_one_bundle": (
        [at("a", "g0=1", cpu=1, gpu=1), at("a", cpu=1)],
        [want(cpu=1, gpu=1)],
        ["a g0=1"],
    ),
    # shares come from the emptiest of the trial's own devices
    "halves_of_a_whole": ([at("a", "g0=1", gpu=1)], 2 * [want(gpu=0.5)], ["a g0=0.5", "a g0=0.5"]),
    "three_halves": ([at("a", "g0=1", gpu=1)], 3 * [want(gpu=0.5)], None),
    "thirds": ([at("a", "g0=1", gpu=1)], 3 * [want(gpu=1 / 3)], 3 * ["a g0=0.333333"]),
    "a_share_of_a_share": ([at("a", "g0=0.5", gpu=0.5)], 2 * [want(gpu=0.25)], ["a g0=0.25", "a g0=0.25"]),
    "too_much_of_a_share": ([at("a", "g0=0.5", gpu=0.5)], 2 * [want(gpu=0.3)], None),
    "all_of_a_share": ([at("a", "g0=0.5", gpu=0.5)], [want(gpu=0.5)], ["a g0=0.5"]),
    "each_has_a_device_of_its_own_while_there_are_any": (
        [at("a", "g0=1", "g1=1", gpu=2)],
        3 * [want(gpu=0.5)],
        ["a g0=0.5", "a g1=0.5", "a g0=0.5"],
    ),
    "also_over_bundles": (
        [EMPTY, at("a", "g0=1", gpu=1), at("a", "g1=1", gpu=1)],
        2 * [want(gpu=0.5)],
        ["a g0=0.5", "a g1=0.5"],
    ),
    "the_first_bundles_device_last": (
        [at("a", "g0=1", gpu=1), at("a", "g1=1", gpu=1)],
        [want(gpu=1)],
        ["a g1=1"],
    ),
    "room_on_the_gpu_is_not_enough": ([at("a", "g0=1", cpu=1, gpu=1)], 2 * [want(cpu=1, gpu=0.5)], None),
    "no_whole_of_what_was_begun": ([at("a", "g0=1", gpu=1)], [want(gpu=0.5), want(gpu=1)], None),
    # memory and custom resources are counted
    "memory": ([at("a", memory=100)], 2 * [want(memory=50)], ["a", "a"]),
    "too_much_memory": ([at("a", memory=100)], 2 * [want(memory=51)], None),
    "memory_that_is_not_held": ([at("a", cpu=1)], [want(cpu=1, memory=1)], None),
    "custom": ([at("a", disk=2)], 2 * [want(disk=1)], ["a", "a"]),
    "too_much_custom": ([at("a", disk=2)], 2 * [want(disk=1.5)], None),
    "another_custom": ([at("a", disk=2)], [want(net=1)], None),
    "none_of_a_custom_one": ([at("a", cpu=1)], [want(cpu=1, net=0)], ["a"]),
    "everything_from_one_bundle": (
        [EMPTY, at("a", cpu=2), at("b", cpu=2, memory=10)],
        2 * [want(cpu=1, memory=5)],
        ["b", "b"],
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_a_group_lies_on_what_its_trial_holds(name):
    held, workers, expected = HELD[name]
    assert placed(held, workers) == expected


STRICT = {
    "a_node_each": ("STRICT_SPREAD", [EMPTY, at("a", cpu=2), at("b", cpu=2)], 2 * [want(cpu=1)], ["a", "b"]),
    "not_a_node_each": ("STRICT_SPREAD", [at("a", cpu=2)], 2 * [want(cpu=1)], None),
    "the_node_that_has_room_for_all": (
        "STRICT_PACK",
        [EMPTY, at("a", cpu=1), at("b", cpu=2)],
        2 * [want(cpu=1)],
        ["b", "b"],
    ),
    "no_node_has_room_for_all": ("STRICT_PACK", [EMPTY, at("a", cpu=1), at("b", cpu=1)], 2 * [want(cpu=1)], None),
    "with_the_first_bundle": (
        "STRICT_PACK",
        [at("b", cpu=1), at("a", cpu=1), at("b", cpu=1)],
        2 * [want(cpu=1)],
        ["b", "b"],
    ),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_strategies_are_obeyed(name):
    strategy, held, workers, expected = STRICT[name]
    assert placed(held, workers, strategy=strategy) == expected


def test_distinct_devices_are_never_shared():
    two = [at("a", "g0=1", "g1=1", gpu=2)]
    assert placed(two, [Bundle(gpu=0.5)] * 2, distinct=True) == ["a g0=0.5", "a g1=0.5"]
    assert placed(two, [Bundle(gpu=0.5)] * 3, distinct=True) is None
    halves = [EMPTY, at("a", "g0=0.5", gpu=0.5), at("a", "g0=0.5", gpu=0.5)]
    assert placed(halves, [Bundle(gpu=0.5)] * 2) == ["a g0=0.5"] * 2
    assert placed(halves, [Bundle(gpu=0.5)] * 2, distinct=True) is None
    namesakes = [EMPTY, at("a", "g0=0.5", gpu=0.5), at("b", "g0=0.5", gpu=0.5)]
    assert placed(namesakes, [Bundle(gpu=0.5)] * 2, distinct=True) == ["a g0=0.5", "b g0=0.5"]


def test_devices_are_shared_where_that_is_wanted():
    two = [at("a", "g0=1", "g1=1", gpu=2)]
    assert placed(two, [Bundle(gpu=0.5)] * 2, shared=True) == ["a g0=0.5"] * 2
    assert placed(two, [Bundle(gpu=0.5)] * 3, shared=True) == ["a g0=0.5"] * 2 + ["a g1=0.5"]
    apart = [EMPTY, at("a", "g0=1", gpu=1), at("b", "g0=1", gpu=1)]
    assert placed(apart, [Bundle(gpu=0.25)] * 3, shared=True) == ["a g0=0.25"] * 3
    halves = [EMPTY, at("a", "g0=0.5", gpu=0.5), at("a", "g1=0.5", gpu=0.5)]
    assert placed(halves, [Bundle(gpu=0.5)] * 2, shared=True) == ["a g0=0.5", "a g1=0.5"]


def test_nothing_is_kept_of_an_attempt_that_did_not_fit():
    held = [at("a", cpu=1), at("b", cpu=1)]
    for _ in range(2):
        assert placed(held, [Bundle(cpu=1)] * 3) is None
        assert placed(held, [Bundle(cpu=1)] * 2) == ["b", "a"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([(0.0, 0.5), (0.0, 0.25), (0.0, 1.0), (1.0, 0.0), (1.0, 0.5), (0.5, 0.25), (1.0, 1.0)]),
    st.sampled_from([None, (1.0, 0.0), (2.0, 0.0), (0.5, 0.5)]),
    st.integers(1, 4),
)
def test_a_fit_is_found_exactly_when_there_is_one_and_never_takes_more_than_is_held(rooms, worker, head, number):
    held, kinds = [], {}
    for position, (node, cpu, share) in enumerate(rooms):
        device = f"g{position}"
        kinds[node, device] = "gpu"
        held.append(on(node, Bundle(cpu=float(cpu), gpu=share), *([(device, share)] if share else [])))
    if all(bundle.is_empty for bundle, _ in held):
        return
    amounts = ([head] if head else []) + [worker] * number
    request = Resources(tuple(Bundle(cpu=cpu, gpu=gpu) for cpu, gpu in amounts))
    placement = Placement(tuple(place for _, place in held))
    found = place_inside(request, Resources(tuple(bundle for bundle, _ in held)), placement, kinds)

    def fits(choice: tuple[int, ...]) -> bool:
        for room, (_, _, share) in enumerate(rooms):
            if sum(amounts[i][1] for i, chosen in enumerate(choice) if chosen == room) > share:
                return False
        for node in "ab":  # what a trial holds on a node is one
            there = sum(cpu for name, cpu, _ in rooms if name == node)
            if sum(amounts[i][0] for i, chosen in enumerate(choice) if rooms[chosen][0] == node) > there:
                return False
        return True

    possible = any(fits(choice) for choice in itertools.product(range(len(rooms)), repeat=len(amounts)))
    assert (found is not None) == possible
    if found is not None:
        used: dict[str, float] = {}
        for (_, gpu), place in zip(amounts, found.bundles, strict=True):
            assert sum(share for _, share in place.devices) == gpu
            for device, share in place.devices:
                assert kinds[place.node, device] == "gpu"
                used[device] = used.get(device, 0.0) + share
        assert all(used[f"g{i}"] <= share for i, (_, _, share) in enumerate(rooms) if f"g{i}" in used)


def test_what_a_packer_granted_is_what_a_group_finds():
    node = Node("a", cpus=4, devices=(Device("g0"), Device("g1")))
    held = Resources((Bundle(), Bundle(cpu=1, gpu=0.5), Bundle(cpu=1, gpu=0.5)))
    placement = Packer([node]).place(held, ("trial", 1))
    assert placement is not None
    kinds = {("a", device.id): device.kind for device in node.devices}
    found = place_inside(Resources(held.bundles[1:]), held, placement, kinds)
    assert found == Placement(placement.bundles[1:])


@pytest.mark.parametrize("strategy", ["PACK", "STRICT_PACK"])
@pytest.mark.parametrize(
    ("number", "only", "expected"),
    [(2, "", ["b", "b"]), (2, "a", ["a", "a"]), (2, "b", ["b", "b"]), (3, "a", None), (1, "c", None)],
)
def test_workers_can_be_kept_to_the_bundles_of_one_node(strategy, number, only, expected):
    held = [at("a", cpu=1), at("b", cpu=2), at("a", cpu=1)]
    assert placed(held, number * [want(cpu=1)], strategy=strategy, only=only) == expected
