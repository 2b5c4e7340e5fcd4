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
    held: list[Held], workers: list[Bundle], *, strategy: str = "PACK", distinct: bool = False, shared: bool = False
) -> list[tuple[str, ...]] | None:
    """Return node and devices of each worker as `("a", "g0=0.5")`, or None."""
    request = Resources(tuple(workers), strategy, distinct, shared_devices=shared)
    resources = Resources(tuple(bundle for bundle, _ in held))
    found = place_inside(request, resources, Placement(tuple(place for _, place in held)), KINDS)
    if found is None:
        return None
    return [(place.node, *(f"{one}={share:g}" for one, share in place.devices)) for place in found.bundles]


EMPTY = on("a", Bundle())


@pytest.mark.parametrize(
    ("held", "workers", "expected"),
    [
        pytest.param([on("a", Bundle(cpu=2))], [Bundle(cpu=1)] * 2, [("a",), ("a",)], id="all_of_the_cpus"),
        pytest.param([on("a", Bundle(cpu=2))], [Bundle(cpu=1)] * 3, None, id="one_cpu_too_many"),
        pytest.param([on("a", Bundle(cpu=1))], [Bundle(cpu=0.1)] * 10, [("a",)] * 10, id="ten_tenths_of_a_cpu"),
        pytest.param([on("a", Bundle(cpu=1))], [Bundle(cpu=0.1)] * 11, None, id="eleven_tenths"),
        pytest.param([on("a", Bundle(cpu=1))], [Bundle(cpu=1 / 3)] * 3, [("a",)] * 3, id="three_thirds"),
        pytest.param([on("a", Bundle(cpu=1)), on("a", Bundle(cpu=1))], [Bundle(cpu=2)], None, id="no_bundle_is_joined"),
        pytest.param(
            [EMPTY, on("b", Bundle(cpu=1)), on("a", Bundle(cpu=1))],
            [Bundle(cpu=1)] * 2,
            [("b",), ("a",)],
            id="one_bundle_for_each_worker_in_order",
        ),
        pytest.param(
            [on("a", Bundle(cpu=1)), on("b", Bundle(cpu=1))],
            [Bundle(cpu=1)],
            [("b",)],
            id="the_first_bundle_is_spared",
        ),
        pytest.param(
            [on("a", Bundle(cpu=1)), on("b", Bundle(cpu=1))],
            [Bundle(cpu=1)] * 2,
            [("b",), ("a",)],
            id="the_first_bundle_is_used_last",
        ),
        pytest.param(
            [on("a", Bundle(cpu=4)), on("b", Bundle(cpu=1))],
            [Bundle(cpu=2)],
            [("a",)],
            id="the_first_bundle_alone_is_large_enough",
        ),
        pytest.param(
            [on("a", Bundle(cpu=1)), on("b", Bundle(cpu=2)), on("b", Bundle(cpu=2))],
            [Bundle(cpu=1), Bundle(cpu=2), Bundle(cpu=2)],
            [("a",), ("b",), ("b",)],
            id="a_head_leaves_the_large_bundles_to_the_workers",
        ),
        pytest.param(
            [on("a", Bundle(cpu=2)), on("b", Bundle(cpu=1)), on("b", Bundle(cpu=1))],
            [Bundle(cpu=2), Bundle(cpu=1), Bundle(cpu=1)],
            [("a",), ("b",), ("b",)],
            id="a_large_head",
        ),
        pytest.param([on("a", Bundle(cpu=1))], [Bundle(gpu=1)], None, id="a_gpu_that_is_not_held"),
    ],
)
def test_cpus_come_from_the_trials_own_bundles(held, workers, expected):
    assert placed(held, workers) == expected


