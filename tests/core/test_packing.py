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


def gang(*bundles: dict, strategy: str = "PACK", distinct: bool = False, shared: bool = False) -> Resources:
    return Resources(tuple(Bundle(**bundle) for bundle in bundles), strategy, distinct, shared_devices=shared)


A100_40 = ("NVIDIA A100-SXM4-40GB", ("A100", "A100-40G"))
A100_80 = ("NVIDIA A100-SXM4-80GB", ("A100", "A100-80G"))
H100 = ("NVIDIA H100 80GB HBM3", ("H100", "H100-80G"))
L4 = ("L4", ())
UNKNOWN = ("", ())


def typed(*kinds: tuple, name: str = "local", cpus: float = 64) -> Node:
    """Return a machine with one GPU of each kind, in this order."""
    devices = [Device(f"g{i}", "gpu", type_, labels=labels) for i, (type_, labels) in enumerate(kinds)]
    return Node(name, cpus, devices=tuple(devices))


def host(name: str, chips: int = 4, slice_: str = "", cpus: float = 8, type_: str = "TPU-V6E") -> Node:
    """Return a machine with TPU chips."""
    return Node(name, cpus, devices=tuple(Device(f"tpu{i}", "tpu", type_) for i in range(chips)), slice=slice_)


def group(number: int, per_slice: int, tpu: float = 4, strategy: str = "PACK", head: dict | None = None) -> Resources:
    """Return a group of equal workers that fill TPU slices, behind a head of its own."""
    workers = [Bundle(cpu=1, tpu=tpu)] * number
    return Resources((*([Bundle(**head)] if head else []), *workers), strategy, False, per_slice)


def lies(packer: Packer, resources: Resources, trial: str = "t_0") -> list[str] | None:
    """Place a request and return where its bundles lie: `node:devices`."""
    placement = packer.place(resources, (trial, 1))
    if placement is None:
        return None
    return [f"{b.node}:{','.join(device.removeprefix('tpu') for device, _ in b.devices)}" for b in placement.bundles]


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


@pytest.mark.parametrize(("gpus", "devices"), [(2, ("g0", "g1")), (1, ("g0",))])
def test_the_bundles_of_a_gang_prefer_distinct_devices_and_share_one_where_there_is_no_other(gpus, devices):
    assert Packer([machine(8, gpus)]).place(gang({"gpu": 0.5}, {"gpu": 0.5}), ("a_0", 1)).devices == devices


def test_a_gang_that_demands_distinct_devices_never_shares_one():
    request = gang({"gpu": 0.5}, {"gpu": 0.5}, distinct=True)
    packer = Packer([machine(8, 1)])
    assert not packer.could_ever_fit(request)
    assert packer.place(request, ("a_0", 1)) is None
    assert Packer([machine(8, 2)]).place(request, ("a_0", 1)).devices == ("g0", "g1")


def halved(packer: Packer, *devices: str, node: str = "local") -> None:
    """Have a trial of its own hold half of each of some devices; the others stay idle."""
    held = {device.id for one in packer.nodes if one.id == node for device in one.devices}
    fillers = [packer.place(Resources((Bundle(gpu=0.5),)), (f"f_{n}", 1)) for n in range(2 * len(held))]
    for number, placement in enumerate(fillers):
        is_kept = placement.devices[0] in devices and number % 2 == 0
        if not is_kept:
            packer.release((f"f_{number}", 1))


@pytest.mark.parametrize(
    ("busy", "request_", "expected"),
    [
        ([], [{"gpu": 0.5}] * 2, ["g0", "g0"]),
        ([], [{"gpu": 0.25}] * 4, ["g0"] * 4),
        ([], [{"gpu": 0.5}] * 4, ["g0", "g0", "g1", "g1"]),
        ([], [{"gpu": 0.5}] * 3, ["g0", "g0", "g1"]),
        (["g0"], [{"gpu": 0.5}] * 2, ["g1", "g1"]),  # not half here and half there
        (["g0"], [{"gpu": 0.25}] * 2, ["g0", "g0"]),  # the fullest that has room for all: the other stays whole
        (["g0", "g1"], [{"gpu": 0.5}] * 2, ["g2", "g2"]),
        (["g0", "g1", "g2"], [{"gpu": 0.5}] * 2, ["g0", "g1"]),  # no device has room for both: rather than wait
        (["g0"], [{"gpu": 0.25}] * 5, ["g1", "g1", "g1", "g1", "g2"]),  # on two, which is as few as there can be
        ([], [{"gpu": 1}, {"gpu": 0.5}, {"gpu": 0.5}], ["g0", "g1", "g1"]),
    ],
)
def test_shares_that_are_to_lie_together_lie_on_as_few_devices_as_possible(busy, request_, expected):
    packer = Packer([machine(8, 3)])
    halved(packer, *busy)
    placement = packer.place(gang(*request_, shared=True), ("a_0", 1))
    assert [bundle.devices[0][0] for bundle in placement.bundles] == expected


