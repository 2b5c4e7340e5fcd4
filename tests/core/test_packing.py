"""Packing: the counts that users expect, gangs, strategies, the texts, and properties that no request may break."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.packing import Packer
from sweep.core.resources import Bundle, Device, Node, Resources

GIB = 2**30


def machine(cpus: float = 4, gpus: int = 0, name: str = "local", memory: int = 0, **custom: float) -> Node:
    return Node(name, cpus, memory, tuple(Device(f"g{i}") for i in range(gpus)), custom)


def one(**amounts) -> Resources:
    return Resources((Bundle(**amounts),))


def gang(*bundles: dict, strategy: str = "PACK", distinct: bool = False) -> Resources:
    return Resources(tuple(Bundle(**bundle) for bundle in bundles), strategy, distinct)


def fill(packer: Packer, resources: Resources, limit: int = 100) -> int:
    """Place as many as fit and return how many."""
    number = len(packer.holders)
    for count in range(limit):
        if packer.place(resources, (f"00000_{number + count:05d}", 1)) is None:
            return count
    return limit


@pytest.mark.parametrize(
    ("cpus", "gpus", "request_", "at_once"),
    [
        (4, 0, {"cpu": 1}, 4),
        (4, 0, {"cpu": 2}, 2),
        (4, 0, {"cpu": 4}, 1),
        (4, 0, {"cpu": 3}, 1),
        (4, 0, {"cpu": 0.5}, 8),
        (4, 0, {"cpu": 0.1}, 40),
        (1, 0, {"cpu": 0.3}, 3),
        (0.5, 0, {"cpu": 0.25}, 2),
        (64, 8, {"gpu": 1}, 8),
        (64, 8, {"gpu": 2}, 4),
        (64, 8, {"gpu": 3}, 2),
        (64, 2, {"gpu": 0.5}, 4),
        (64, 2, {"gpu": 0.6}, 2),
        (4, 1, {"cpu": 2, "gpu": 1}, 1),
        (4, 2, {"cpu": 4, "gpu": 0.25}, 1),
    ],
)
def test_so_many_run_at_once(cpus, gpus, request_, at_once):
    assert fill(Packer([machine(cpus, gpus)]), one(**request_)) == at_once


@pytest.mark.parametrize("n", range(1, 21))
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_n_trials_that_ask_for_an_nth_each_fit(n, kind):
    node = machine(1, 1)
    assert fill(Packer([node]), one(**{kind: 1 / n})) == n


@pytest.mark.parametrize("amounts", [(0.1, 0.2, 0.7), (0.3, 0.3, 0.4), (0.1,) * 10])
def test_decimal_parts_of_one_add_up_to_one(amounts):
    packer = Packer([machine(1)])
    for i, amount in enumerate(amounts):
        assert packer.place(one(cpu=amount), (f"t_{i}", 1)) is not None


def test_memory_and_custom_resources_limit_too():
    packer = Packer([machine(64, memory=10 * GIB, licence=3)])
    assert fill(packer, one(cpu=1, memory=4 * GIB)) == 2
    assert fill(packer, one(custom=(("licence", 1),))) == 3
    assert packer.place(one(custom=(("licence", 0.5),)), ("x_0", 1)) is None
    assert not packer.could_ever_fit(one(custom=(("other", 1),)))


def test_a_share_goes_to_the_fullest_device_that_has_room():
    packer = Packer([machine(8, 3)])
    first = packer.place(one(gpu=0.5), ("a_0", 1))
    second = packer.place(one(gpu=0.5), ("a_1", 1))
    assert first == second
    third = packer.place(one(gpu=0.4), ("a_2", 1))
    assert third.devices != first.devices
    assert packer.place(one(gpu=0.6), ("a_3", 1)).devices == third.devices
    assert packer.place(one(gpu=1), ("a_4", 1)) is not None


def test_a_whole_device_is_never_one_that_is_shared():
    packer = Packer([machine(8, 2)])
    packer.place(one(gpu=0.1), ("a_0", 1))
    assert packer.place(one(gpu=2), ("a_1", 1)) is None
    assert packer.place(one(gpu=1), ("a_2", 1)).devices == ("g1",)


def test_whole_devices_come_from_the_node_with_the_fewest_that_suffice():
    packer = Packer([machine(8, 4, "big"), machine(8, 2, "small")])
    assert packer.place(one(gpu=2), ("a_0", 1)).bundles[0].node == "small"
    assert packer.place(one(gpu=3), ("a_1", 1)).bundles[0].node == "big"


def test_a_request_without_devices_keeps_away_from_nodes_that_have_some():
    packer = Packer([machine(8, 4, "devices"), machine(8, 0, "plain")])
    assert packer.place(one(cpu=2), ("a_0", 1)).bundles[0].node == "plain"


def test_tpu_and_gpu_are_counted_apart():
    node = Node("n", 8, devices=(Device("t0", kind="tpu"), Device("t1", kind="tpu"), Device("g0")))
    packer = Packer([node])
    assert packer.place(one(tpu=2, gpu=1), ("a_0", 1)).devices == ("g0", "t0", "t1")
    assert packer.place(one(gpu=0.1), ("a_1", 1)) is None


# --- gangs ---------------------------------------------------------------------------------------------------------


def test_a_gang_is_admitted_whole_or_not_at_all():
    packer = Packer([machine(4)])
    assert packer.place(gang({"cpu": 2}, {"cpu": 2}, {"cpu": 1}), ("a_0", 1)) is None
    assert packer.used() == {"cpu": (0, 4)}
    assert fill(packer, one(cpu=1)) == 4


def test_two_gangs_that_each_want_more_than_half_run_one_after_the_other():
    packer = Packer([machine(4)])
    two_workers = gang({"cpu": 1}, {"cpu": 2})
    assert packer.place(two_workers, ("a_0", 1)) is not None
    assert packer.place(two_workers, ("a_1", 1)) is None
    assert packer.release(("a_0", 1))
    assert packer.place(two_workers, ("a_1", 1)) is not None


def test_the_bundles_of_a_gang_prefer_distinct_devices():
    placement = Packer([machine(8, 2)]).place(gang({"gpu": 0.5}, {"gpu": 0.5}), ("a_0", 1))
    assert placement.devices == ("g0", "g1")


def test_the_bundles_of_a_gang_share_a_device_where_there_is_no_other():
    assert Packer([machine(8, 1)]).place(gang({"gpu": 0.5}, {"gpu": 0.5}), ("a_0", 1)).devices == ("g0",)


def test_a_gang_that_demands_distinct_devices_never_shares_one():
    request = gang({"gpu": 0.5}, {"gpu": 0.5}, distinct=True)
    packer = Packer([machine(8, 1)])
    assert not packer.could_ever_fit(request)
    assert packer.place(request, ("a_0", 1)) is None
    assert Packer([machine(8, 2)]).place(request, ("a_0", 1)).devices == ("g0", "g1")


def test_a_gang_of_unequal_shares_that_fits_an_idle_machine_is_placed():
    request = gang({"gpu": 0.5}, {"gpu": 0.5}, {"gpu": 0.4}, {"gpu": 0.3}, {"gpu": 0.3})
    assert Packer([machine(8, 2)]).could_ever_fit(request)  # g0: .5 + .5, g1: .4 + .3 + .3


THREE = [machine(4, 0, "a"), machine(4, 0, "b"), machine(4, 0, "c")]


@pytest.mark.parametrize(
    ("strategy", "bundles", "nodes_used"),
    [
        ("PACK", 2, {1}),
        ("PACK", 6, {2}),
        ("STRICT_PACK", 4, {1}),
        ("SPREAD", 3, {3}),
        ("SPREAD", 5, {3}),
        ("STRICT_SPREAD", 3, {3}),
        ("STRICT_SPREAD", 2, {2}),
    ],
)
def test_a_strategy_uses_so_many_nodes(strategy, bundles, nodes_used):
    placement = Packer(THREE).place(gang(*[{"cpu": 1}] * bundles, strategy=strategy), ("a_0", 1))
    assert {len({bundle.node for bundle in placement.bundles})} == nodes_used


@pytest.mark.parametrize(
    ("strategy", "bundles", "fits"),
    [
        ("PACK", 12, True),
        ("PACK", 13, False),
        ("STRICT_PACK", 4, True),
        ("STRICT_PACK", 5, False),
        ("SPREAD", 12, True),
        ("STRICT_SPREAD", 3, True),
        ("STRICT_SPREAD", 4, False),
    ],
)
def test_a_strategy_can_hold_so_many_bundles(strategy, bundles, fits):
    request = gang(*[{"cpu": 1}] * bundles, strategy=strategy)
    assert Packer(THREE).could_ever_fit(request) is fits


def test_a_gang_backs_out_of_a_node_that_its_next_bundle_needs():
    nodes = [machine(4, 1, "with"), machine(4, 0, "without")]
    request = gang({"cpu": 4}, {"cpu": 1, "gpu": 1})
    places = Packer(nodes).place(request, ("a_0", 1)).bundles
    assert [place.node for place in places] == ["without", "with"]


def test_the_placement_lists_the_bundles_in_the_order_of_the_request():
    placement = Packer([machine(8, 2)]).place(gang({"cpu": 1}, {"gpu": 1}, {"cpu": 2}), ("a_0", 1))
    assert [len(bundle.devices) for bundle in placement.bundles] == [0, 1, 0]


# --- releases and lost nodes ---------------------------------------------------------------------------------------


def test_a_release_of_what_holds_nothing_says_so():
    packer = Packer([machine(2)])
    assert packer.release(("a_0", 1)) is False
    packer.place(one(cpu=2), ("a_0", 1))
    assert packer.release(("a_0", 2)) is False
    assert packer.release(("a_0", 1)) is True
    assert packer.release(("a_0", 1)) is False


def test_a_release_adds_nothing_to_a_node_that_is_gone():
    packer = Packer([machine(2, 0, "a"), machine(2, 0, "b")])
    packer.place(gang({"cpu": 2}, {"cpu": 2}), ("a_0", 1))
    packer.set_nodes([machine(2, 0, "a")])
    assert packer.place(one(cpu=1), ("a_1", 1)) is None  # `a` is still held
    packer.release(("a_0", 1))
    assert fill(packer, one(cpu=1)) == 2
    assert packer.used() == {"cpu": (2, 2)}


def test_what_is_held_stays_held_when_its_node_comes_back():
    packer = Packer([machine(2, 1, "a")])
    packer.place(one(cpu=2, gpu=1), ("a_0", 1))
    packer.set_nodes([])
    packer.set_nodes([machine(2, 1, "a")])
    assert packer.place(one(cpu=1), ("a_1", 1)) is None
    packer.release(("a_0", 1))
    assert packer.place(one(cpu=2, gpu=1), ("a_2", 1)) is not None


def test_a_node_that_shrinks_under_its_trials_gives_nothing_before_enough_came_back():
    packer = Packer([machine(4)])
    packer.place(one(cpu=2), ("a_0", 1))
    packer.place(one(cpu=2), ("a_1", 1))
    packer.set_nodes([machine(2)])
    packer.release(("a_0", 1))
    assert packer.place(one(cpu=1), ("a_2", 1)) is None
    packer.release(("a_1", 1))
    assert fill(packer, one(cpu=1)) == 2


def test_a_device_that_is_gone_is_not_given_back():
    packer = Packer([machine(4, 2)])
    packer.place(one(gpu=2), ("a_0", 1))
    packer.set_nodes([machine(4, 1)])
    packer.release(("a_0", 1))
    assert fill(packer, one(gpu=1)) == 1


def test_a_request_known_not_to_fit_is_tried_again_after_a_release_and_after_a_new_inventory():
    packer = Packer([machine(2)])
    packer.place(one(cpu=2), ("a_0", 1))
    assert not packer.fits_now(one(cpu=1))
    packer.set_nodes([machine(4)])
    assert packer.fits_now(one(cpu=1))
    packer.set_nodes([machine(2)])
    assert not packer.fits_now(one(cpu=1))
    packer.release(("a_0", 1))
    assert packer.fits_now(one(cpu=1))


def test_to_look_whether_it_fits_takes_nothing():
    packer = Packer([machine(2, 1)])
    for _ in range(5):
        assert packer.fits_now(one(cpu=2, gpu=1))
    assert packer.place(one(cpu=2, gpu=1), ("a_0", 1)) is not None


# --- the texts -----------------------------------------------------------------------------------------------------

TAIL = " Lower resources_per_trial, or declare a larger machine with sweep.init(num_cpus=..., num_gpus=...)."


@pytest.mark.parametrize(
    ("nodes", "request_", "text"),
    [
        ([machine(2)], one(cpu=4), "a trial asks for cpu=4; cpu=4 is more than this machine has: 2."),
        (
            [machine(2, 2, "a"), machine(4, 1, "b")],
            one(gpu=4),
            "a trial asks for gpu=4; gpu=4 is more than the largest node has: 2.",
        ),
        (
            [machine(4)],
            gang({"cpu": 1}, *[{"cpu": 2}] * 3),
            "a trial asks for (cpu=1) + 3 x (cpu=2) PACK; it needs cpu=7 in all, there are 4.",
        ),
        (
            [machine(4, memory=GIB)],
            one(memory=3 * GIB),
            "a trial asks for memory=3GiB; memory=3GiB is more than this machine has: 1GiB.",
        ),
        ([machine(4)], one(custom=(("tape", 2),)), "a trial asks for tape=2; tape=2 is more than this machine has: 0."),
        (
            [machine(4, 0, "a"), machine(4, 0, "b")],
            gang({"cpu": 1}, {"cpu": 1}, {"cpu": 1}, strategy="STRICT_SPREAD"),
            "a trial asks for 3 x (cpu=1) STRICT_SPREAD; its bundles cannot be laid out on 2 nodes by STRICT_SPREAD.",
        ),
        ([], one(cpu=1), "a trial asks for cpu=1; there is no node to run on."),
    ],
)
def test_why_something_can_never_fit_is_said_with_the_arithmetic(nodes, request_, text):
    packer = Packer(nodes)
    assert not packer.could_ever_fit(request_)
    assert packer.why_never(request_) == text + TAIL
    assert packer.why_not(request_) == text + TAIL


def test_why_something_waits_names_amounts_and_holders():
    packer = Packer([machine(4, 1)])
    for number in range(3):
        packer.place(one(cpu=1), (f"00000_{number:05d}", 1))
    packer.place(one(cpu=1, gpu=1), ("00000_00003", 1))
    assert packer.why_not(one(cpu=2)) == ("waits for cpu=2; 0 of 4 free, the rest held by 00000, 00001, 00002, 00003")
    assert packer.why_not(one(gpu=1)) == "waits for gpu=1; 0 of 1 free, the rest held by 00003"


def test_of_many_holders_four_are_named_and_the_rest_counted():
    packer = Packer([machine(8)])
    assert fill(packer, one(cpu=1)) == 8
    assert packer.why_not(one(cpu=1)).endswith("held by 00000, 00001, 00002, 00003 and 4 more")


def test_enough_in_all_but_not_in_one_piece_is_said():
    packer = Packer([machine(2, 0, "a"), machine(2, 0, "b")])
    packer.place(one(cpu=1), ("x_0", 1))
    packer.place(gang({"cpu": 1}, {"cpu": 1}, strategy="STRICT_SPREAD"), ("x_1", 1))
    assert packer.why_not(one(cpu=2)).startswith("waits for cpu=2; 1 of 4 free")
    packer = Packer([machine(2, 0, "a"), machine(2, 0, "b")])
    packer.place(gang({"cpu": 1}, {"cpu": 1}, strategy="STRICT_SPREAD"), ("x_1", 1))
    assert packer.why_not(one(cpu=2)) == "waits for cpu=2 in one piece; what is free is scattered"


# --- properties ----------------------------------------------------------------------------------------------------

amounts = st.sampled_from([0, 0.25, 0.5, 1, 2, 3])
gpus = st.sampled_from([0, 0, 0.25, 0.5, 1, 2])
bundles = st.builds(
    Bundle,
    cpu=amounts,
    gpu=gpus,
    memory=st.sampled_from([0, 0, 1, 3]),
    custom=st.sampled_from([(), (), (("slot", 1.0),)]),
)
requests = (
    st.builds(
        lambda items, strategy, distinct: (items, strategy, distinct),
        st.lists(bundles, min_size=1, max_size=4).map(tuple),
        st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]),
        st.booleans(),
    )
    .filter(lambda parts: any(not bundle.is_empty for bundle in parts[0]))
    .map(lambda parts: Resources(*parts))
)
inventories = st.lists(
    st.tuples(st.sampled_from([0.5, 1, 2, 4]), st.integers(0, 3), st.sampled_from([0, 4]), st.sampled_from([0.0, 2.0])),
    min_size=1,
    max_size=3,
).map(lambda rows: [machine(c, g, f"n{i}", m, slot=s) for i, (c, g, m, s) in enumerate(rows)])


def check(packer: Packer, held: dict) -> None:
    """Whatever is held fits the inventory exactly, whoever counted it."""
    used: Counter = Counter()
    for resources, placement in held.values():
        assert len(placement.bundles) == len(resources.bundles)
        seen: list[tuple[str, str]] = []
        for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
            used[place.node, "cpu"] += Fraction(bundle.cpu)
            used[place.node, "memory"] += bundle.memory
            for name, amount in bundle.custom:
                used[place.node, name] += Fraction(amount)
            shares = [share for _, share in place.devices]
            assert sum(shares) == bundle.gpu
            for device, share in place.devices:
                used[place.node, "device", device] += Fraction(share)
                seen.append((place.node, device))
        if resources.distinct_devices:
            assert len(set(seen)) == len(seen)
        nodes = [place.node for place in placement.bundles]
        if resources.strategy == "STRICT_PACK":
            assert len(set(nodes)) == 1
        if resources.strategy == "STRICT_SPREAD":
            assert len(set(nodes)) == len(nodes)
    have: dict = {}
    for node in packer.nodes:
        have[node.id, "cpu"] = node.cpus
        have[node.id, "memory"] = node.memory
        have |= {(node.id, name): amount for name, amount in node.custom.items()}
        have |= {(node.id, "device", device.id): 1 for device in node.devices}
    for key, amount in used.items():
        assert amount <= have.get(key, 0), key


@settings(max_examples=150, deadline=None)
@given(inventories, st.lists(st.tuples(requests, st.integers(0, 3)), max_size=12))
def test_nothing_is_ever_given_out_twice_and_everything_comes_back(nodes, script):
    packer = Packer(nodes)
    held: dict = {}
    for number, (resources, act) in enumerate(script):
        if act == 0 and held:
            holder = next(iter(held))
            assert packer.release(holder)
            del held[holder]
        fits = packer.fits_now(resources)
        placement = packer.place(resources, (f"t_{number}", 1))
        assert fits is (placement is not None)
        if placement is not None:
            assert packer.could_ever_fit(resources)
            held[f"t_{number}", 1] = (resources, placement)
        check(packer, held)
    for holder in list(held):
        assert packer.release(holder)
    assert packer.holders == []
    fresh = Packer(nodes)
    for resources, _ in script:
        assert packer.fits_now(resources) is fresh.fits_now(resources) is packer.could_ever_fit(resources)


@settings(max_examples=200, deadline=None)
@given(inventories, requests)
def test_what_could_ever_fit_is_what_an_idle_machine_takes(nodes, resources):
    packer = Packer(nodes)
    assert packer.could_ever_fit(resources) is (packer.place(resources, ("t_0", 1)) is not None)


def fits_by_trying_everything(nodes: list[Node], resources: Resources) -> bool:
    """Whether any assignment of bundles to nodes works, looking at amounts alone; shares must all be equal."""
    for choice in itertools.product(range(len(nodes)), repeat=len(resources.bundles)):
        if resources.strategy == "STRICT_PACK" and len(set(choice)) > 1:
            continue
        if resources.strategy == "STRICT_SPREAD" and len(set(choice)) < len(choice):
            continue
        for i, node in enumerate(nodes):
            mine = [bundle for bundle, n in zip(resources.bundles, choice, strict=True) if n == i]
            whole = sum(int(b.gpu) for b in mine if b.gpu >= 1)
            shares = [b.gpu for b in mine if 0 < b.gpu < 1]
            per_device = 1 if resources.distinct_devices else int(1 / shares[0]) if shares else 1
            if (
                sum(b.cpu for b in mine) > node.cpus
                or sum(b.memory for b in mine) > node.memory
                or sum(dict(b.custom).get("slot", 0) for b in mine) > node.custom.get("slot", 0)
                or whole + -(-len(shares) // per_device) > len(node.devices)
            ):
                break
        else:
            return True
    return False


@settings(max_examples=300, deadline=None)
@given(inventories, requests)
def test_a_gang_that_fits_an_idle_inventory_is_always_placed(nodes, resources):
    shares = {bundle.gpu for bundle in resources.bundles if 0 < bundle.gpu < 1}
    if len(shares) > 1:
        return
    assert Packer(nodes).could_ever_fit(resources) is fits_by_trying_everything(nodes, resources)


@settings(max_examples=100, deadline=None)
@given(inventories, st.lists(requests, max_size=6), st.data())
def test_lost_nodes_take_their_capacity_with_them(nodes, script, data):
    packer = Packer(nodes)
    held = {}
    for number, resources in enumerate(script):
        placement = packer.place(resources, (f"t_{number}", 1))
        if placement is not None:
            held[f"t_{number}", 1] = (resources, placement)
    left = data.draw(st.lists(st.sampled_from(nodes), unique_by=lambda node: node.id))
    packer.set_nodes(left)
    for holder in held:
        packer.release(holder)
    fresh = Packer(left)
    for resources in script:
        assert packer.fits_now(resources) is fresh.fits_now(resources)