@pytest.mark.parametrize(
    ("held", "workers", "expected"),
    [
        pytest.param(
            [on("a", Bundle(gpu=2), ("g0", 1.0), ("g1", 1.0))],
            [Bundle(gpu=1)] * 2,
            [("a", "g0=1"), ("a", "g1=1")],
            id="a_gpu_each",
        ),
        pytest.param(
            [on("a", Bundle(gpu=2), ("g0", 1.0), ("g1", 1.0))], [Bundle(gpu=2)], [("a", "g0=1", "g1=1")], id="both"
        ),
        pytest.param([on("a", Bundle(gpu=1), ("g0", 1.0))], [Bundle(gpu=1)] * 2, None, id="one_too_many"),
        pytest.param(
            [on("a", Bundle(gpu=1), ("g1", 1.0)), on("b", Bundle(gpu=1), ("g0", 1.0))],
            [Bundle(gpu=1)] * 2,
            [("b", "g0=1"), ("a", "g1=1")],
            id="on_two_nodes",
        ),
        pytest.param(
            [EMPTY, on("a", Bundle(gpu=1), ("g0", 1.0)), on("a", Bundle(gpu=1), ("g1", 1.0))],
            [Bundle(gpu=2)],
            None,
            id="no_two_bundles_for_one_worker",
        ),
        pytest.param([on("a", Bundle(gpu=0.5), ("g0", 0.5))], [Bundle(gpu=1)], None, id="no_whole_of_a_share"),
        pytest.param(
            [on("a", Bundle(tpu=2), ("t0", 1.0), ("t1", 1.0))],
            [Bundle(tpu=1)] * 2,
            [("a", "t0=1"), ("a", "t1=1")],
            id="tpu_chips",
        ),
        pytest.param([on("a", Bundle(tpu=1), ("t0", 1.0))], [Bundle(gpu=1)], None, id="a_chip_is_no_gpu"),
        pytest.param([on("a", Bundle(gpu=1), ("g0", 1.0))], [Bundle(tpu=1)], None, id="a_gpu_is_no_chip"),
        pytest.param(
            [on("a", Bundle(gpu=1, tpu=1), ("t0", 1.0), ("g0", 1.0))],
            [Bundle(gpu=1, tpu=1)],
            [("a", "g0=1", "t0=1")],
            id="one_of_each",
        ),
        pytest.param(
            [on("a", Bundle(cpu=1, gpu=1), ("g0", 1.0)), on("a", Bundle(cpu=1))],
            [Bundle(cpu=1, gpu=1)],
            [("a", "g0=1")],
            id="both_cpu_and_gpu_from_one_bundle",
        ),
    ],
)
def test_whole_devices_come_from_the_trials_own(held, workers, expected):
    assert placed(held, workers) == expected