def test_shares_lie_together_on_another_node_rather_than_apart_on_a_fuller_one():
    packer = Packer([machine(8, 2, "a"), machine(8, 1, "b")])
    for number in range(2):
        packer.place(Resources((Bundle(gpu=0.6),) * 2, "STRICT_PACK", True), (f"f_{number}", 1))
    assert lies(packer, gang({"gpu": 0.4}, {"gpu": 0.4}, shared=True)) == ["b:g0", "b:g0"]


@pytest.mark.parametrize("strategy", ["SPREAD", "STRICT_SPREAD"])
def test_shares_of_a_gang_that_is_spread_lie_on_the_nodes_it_is_spread_over(strategy):
    packer = Packer([machine(8, 1, "a"), machine(8, 1, "b")])
    placement = packer.place(gang({"gpu": 0.5}, {"gpu": 0.5}, strategy=strategy), ("a_0", 1))
    assert {bundle.node for bundle in placement.bundles} == {"a", "b"}


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


# --- types of devices ----------------------------------------------------------------------------------------------

MIXED = typed(H100, A100_40, L4, A100_80, UNKNOWN)


@pytest.mark.parametrize("amount", [1, 0.5])
@pytest.mark.parametrize(
    ("type_", "device"),
    [
        ("", "g0"),
        ("H100", "g0"),
        ("A100", "g1"),
        ("a100", "g1"),
        (" A100 ", "g1"),
        ("A100-80G", "g3"),
        ("nvidia a100-sxm4-80gb", "g3"),
        ("l4", "g2"),
    ],
)
def test_a_bundle_takes_the_first_device_whose_type_or_label_it_names_in_any_case(amount, type_, device):
    placement = Packer([MIXED]).place(one(gpu=amount, accelerator_type=type_), ("a_0", 1))
    assert placement.bundles[0].devices == ((device, amount),)


def test_several_devices_are_all_of_the_type():
    packer = Packer([MIXED])
    assert packer.place(one(gpu=2, accelerator_type="A100"), ("a_0", 1)).devices == ("g1", "g3")
    assert packer.place(one(gpu=1, accelerator_type="A100"), ("a_1", 1)) is None
    assert packer.place(one(gpu=3), ("a_2", 1)).devices == ("g0", "g2", "g4")


def test_a_type_that_is_a_part_of_another_name_does_not_match():
    assert not Packer([typed(A100_40)]).could_ever_fit(one(gpu=1, accelerator_type="A10"))


def test_a_share_goes_to_the_fullest_device_of_its_type():
    packer = Packer([typed(H100, A100_40, A100_80)])
    packer.place(one(gpu=0.5), ("a_0", 1))
    packer.place(one(gpu=0.5, accelerator_type="A100-80G"), ("a_1", 1))
    assert packer.place(one(gpu=0.25, accelerator_type="A100"), ("a_2", 1)).devices == ("g2",)
    assert packer.place(one(gpu=0.25), ("a_3", 1)).devices == ("g2",)
    assert packer.place(one(gpu=0.25), ("a_4", 1)).devices == ("g0",)


def test_devices_of_a_type_come_from_the_node_with_the_fewest_of_them_that_suffice():
    nodes = [typed(A100_40, A100_40, name="two"), typed(H100, H100, H100, A100_40, name="one")]
    assert Packer(nodes).place(one(gpu=1, accelerator_type="A100"), ("a_0", 1)).bundles[0].node == "one"
    assert Packer(nodes).place(one(gpu=1), ("a_0", 1)).bundles[0].node == "two"


def test_types_and_kinds_are_matched_together():
    node = Node("n", 8, devices=(Device("g0", "gpu", "X1"), Device("tpu0", "tpu", "TPU-V6E")))
    assert not Packer([node]).could_ever_fit(one(tpu=1, accelerator_type="X1"))
    assert Packer([node]).place(one(tpu=1, accelerator_type="tpu-v6e"), ("a_0", 1)).devices == ("tpu0",)
    assert not Packer([node]).could_ever_fit(one(gpu=1, tpu=1, accelerator_type="X1"))


