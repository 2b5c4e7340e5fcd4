"""TPU slices: every generation and topology, the two readings of a part of a host, and the variables of a process."""

from __future__ import annotations

import math

import pytest

from sweep.accelerators.tpu import (
    CHIP_COUNTS,
    GENERATIONS,
    chip_variables,
    identity_variables,
    parse_generation,
    parse_topology,
    plan_slices,
    slice_variables,
)
from sweep.errors import ResourceError

BOUNDS, HOST_BOUNDS, VISIBLE = "TPU_CHIPS_PER_HOST_BOUNDS", "TPU_HOST_BOUNDS", "TPU_VISIBLE_CHIPS"


@pytest.mark.parametrize("generation", GENERATIONS.values(), ids=str)
def test_a_generation_has_topologies_of_its_dimensions_smallest_first_and_is_found_by_its_labels(generation):
    assert generation.labels[0] == generation.type
    assert {parse_generation(label) for label in generation.labels} == {generation}
    shapes = [[int(number) for number in topology.split("x")] for topology in generation.topologies]
    assert {len(shape) for shape in shapes} == {generation.num_dimensions}
    chips = [math.prod(shape) for shape in shapes]
    assert chips == sorted(chips)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("tpu3", "v3"),
        ("TPU-V5LITEPOD", "v5e"),
        ("TPU v5 lite", "v5e"),
        ("tpu-v5-lite-podslice", "v5e"),
        ("TPU-V6E", "v6e"),
        (" v6e ", "v6e"),
        ("Trillium", "v6e"),
        ("TPU7X", "v7x"),
        ("Ironwood", "v7x"),
    ],
)
def test_a_generation_is_known_in_every_spelling(text, name):
    assert parse_generation(text) is GENERATIONS[name]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v6", "unknown TPU type 'v6'. Did you mean 'v6e'?"),
        ("TPU-V5", "Did you mean 'v5p'?"),
        ("A100", "Known: v2, v3, v4, v5e, v5p, v6e, v7x."),
        ("", "unknown TPU type ''."),
        ("v6e-16", "accelerator_type='TPU-V6E' and give the slice's shape, for instance topology='4x4'"),
        ("v4-8", "accelerator_type='TPU-V4' and give the slice's shape, for instance topology='2x2x1'"),
        (None, "accelerator_type is None"),
    ],
)
def test_an_unknown_generation_is_refused_with_the_nearest(text, words):
    with pytest.raises(ResourceError) as error:
        parse_generation(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "generation", "dimensions"),
    [
        ("12x12x16", "v4", (12, 12, 16)),
        ("4X4", "TPU-V6E", (4, 4)),
        ("4×4", "v6e", (4, 4)),
        ("8x16x16", "TPU7X", (8, 16, 16)),
    ],
)
def test_a_topology_is_read_as_people_write_it(text, generation, dimensions):
    assert parse_topology(text, generation) == dimensions