@pytest.mark.parametrize(
    ("held", "workers", "expected"),
    [
        pytest.param(
            [on("a", Bundle(gpu=1), ("g0", 1.0))],
            [Bundle(gpu=0.5)] * 2,
            [("a", "g0=0.5"), ("a", "g0=0.5")],
            id="halves_of_a_whole",
        ),
        pytest.param([on("a", Bundle(gpu=1), ("g0", 1.0))], [Bundle(gpu=0.5)] * 3, None, id="three_halves"),
        pytest.param(
            [on("a", Bundle(gpu=1), ("g0", 1.0))], [Bundle(gpu=1 / 3)] * 3, [("a", "g0=0.333333")] * 3, id="thirds"
        ),
        pytest.param(
            [on("a", Bundle(gpu=0.5), ("g0", 0.5))],
            [Bundle(gpu=0.25)] * 2,
            [("a", "g0=0.25"), ("a", "g0=0.25")],
            id="a_share_of_a_share",
        ),
        pytest.param([on("a", Bundle(gpu=0.5), ("g0", 0.5))], [Bundle(gpu=0.3)] * 2, None, id="too_much_of_a_share"),
        pytest.param(
            [on("a", Bundle(gpu=0.5), ("g0", 0.5))], [Bundle(gpu=0.5)], [("a", "g0=0.5")], id="all_of_a_share"
        ),
        pytest.param(
            [on("a", Bundle(gpu=2), ("g0", 1.0), ("g1", 1.0))],
            [Bundle(gpu=0.5)] * 3,
            [("a", "g0=0.5"), ("a", "g1=0.5"), ("a", "g0=0.5")],
            id="each_has_a_device_of_its_own_while_there_are_any",
        ),
        pytest.param(
            [EMPTY, on("a", Bundle(gpu=1), ("g0", 1.0)), on("a", Bundle(gpu=1), ("g1", 1.0))],
            [Bundle(gpu=0.5)] * 2,
            [("a", "g0=0.5"), ("a", "g1=0.5")],
            id="also_over_bundles",
        ),
        pytest.param(
            [on("a", Bundle(gpu=1), ("g0", 1.0)), on("a", Bundle(gpu=1), ("g1", 1.0))],
            [Bundle(gpu=0.5)] * 3,
            [("a", "g1=0.5"), ("a", "g1=0.5"), ("a", "g0=0.5")],
            id="the_first_bundles_device_last",
        ),
        pytest.param(
            [on("a", Bundle(cpu=1, gpu=1), ("g0", 1.0))],
            [Bundle(cpu=1, gpu=0.5)] * 2,
            None,
            id="room_on_the_gpu_is_not_enough",
        ),
        pytest.param(
            [on("a", Bundle(gpu=1), ("g0", 1.0))],
            [Bundle(gpu=0.5), Bundle(gpu=1)],
            None,
            id="no_whole_of_what_was_begun",
        ),
    ],
)
def test_shares_come_from_the_emptiest_of_the_trials_own_devices(held, workers, expected):
    assert placed(held, workers) == expected


@pytest.mark.parametrize(
    ("held", "workers", "expected"),
    [
        pytest.param([on("a", Bundle(memory=100))], [Bundle(memory=50)] * 2, [("a",), ("a",)], id="memory"),
        pytest.param([on("a", Bundle(memory=100))], [Bundle(memory=51)] * 2, None, id="too_much_memory"),
        pytest.param([on("a", Bundle(cpu=1))], [Bundle(cpu=1, memory=1)], None, id="memory_that_is_not_held"),
        pytest.param(
            [on("a", Bundle(custom=(("disk", 2.0),)))],
            [Bundle(custom=(("disk", 1.0),))] * 2,
            [("a",), ("a",)],
            id="custom",
        ),
        pytest.param(
            [on("a", Bundle(custom=(("disk", 2.0),)))],
            [Bundle(custom=(("disk", 1.5),))] * 2,
            None,
            id="too_much_custom",
        ),
        pytest.param(
            [on("a", Bundle(custom=(("disk", 2.0),)))], [Bundle(custom=(("net", 1.0),))], None, id="another_custom"
        ),
        pytest.param(
            [on("a", Bundle(cpu=1))], [Bundle(cpu=1, custom=(("net", 0.0),))], [("a",)], id="none_of_a_custom_one"
        ),
        pytest.param(
            [EMPTY, on("a", Bundle(cpu=2)), on("b", Bundle(cpu=2, memory=10))],
            [Bundle(cpu=1, memory=5)] * 2,
            [("b",), ("b",)],
            id="everything_from_one_bundle",
        ),
    ],
)
def test_memory_and_custom_resources_are_counted(held, workers, expected):
    assert placed(held, workers) == expected