@pytest.mark.parametrize(
    ("nodes", "bundles", "devices"),
    [
        # a bundle of any type leaves the only device of a type to the one that wants it
        ([typed(A100_40, H100)], [{"gpu": 1}, {"gpu": 1, "accelerator_type": "A100"}], ["g1", "g0"]),
        # though it is the larger one
        ([typed(A100_40, H100, H100)], [{"gpu": 2}, {"gpu": 1, "accelerator_type": "A100"}], ["g1,g2", "g0"]),
        # a bundle of the wider type leaves the only device of the narrower one
        (
            [typed(A100_40, A100_80)],
            [{"gpu": 1, "accelerator_type": "A100"}, {"gpu": 1, "accelerator_type": "A100-40G"}],
            ["g1", "g0"],
        ),
        # shares too
        (
            [typed(A100_40, A100_80)],
            [{"gpu": 0.6, "accelerator_type": "A100"}, {"gpu": 0.5, "accelerator_type": "A100-40G"}],
            ["g1", "g0"],
        ),
    ],
)
def test_the_bundles_of_a_gang_leave_each_other_the_types_they_need(nodes, bundles, devices):
    placement = Packer(nodes).place(gang(*bundles), ("a_0", 1))
    assert [",".join(device for device, _ in place.devices) for place in placement.bundles] == devices


def test_many_bundles_of_a_wider_type_do_not_hide_that_narrower_ones_fit():
    nodes = [typed(*[A100_40] * 16, *[A100_80] * 16)]
    wide, narrow = {"gpu": 1, "accelerator_type": "A100"}, {"gpu": 1, "accelerator_type": "A100-40G"}
    request = gang(*[wide] * 16, *[narrow] * 16)
    placement = Packer(nodes).place(request, ("a_0", 1))
    assert [place.devices[0][0] for place in placement.bundles] == [f"g{i}" for i in (*range(16, 32), *range(16))]
    assert not Packer(nodes).could_ever_fit(gang(*[wide] * 15, *[narrow] * 17))


def test_many_bundles_of_any_type_do_not_hide_that_those_of_a_type_fit():
    nodes = [typed(*[A100_40] * 4, *[H100] * 4, name=f"n{i}") for i in range(8)]
    bundles = [*[{"gpu": 1}] * 32, *[{"gpu": 1, "accelerator_type": "A100"}] * 32]
    assert Packer(nodes).could_ever_fit(gang(*bundles))
    assert not Packer(nodes).could_ever_fit(gang(*bundles, {"gpu": 1, "accelerator_type": "A100"}))


# --- TPU chips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chips", "counts", "blocks"),
    [
        (8, [1, 1, 2, 4], ["0", "1", "2,3", "4,5,6,7"]),
        (8, [4, 1, 2, 1], ["0,1,2,3", "4", "6,7", "5"]),
        (8, [2, 1, 4, 1], ["0,1", "2", "4,5,6,7", "3"]),
        (8, [1, 2, 1, 2, 2], ["0", "2,3", "1", "4,5", "6,7"]),
        (8, [8, 1], ["0,1,2,3,4,5,6,7", None]),
        (8, [1, 8], ["0", None]),
        (4, [1, 4], ["0", None]),
        (4, [4], ["0,1,2,3"]),
        (4, [2, 2, 1], ["0,1", "2,3", None]),
        (2, [2], ["0,1"]),
        (1, [1], ["0"]),
        (6, [1, 4, 2], ["4", "0,1,2,3", None]),  # a block beyond the last chip is no block
        (6, [2, 4], ["4,5", "0,1,2,3"]),
        (3, [2, 1], ["0,1", "2"]),
        (3, [1, 2], ["2", "0,1"]),
    ],
)
def test_chips_are_given_out_in_aligned_blocks_that_break_the_least(chips, counts, blocks):
    packer = Packer([host("n", chips)])
    found = [lies(packer, one(tpu=count), f"t_{i}") for i, count in enumerate(counts)]
    assert found == [None if block is None else [f"n:{block}"] for block in blocks]


def test_a_block_that_is_broken_already_is_used_first():
    packer = Packer([host("n", 8)])
    assert lies(packer, one(tpu=2), "t_0") == ["n:0,1"]
    assert lies(packer, one(tpu=2), "t_1") == ["n:2,3"]
    packer.release(("t_0", 1))
    assert lies(packer, one(tpu=1), "t_2") == ["n:0"]
    assert lies(packer, one(tpu=4), "t_3") == ["n:4,5,6,7"]
    packer.release(("t_1", 1))
    assert lies(packer, one(tpu=1), "t_4") == ["n:1"]
    assert lies(packer, one(tpu=2), "t_5") == ["n:2,3"]


def test_chips_that_are_free_but_in_no_block_do_not_suffice():
    packer = Packer([host("n", 4)])
    assert [lies(packer, one(tpu=1), f"t_{i}") for i in range(4)] == [["n:0"], ["n:1"], ["n:2"], ["n:3"]]
    packer.release(("t_1", 1))
    packer.release(("t_2", 1))
    assert packer.place(one(tpu=2), ("t_4", 1)) is None
    assert packer.why_not(one(tpu=2)) == "waits for tpu=2 in one piece; what is free is scattered"