@pytest.mark.parametrize(
    ("text", "generation", "words"),
    [
        ("4x4", "v4", "topology '4x4' has 2 dimensions; v4 has slices of 3, such as '2x2x4'."),
        ("2x2x4", "v6e", "topology '2x2x4' has 3 dimensions; v6e has slices of 2, such as '2x4'."),
        ("3x5", "v6e", "topology '3x5' is no slice of v6e; the nearest ones are 2x8, 4x4, 2x4, 4x8."),
        ("4x2", "v6e", "the nearest ones are 2x4, "),
        ("0x0", "v6e", "is no slice of v6e"),
        ("banana", "v6e", "topology is 'banana'; expected numbers with x between them, such as '2x4'."),
        ("-4x4", "v6e", "topology is '-4x4'"),
        ((4, 4), "v6e", "topology is (4, 4)"),
    ],
)
def test_what_is_no_topology_of_the_generation_is_refused_with_those_nearest(text, generation, words):
    with pytest.raises(ResourceError) as error:
        parse_topology(text, generation)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("generation", "topology", "override", "hosts", "chips_per_host", "pod_type"),
    [
        ("v6e", "2x2", None, 1, 4, "v6e-4"),
        ("v6e", "2x2", 1, 4, 1, "v6e-4"),
        ("v6e", "2x4", 4, 2, 4, "v6e-8"),
        ("v6e", "4x4", 8, 2, 8, "v6e-16"),
        ("v5e", "2x4", None, 1, 8, "v5litepod-8"),
        ("v4", "12x12x16", None, 576, 4, "v4-4608"),
        ("v3", "32x32", None, 256, 4, "v3-2048"),
        ("v7x", "2x2x2", None, 2, 4, "v7x-16"),
    ],
)
def test_a_slice_has_so_many_hosts_of_so_many_chips(generation, topology, override, hosts, chips_per_host, pod_type):
    plan = plan_slices(topology, generation, hosts, chips_per_host=override)
    assert (plan.hosts_per_slice, plan.chips_per_host, plan.chips) == (hosts, chips_per_host, hosts * chips_per_host)
    assert (plan.workers_per_slice, plan.num_slices, plan.tpu_per_worker) == (hosts, 1, chips_per_host)
    assert (plan.generation, plan.topology, plan.warnings) == (GENERATIONS[generation], topology, ())
    assert plan.pod_type == pod_type  # which counts cores of some, chips of others


@pytest.mark.parametrize("generation", GENERATIONS.values(), ids=str)
def test_every_topology_divides_into_hosts_and_every_share_of_a_host_into_workers(generation):
    for topology in generation.topologies:
        chips = math.prod(int(number) for number in topology.split("x"))
        chips_per_host = chips if chips in generation.host_sizes else 4
        for count in [count for count in CHIP_COUNTS if count <= chips_per_host]:
            full = chips // count
            plan = plan_slices(topology, generation.type, 3 * full, tpu_per_worker=count)
            assert (plan.workers_per_slice, plan.num_slices, plan.warnings) == (full, 3, ())
            assert (plan.chips, plan.chips_per_host) == (chips, chips_per_host)
            assert plan.workers_per_slice * plan.tpu_per_worker == plan.hosts_per_slice * plan.chips_per_host == chips


@pytest.mark.parametrize(
    ("num_workers", "tpu_per_worker", "workers_per_slice", "num_slices", "is_warned"),
    [
        (8, None, 4, 2, False),
        (4, 4, 4, 1, False),
        (4, 2, 4, 1, True),  # the reading of Ray's documentation: 2 of the 4 chips of each host
        (8, 2, 8, 1, False),
        (12, 2, 4, 3, True),
        (4, 1, 4, 1, True),
        (16, 1, 16, 1, False),
        (None, None, 4, 1, False),
        (None, 2, 8, 1, False),
    ],
)
def test_a_part_of_a_host_fills_slices_where_the_number_of_workers_allows_it(
    num_workers, tpu_per_worker, workers_per_slice, num_slices, is_warned
):
    plan = plan_slices("4x4", "TPU-V6E", num_workers, tpu_per_worker=tpu_per_worker)
    assert (plan.workers_per_slice, plan.num_slices) == (workers_per_slice, num_slices)
    assert plan.num_workers == (num_workers or workers_per_slice)
    assert (plan.tpu_per_worker, plan.hosts_per_slice) == (tpu_per_worker or 4, 4)
    unused = [f"so {16 - workers_per_slice * (tpu_per_worker or 4)} of the 16 chips of every slice stay unused"]
    assert [said in text for said, text in zip(unused * is_warned, plan.warnings, strict=True)] == [True] * is_warned