@pytest.mark.parametrize(
    ("strategy", "held", "workers", "expected"),
    [
        pytest.param(
            "STRICT_SPREAD",
            [EMPTY, on("a", Bundle(cpu=2)), on("b", Bundle(cpu=2))],
            [Bundle(cpu=1)] * 2,
            [("a",), ("b",)],
            id="a_node_each",
        ),
        pytest.param("STRICT_SPREAD", [on("a", Bundle(cpu=2))], [Bundle(cpu=1)] * 2, None, id="not_a_node_each"),
        pytest.param(
            "STRICT_PACK",
            [EMPTY, on("a", Bundle(cpu=1)), on("b", Bundle(cpu=2))],
            [Bundle(cpu=1)] * 2,
            [("b",), ("b",)],
            id="the_node_that_has_room_for_all",
        ),
        pytest.param(
            "STRICT_PACK",
            [EMPTY, on("a", Bundle(cpu=1)), on("b", Bundle(cpu=1))],
            [Bundle(cpu=1)] * 2,
            None,
            id="no_node_has_room_for_all",
        ),
        pytest.param(
            "STRICT_PACK",
            [on("b", Bundle(cpu=1)), on("a", Bundle(cpu=1)), on("b", Bundle(cpu=1))],
            [Bundle(cpu=1)] * 2,
            [("b",), ("b",)],
            id="with_the_first_bundle",
        ),
    ],
)
def test_strict_strategies_are_obeyed(strategy, held, workers, expected):
    assert placed(held, workers, strategy=strategy) == expected


def test_distinct_devices_are_never_shared():
    two = [on("a", Bundle(gpu=2), ("g0", 1.0), ("g1", 1.0))]
    assert placed(two, [Bundle(gpu=0.5)] * 2, distinct=True) == [("a", "g0=0.5"), ("a", "g1=0.5")]
    assert placed(two, [Bundle(gpu=0.5)] * 3, distinct=True) is None
    halves = [EMPTY, on("a", Bundle(gpu=0.5), ("g0", 0.5)), on("a", Bundle(gpu=0.5), ("g0", 0.5))]
    assert placed(halves, [Bundle(gpu=0.5)] * 2) == [("a", "g0=0.5")] * 2
    assert placed(halves, [Bundle(gpu=0.5)] * 2, distinct=True) is None
    namesakes = [EMPTY, on("a", Bundle(gpu=0.5), ("g0", 0.5)), on("b", Bundle(gpu=0.5), ("g0", 0.5))]
    assert placed(namesakes, [Bundle(gpu=0.5)] * 2, distinct=True) == [("a", "g0=0.5"), ("b", "g0=0.5")]


def test_devices_are_shared_where_that_is_wanted():
    two = [on("a", Bundle(gpu=2), ("g0", 1.0), ("g1", 1.0))]
    assert placed(two, [Bundle(gpu=0.5)] * 2, shared=True) == [("a", "g0=0.5")] * 2
    assert placed(two, [Bundle(gpu=0.5)] * 3, shared=True) == [("a", "g0=0.5")] * 2 + [("a", "g1=0.5")]
    apart = [EMPTY, on("a", Bundle(gpu=1), ("g0", 1.0)), on("b", Bundle(gpu=1), ("g0", 1.0))]
    assert placed(apart, [Bundle(gpu=0.25)] * 3, shared=True) == [("a", "g0=0.25")] * 3
    halves = [EMPTY, on("a", Bundle(gpu=0.5), ("g0", 0.5)), on("a", Bundle(gpu=0.5), ("g1", 0.5))]
    assert placed(halves, [Bundle(gpu=0.5)] * 2, shared=True) == [("a", "g0=0.5"), ("a", "g1=0.5")]


def test_nothing_is_kept_of_an_attempt_that_did_not_fit():
    held = [on("a", Bundle(cpu=1)), on("b", Bundle(cpu=1))]
    for _ in range(2):
        assert placed(held, [Bundle(cpu=1)] * 3) is None
        assert placed(held, [Bundle(cpu=1)] * 2) == [("b",), ("a",)]


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
        for room, (_, cpu, share) in enumerate(rooms):
            own = [amounts[i] for i, chosen in enumerate(choice) if chosen == room]
            if sum(c for c, _ in own) > cpu or sum(g for _, g in own) > share:
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