def test_of_several_hosts_the_one_that_is_broken_already_is_used_first():
    packer = Packer([host("a"), host("b", 8)])
    assert lies(packer, one(tpu=1), "t_0") == ["a:0"]  # breaks a smaller block than the 8 of `b`
    assert lies(packer, one(tpu=4), "t_1") == ["b:0,1,2,3"]
    assert lies(packer, one(tpu=2), "t_2") == ["a:2,3"]
    packer.release(("t_0", 1))
    packer.release(("t_2", 1))
    assert lies(packer, one(tpu=4), "t_3") == ["a:0,1,2,3"]


def test_of_two_hosts_the_one_with_the_smaller_free_block_is_used_even_if_more_is_free_there():
    packer = Packer([host("large", 8), host("idle")])
    assert lies(packer, one(tpu=4), "t_0") == ["idle:0,1,2,3"]
    assert lies(packer, one(tpu=2), "t_1") == ["large:0,1"]
    packer.release(("t_0", 1))
    assert lies(packer, one(tpu=1), "t_2") == ["large:2"]  # 6 are free there, but only 2 in one block


def test_chips_that_are_spread_go_to_the_host_with_most_idle_ones():
    packer = Packer([host("a"), host("b")])
    assert lies(packer, one(tpu=1), "t_0") == ["a:0"]
    spread = Resources((Bundle(tpu=1),), "SPREAD")
    assert lies(packer, spread, "t_1") == ["b:0"]
    assert lies(packer, Resources((Bundle(tpu=1),) * 3, "SPREAD"), "t_2") == ["a:1", "b:1", "a:2"]


# --- TPU slices ----------------------------------------------------------------------------------------------------


def hosts_of(slice_: str, number: int, chips: int = 4, cpus: float = 8) -> list[Node]:
    return [host(f"{slice_}{i}", chips, slice_, cpus) for i in range(number)]


def test_a_group_lies_on_one_slice_in_the_order_of_its_hosts():
    nodes = [node for pair in zip(hosts_of("s", 4), hosts_of("t", 4), strict=True) for node in pair]
    packer = Packer(nodes)
    assert lies(packer, group(4, 4), "t_0") == ["s0:0,1,2,3", "s1:0,1,2,3", "s2:0,1,2,3", "s3:0,1,2,3"]
    assert lies(packer, group(4, 4), "t_1") == ["t0:0,1,2,3", "t1:0,1,2,3", "t2:0,1,2,3", "t3:0,1,2,3"]
    assert packer.place(group(4, 4), ("t_2", 1)) is None


def test_the_smallest_slice_that_will_do_is_used():
    packer = Packer([*hosts_of("large", 4), *hosts_of("small", 2), host("alone")])
    assert lies(packer, group(2, 2), "t_0") == ["small0:0,1,2,3", "small1:0,1,2,3"]
    assert lies(packer, group(1, 1), "t_1") == ["alone:0,1,2,3"]
    assert lies(packer, group(1, 1), "t_2") == ["large0:0,1,2,3"]


def test_each_run_of_bundles_has_a_slice_of_its_own():
    packer = Packer([*hosts_of("s", 3), *hosts_of("t", 2), *hosts_of("u", 2)])
    assert lies(packer, group(4, 2, tpu=2)) == ["t0:0,1", "t0:2,3", "u0:0,1", "u0:2,3"]
    assert not packer.could_ever_fit(group(8, 2))
    assert packer.could_ever_fit(group(6, 2))


def test_hosts_without_a_slice_are_slices_by_themselves():
    packer = Packer([host("a"), host("b")])
    assert lies(packer, group(2, 1)) == ["a:0,1,2,3", "b:0,1,2,3"]
    assert not packer.could_ever_fit(group(2, 2))
    assert packer.could_ever_fit(group(2, 2, tpu=2))


UNEVEN = [host("s0", 2, "s"), host("s1", 2, "s"), host("s2", 4, "s"), host("s3", 4, "s")]
PLAIN = Node("plain", 64)
ONE_FOR_THE_HEAD = [host("s0", slice_="s", cpus=6), *[host(f"s{i}", slice_="s", cpus=1) for i in (1, 2)]]
RUNS = Resources((*[Bundle(tpu=2)] * 2, *[Bundle(tpu=4)] * 2), bundles_per_slice=2)