@pytest.mark.parametrize(
    ("num_workers", "options", "words"),
    [
        (1, {}, "num_workers is 1; a v6e slice of 4x4 has 4 hosts of 4 chips, so expected a multiple of 4: 4, 8, 12"),
        (6, {"tpu_per_worker": 2}, "expected a multiple of 4: 4, 8, 12 ..."),
        (3, {"chips_per_host": 8}, "has 2 hosts of 8 chips, so expected a multiple of 2: 2, 4, 6 ..."),
        (0, {}, "num_workers is 0; expected a whole number of at least 1."),
        (True, {}, "num_workers is True"),
        (4, {"tpu_per_worker": 3}, "a worker asks for 3 TPU chips; expected 1, 2 or 4: a host of a v6e slice of 4x4"),
        (2, {"tpu_per_worker": 16, "chips_per_host": 8}, "a worker asks for 16 TPU chips; expected 1, 2, 4 or 8"),
        (4, {"tpu_per_worker": 0.5}, "a worker asks for 0.5 TPU chips"),
        (4, {"tpu_per_worker": True}, "a worker asks for True TPU chips"),
        (4, {"chips_per_host": 2}, "chips_per_host is 2; expected 1, 4 or 8 for a v6e slice of 4x4 (16 chips)."),
        (0, {"chips_per_host": 2}, "num_workers is 0"),  # all that is wrong is said at once
    ],
)
def test_a_plan_that_cannot_be_is_refused(num_workers, options, words):
    with pytest.raises(ResourceError) as error:
        plan_slices("4x4", "v6e", num_workers, **options)
    assert words in str(error.value)


def shown(visible: str | None, bounds: str | None, host_bounds: str | None) -> dict[str, str | None]:
    return {VISIBLE: visible, BOUNDS: bounds, HOST_BOUNDS: host_bounds}


@pytest.mark.parametrize(
    ("chips", "chips_on_host", "parent", "expected"),
    [
        (("0", "1", "2", "3"), 4, None, shown(None, None, None)),
        (tuple("01234567"), 8, None, shown(None, None, None)),
        (("2",), 4, None, shown("2", "1,1,1", "1,1,1")),
        (("0", "1"), 4, None, shown("0,1", "1,2,1", "1,1,1")),
        (("0", "1", "2", "3"), 8, None, shown("0,1,2,3", "2,2,1", "1,1,1")),
        (("7", "5", "6", "4"), 8, None, shown("4,5,6,7", "2,2,1", "1,1,1")),
        (("10", "9"), 16, None, shown("9,10", "1,2,1", "1,1,1")),
        (("b", "a", "3"), 4, None, shown("3,a,b", None, None)),
        (("0", "1", "2"), 4, None, shown("0,1,2", None, None)),
        (("0",), 0, None, shown("0", "1,1,1", "1,1,1")),
        (tuple("01234567"), 0, None, shown("0,1,2,3,4,5,6,7", "2,4,1", "1,1,1")),
        ((), 4, None, {VISIBLE: ""}),
        ((), 0, None, {}),
        # all that a restricted parent has is not all of the host
        (("2", "3"), 2, "2,3", {}),
        (("3",), 2, "2,3", shown("3", "1,1,1", "1,1,1")),
        ((), 2, "2,3", {VISIBLE: ""}),
        (("0", "1", "2", "3"), 4, " 3,1,2, 0", {}),
        (("0", "1", "2", "3"), 4, "0", shown("0,1,2,3", "2,2,1", "1,1,1")),
        (("0",), 1, "", shown("0", "1,1,1", "1,1,1")),
    ],
)
def test_a_process_is_shown_its_chips_and_how_they_lie(chips, chips_on_host, parent, expected):
    assert chip_variables(chips, chips_on_host, parent=parent) == expected


def test_a_worker_knows_its_slice_among_several():
    assert slice_variables(slice_id=1, num_slices=2, coordinator="host-a") == {
        "MEGASCALE_COORDINATOR_ADDRESS": "host-a",
        "MEGASCALE_PORT": "8081",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
    }
    assert slice_variables(slice_id=0, num_slices=1, coordinator="host-a") == {}
    assert identity_variables(1, ["a", "b"]) == {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}