@pytest.mark.parametrize(
    ("nodes", "request_", "where"),
    [
        # a host by itself is used before one of a slice
        ([host("a", slice_="s"), host("b", slice_="s"), host("alone")], one(tpu=4), ["alone:0,1,2,3"]),
        # the bundles of a gang fill a host whatever their order
        ([host("n", 8)], gang(*[{"tpu": n} for n in (1, 2, 4, 1)]), ["n:6", "n:4,5", "n:0,1,2,3", "n:7"]),
        # the strategy decides how many hosts of the slice are used
        (hosts_of("s", 4), group(4, 4, tpu=2, strategy="PACK"), ["s0:0,1", "s0:2,3", "s1:0,1", "s1:2,3"]),
        (hosts_of("s", 4), group(4, 4, tpu=2, strategy="SPREAD"), ["s0:0,1", "s1:0,1", "s2:0,1", "s3:0,1"]),
        (hosts_of("s", 4), group(4, 4, tpu=2, strategy="STRICT_SPREAD"), ["s0:0,1", "s1:0,1", "s2:0,1", "s3:0,1"]),
        (hosts_of("s", 4), group(4, 4, tpu=2, strategy="STRICT_PACK"), None),
        # packing uses as few hosts as possible, and then the first
        (UNEVEN, group(2, 2, tpu=2), ["s2:0,1", "s2:2,3"]),
        (UNEVEN, group(3, 3, tpu=2), ["s0:0,1", "s2:0,1", "s2:2,3"]),
        # spreading over too few hosts gives each the same number
        (hosts_of("s", 2), group(4, 4, tpu=1, strategy="SPREAD"), ["s0:0", "s0:1", "s1:0", "s1:1"]),
        # a head without chips lies with its group if there is room, and elsewhere if there is none
        ([PLAIN, *hosts_of("s", 2)], group(2, 2, head={"cpu": 1}), ["s0:", "s0:0,1,2,3", "s1:0,1,2,3"]),
        ([PLAIN, *hosts_of("s", 2, cpus=1)], group(2, 2, head={"cpu": 1}), ["plain:", "s0:0,1,2,3", "s1:0,1,2,3"]),
        # a group leaves its head the only node that can hold it
        (ONE_FOR_THE_HEAD, group(2, 2, head={"cpu": 6}), ["s0:", "s1:0,1,2,3", "s2:0,1,2,3"]),
        # runs that differ get the slices that can hold them
        (
            [*hosts_of("s", 2), *hosts_of("t", 4, chips=2)],
            RUNS,
            ["t0:0,1", "t1:0,1", "s0:0,1,2,3", "s1:0,1,2,3"],
        ),
    ],
)
def test_chips_of_an_idle_machine_are_given_out_so(nodes, request_, where):
    assert lies(Packer(nodes), request_) == where


def test_workers_on_one_host_have_its_chips_in_the_order_of_their_ranks():
    packer = Packer([host("n", 8)])
    for i in range(4):
        packer.place(one(tpu=2), (f"x_{i}", 1))
    for i in (0, 1, 3):
        packer.release((f"x_{i}", 1))
    # The block beside the one in use is taken first, but by the last rank.
    assert lies(packer, group(2, 2, tpu=2)) == ["n:0,1", "n:6,7"]


def test_a_group_and_its_head_have_a_node_each_where_they_must():
    nodes = [host("s0", slice_="s", cpus=8), *[host(f"s{i}", slice_="s", cpus=1) for i in (1, 2)]]
    request = group(2, 2, head={"cpu": 6}, strategy="STRICT_SPREAD")
    assert lies(Packer(nodes), request) == ["s0:", "s1:0,1,2,3", "s2:0,1,2,3"]
    assert not Packer(nodes[:2]).could_ever_fit(request)


def with_gpus(node: Node, number: int = 1) -> Node:
    gpus = [Device(f"g{i}") for i in range(number)]
    return Node(node.id, node.cpus, node.memory, (*node.devices, *gpus), node.custom, node.slice)


def test_a_head_and_its_group_have_devices_of_their_own_whoever_is_placed_first():
    nodes = [with_gpus(node) for node in hosts_of("s", 2)]
    worker = Bundle(cpu=1, tpu=4, gpu=0.5)
    near = Resources((Bundle(gpu=0.5), worker), distinct_devices=True, bundles_per_slice=1)
    assert lies(Packer(nodes), near) == ["s1:g0", "s0:g0,0,1,2,3"]
    assert not Packer(nodes[:1]).could_ever_fit(near)
    # The head fits on the first host only, whose only GPU the group must leave alone then.
    nodes = [with_gpus(host(f"s{i}", slice_="s", cpus=cpus)) for i, cpus in enumerate((7, 1, 1))]
    first = Resources((Bundle(cpu=6, gpu=0.5), worker, worker), distinct_devices=True, bundles_per_slice=2)
    assert lies(Packer(nodes), first) == ["s0:g0", "s1:g0,0,1,2,3", "s2:g0,0,1,2,3"]
    assert not Packer(nodes[:2]).could_ever_fit(first)
    # Both workers on the first host would leave no room for the head; one of them finds the GPU that the head has not.
    nodes = [with_gpus(host("s0", slice_="s", cpus=8), 2), with_gpus(host("s1", slice_="s", cpus=1))]
    workers = (Bundle(cpu=1, tpu=2, gpu=0.5),) * 2
    first = Resources((Bundle(cpu=7, gpu=0.5), *workers), distinct_devices=True, bundles_per_slice=2)
    assert lies(Packer(nodes), first) == ["s0:g0", "s0:g1,0,1", "s1:g0,0,1"]


def test_a_slice_that_is_partly_used_is_used_as_far_as_it_goes():
    packer = Packer(hosts_of("s", 4))
    packer.place(one(tpu=1), ("x_0", 1))
    assert lies(packer, group(3, 3)) == ["s1:0,1,2,3", "s2:0,1,2,3", "s3:0,1,2,3"]


def test_a_group_of_many_small_workers_fills_a_large_slice_exactly():
    packer = Packer(hosts_of("s", 64))
    assert lies(packer, group(256, 256, tpu=1)) == [f"s{i}:{chip}" for i in range(64) for chip in range(4)]
    assert not packer.could_ever_fit(group(257, 257, tpu=1))


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
        (
            [typed(H100, A100_40, H100)],
            one(gpu=2, accelerator_type="a100"),
            "a trial asks for gpu=2 (a100); gpu=2 of type a100 is more than this machine has: 1.",
        ),
        (
            [typed(A100_40, name="a"), typed(A100_80, L4, name="b")],
            gang(*[{"gpu": 1, "accelerator_type": "A100"}] * 3),
            "a trial asks for 3 x (gpu=1 (A100)) PACK; it needs gpu=3 of type A100 in all, there are 2.",
        ),
        (
            [typed(A100_40, L4)],
            gang({"gpu": 1, "accelerator_type": "L4"}, {"gpu": 1}, {"gpu": 1}),
            "a trial asks for (gpu=1 (L4)) + 2 x (gpu=1) PACK; it needs gpu=3 in all, there are 2.",
        ),
        (
            [machine(8, 2)],
            gang(*[{"gpu": 0.5}] * 4, distinct=True),
            "a trial asks for 4 x (gpu=0.5) PACK; 4 workers with gpu=0.5 each need 4 devices of their own; this "
            "machine has 2.",
        ),
        (
            [machine(8, 2, "a"), machine(8, 1, "b")],
            gang({"cpu": 1}, *[{"gpu": 0.5}] * 2, *[{"gpu": 1}] * 2, distinct=True),
            "a trial asks for (cpu=1) + 2 x (gpu=0.5) + 2 x (gpu=1) PACK; 2 workers with gpu=0.5 and 2 workers with "
            "gpu=1 each need 4 devices of their own; the nodes have 3.",
        ),
        (
            [machine(8, 2, "a"), machine(8, 1, "b")],
            gang(*[{"gpu": 0.5}] * 3, strategy="STRICT_PACK", distinct=True),
            "a trial asks for 3 x (gpu=0.5) STRICT_PACK; 3 workers with gpu=0.5 each need 3 devices of their own; the "
            "largest node has 2.",
        ),
        (
            [typed(H100, H100, A100_40)],
            gang(*[{"gpu": 0.5, "accelerator_type": "A100"}] * 2, distinct=True),
            "a trial asks for 2 x (gpu=0.5 (A100)) PACK; 2 workers with gpu=0.5 of type A100 each need 2 devices of "
            "their own; this machine has 1.",
        ),
        (
            [host("n", 4)],
            one(tpu=8),
            "a trial asks for tpu=8; tpu=8 is more than this machine has: 4.",
        ),
    ],
)
def test_why_something_can_never_fit_is_said_with_the_arithmetic(nodes, request_, text):
    packer = Packer(nodes)
    assert not packer.could_ever_fit(request_)
    assert packer.why_never(request_) == text + TAIL
    assert packer.why_not(request_) == text + TAIL


@pytest.mark.parametrize(
    ("nodes", "request_", "text"),
    [
        (
            [typed(H100, H100)],
            one(gpu=1, accelerator_type="A100"),
            "a trial asks for gpu=1 (A100); it needs gpu=1 of type A100; this machine has 2 x H100.",
        ),
        (
            [typed(L4, H100, name="a"), typed(A100_40, A100_80, UNKNOWN, name="b")],
            one(gpu=0.5, accelerator_type="A100-80GB"),
            "a trial asks for gpu=0.5 (A100-80GB); it needs gpu=0.5 of type A100-80GB; the nodes have 1 x A100-80G, "
            "1 x H100-80G, 1 x A100-40G, 1 x L4, 1 x an unknown type.",
        ),
        (
            [machine(8)],
            one(gpu=1, accelerator_type="A100"),
            "a trial asks for gpu=1 (A100); it needs gpu=1 of type A100; this machine has no gpu.",
        ),
        (
            [typed(H100)],
            gang({"gpu": 1, "accelerator_type": "A100"}, {"gpu": 1, "accelerator_type": "L4"}),
            "a trial asks for (gpu=1 (A100)) + (gpu=1 (L4)) PACK; it needs gpu=1 of type A100; this machine has 1 x "
            "H100 and it needs gpu=1 of type L4; this machine has 1 x H100.",
        ),
    ],
)
def test_a_type_that_no_device_has_is_explained_by_those_that_there_are(nodes, request_, text):
    advice = " Ask for another accelerator_type, or declare such devices with sweep.init(num_gpus=..., gpu_type=...)."
    packer = Packer(nodes)
    assert not packer.could_ever_fit(request_)
    assert packer.why_never(request_) == text + advice
    assert packer.why_not(request_) == text + advice


def test_a_type_of_chips_that_no_host_has_is_explained_too():
    assert Packer([host("n")]).why_never(one(tpu=4, accelerator_type="TPU-V5P")) == (
        "a trial asks for tpu=4 (TPU-V5P); it needs tpu=4 of type TPU-V5P; this machine has 4 x TPU-V6E. Ask for "
        "another accelerator_type, or declare such devices with sweep.init(num_tpus=..., tpu_type=...)."
    )


@pytest.mark.parametrize(
    ("nodes", "request_", "problem"),
    [
        (
            [host("n")],
            group(4, 4),
            "a slice of 4 hosts with tpu=4 each is needed; the largest slice here has 1 host",
        ),
        (
            [*hosts_of("s", 2), *hosts_of("t", 3)],
            group(4, 4),
            "a slice of 4 hosts with tpu=4 each is needed; the largest slice here has 3 hosts",
        ),
        (
            hosts_of("s", 2),
            group(8, 8, tpu=2),
            "a slice of 4 hosts with tpu=4 each is needed; the largest slice here has 2 hosts",
        ),
        (
            hosts_of("s", 2),
            group(4, 4, tpu=2, strategy="STRICT_SPREAD"),
            "a slice of 4 hosts with tpu=2 each is needed; the largest slice here has 2 hosts",
        ),
        (
            [*hosts_of("s", 2), *hosts_of("t", 2)],
            group(6, 2),
            "3 slices of 2 hosts with tpu=4 each are needed; there are 2",
        ),
        ([host("n")], group(2, 1), "2 slices of 1 host with tpu=4 are needed; there is 1"),
        (
            [host("s0", 4, "s"), host("s1", 2, "s")],
            group(2, 2),
            "a slice of 2 hosts with tpu=4 each is needed; the largest slice here has 2 hosts with 6 chips",
        ),
        (
            hosts_of("s", 2),
            Resources((Bundle(tpu=4), Bundle(tpu=2), Bundle(tpu=4)), bundles_per_slice=3),
            "a slice with tpu=10 in all is needed; the largest slice here has 2 hosts with 8 chips",
        ),
        (
            [host("s0", 4, "s"), host("s1", 4, "s", type_="TPU-V5P")],
            Resources((Bundle(tpu=4, accelerator_type="tpu-v6e"),) * 2, bundles_per_slice=2),
            "a slice of 2 hosts with tpu=4 of type tpu-v6e each is needed; the largest slice here has 2 hosts with 8 "
            "chips",
        ),
    ],
)
def test_a_slice_that_is_missing_is_described(nodes, request_, problem):
    packer = Packer(nodes)
    assert not packer.could_ever_fit(request_)
    assert packer.why_never(request_) == (
        f"a trial asks for {request_}; {problem}. Lower num_workers, or declare the hosts of a slice with "
        "sweep.init(nodes=[Node(..., slice=...)])."
    )


@pytest.mark.parametrize(
    ("nodes", "request_", "problem"),
    [
        (hosts_of("s", 2), group(2, 2, head={"cpu": 20}), "cpu=20 is more than the largest node has: 8"),
        (
            hosts_of("s", 2),
            Resources((Bundle(cpu=8, tpu=2),) * 3, bundles_per_slice=3),
            "it needs cpu=24 in all, there are 16",
        ),
        (
            [host("a"), host("b")],
            group(2, 1, strategy="STRICT_PACK"),
            "its bundles cannot be laid out on 2 nodes by STRICT_PACK",
        ),
    ],
)
def test_what_else_keeps_a_group_from_its_slices_is_said_as_for_others(nodes, request_, problem):
    packer = Packer(nodes)
    assert not packer.could_ever_fit(request_)
    assert packer.why_never(request_) == f"a trial asks for {request_}; {problem}.{TAIL}"


def test_why_a_typed_request_waits_counts_the_devices_of_its_type_only():
    packer = Packer([typed(H100, H100, A100_40, A100_80)])
    packer.place(one(gpu=2, accelerator_type="H100"), ("x_0", 1))
    packer.place(one(gpu=0.5, accelerator_type="A100-40G"), ("x_1", 1))
    packer.place(one(gpu=1, accelerator_type="A100-80G"), ("x_2", 1))
    assert packer.why_not(one(gpu=1, accelerator_type="a100")) == (
        "waits for gpu=1 of type a100; 0.5 of 2 free, the rest held by 1, 2"
    )
    packer.release(("x_0", 1))
    assert packer.why_not(gang({"gpu": 1, "accelerator_type": "A100"}, {"gpu": 2})) == (
        "waits for gpu=3; 2.5 of 4 free, the rest held by 1, 2; "
        "waits for gpu=1 of type A100; 0.5 of 2 free, the rest held by 1, 2"
    )


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


# --- nodes that are not there --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "away", "request_", "text"),
    [
        (
            [machine(4, name="n1")],
            [machine(8, 2, "n2")],
            one(cpu=1, gpu=2),
            "waits for node 'n2' (cpu=8, gpu=2), which is not available now",
        ),
        (
            [],
            [machine(4, name="n1")],
            one(cpu=1),
            "waits for node 'n1' (cpu=4), which is not available now; there is no node at all",
        ),
        (
            [machine(4, name="n1")],
            [machine(2, name="n2"), machine(8, name="n3"), machine(8, name="n4")],
            one(cpu=6),
            "waits for node 'n3' (cpu=8) or 'n4' (cpu=8), which are not available now",
        ),
        (
            [machine(4, name="n1")],
            [machine(4, name=f"n{i}") for i in range(2, 9)],
            gang(*[{"cpu": 3}] * 2, strategy="STRICT_SPREAD"),
            "waits for node 'n2' (cpu=4), 'n3' (cpu=4), 'n4' (cpu=4), 'n5' (cpu=4) or 3 more, which are not available "
            "now",
        ),
        (
            [machine(4, name="n1")],
            [machine(1, name="n2"), machine(4, name="n3"), machine(4, name="n4"), machine(4, name="n5")],
            gang(*[{"cpu": 3}] * 3),
            "waits for nodes 'n3' (cpu=4) and 'n4' (cpu=4), which are not available now",
        ),
        (
            [typed(H100, name="n1")],
            [typed(A100_80, A100_80, name="n2")],
            one(gpu=1, accelerator_type="A100"),
            "waits for node 'n2' (gpu=2 of type A100), which is not available now",
        ),
    ],
)
def test_what_only_nodes_that_are_not_there_can_hold_waits_for_them_by_name(there, away, request_, text):
    packer = Packer(there, away)
    assert packer.could_ever_fit(request_)
    assert not packer.fits_now(request_)
    assert packer.absence(request_) == packer.why_not(request_) == text
    packer.set_nodes([*there, *away])
    assert (packer.absence(request_), packer.fits_now(request_), packer.away) == ("", True, ())


def test_what_fits_without_them_waits_for_none_of_them():
    packer = Packer([machine(4, name="n1")], [machine(8, name="n2"), machine(99, name="n1")])
    assert [node.id for node in packer.away] == ["n2"]  # the other is there
    assert packer.absence(one(cpu=4)) == ""
    packer.place(one(cpu=4), ("x_0", 1))
    assert packer.why_not(one(cpu=4)) == "waits for cpu=4; 0 of 4 free, the rest held by 0"
    assert packer.used() == {"cpu": (4.0, 4.0)}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            one(cpu=9),
            "cpu=9 is more than the largest node there is, or that may come, has: 8. Lower resources_per_trial,",
        ),
        (
            one(gpu=1, accelerator_type="H100"),
            "it needs gpu=1 of type H100; the nodes there are, or that may come, have no gpu. Ask for another "
            "accelerator_type,",
        ),
        (
            gang(*[{"cpu": 4}] * 4),
            "it needs cpu=16 in all, there are 12, with those that may come. Lower resources_per_trial,",
        ),
        (
            gang(*[{"cpu": 1}] * 3, strategy="STRICT_SPREAD"),
            "its bundles cannot be laid out on 2 nodes, with those that may come, by STRICT_SPREAD. Lower "
            "resources_per_trial,",
        ),
    ],
)
def test_what_not_even_they_can_hold_is_refused_with_the_arithmetic(request_, text):
    packer = Packer([machine(4, name="n1")], [machine(8, name="n2")])
    assert not packer.could_ever_fit(request_)
    assert packer.absence(request_) == ""
    told = f"a trial asks for {request_}; {text} or give the cluster nodes that do."
    assert packer.why_never(request_) == packer.why_not(request_) == told


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


@settings(max_examples=80, deadline=None)
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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=100, deadline=None)
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
