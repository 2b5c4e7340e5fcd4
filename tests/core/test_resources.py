"""Requests in every form that users write them, byte amounts, the JSON forms, and inventories that are declared."""

from __future__ import annotations

import json
import socket
import warnings
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweep
from sweep.accelerators import inventory
from sweep.core.messages import NodesChanged
from sweep.core.resources import (
    STRATEGIES,
    Bundle,
    BundlePlacement,
    Device,
    Node,
    Placement,
    PlacementGroupFactory,
    Resources,
    format_amount,
    format_bytes,
    format_request,
    list_devices,
    parse_bytes,
    parse_resources,
)
from sweep.errors import ConfigError, ResourceError
from sweep.record.codec import encode_event, event_of
from sweep.train import ScalingConfig


@pytest.mark.parametrize(
    ("request_", "bundle"),
    [
        (None, Bundle(cpu=1)),
        ({}, Bundle(cpu=1)),
        ({"cpu": 2}, Bundle(cpu=2)),
        ({"CPU": 2, "GPU": 1}, Bundle(cpu=2, gpu=1)),
        ({"gpu": 0.5}, Bundle(gpu=0.5)),
        ({"cpu": 0.5, "memory": "4G"}, Bundle(cpu=0.5, memory=4_000_000_000)),
        ({"tpu": 4}, Bundle(tpu=4)),
        ({"cpu": 1, "tape": 2, "disk": 1}, Bundle(cpu=1, custom=(("disk", 1.0), ("tape", 2.0)))),
        ({"cpu": 1, "custom_resources": {"tape": 2}}, Bundle(cpu=1, custom=(("tape", 2.0),))),
        ({"cpu": 1, "gpu": 0, "tape": 0}, Bundle(cpu=1)),
        ({"gpu": 1, "accelerator_type": "A100"}, Bundle(gpu=1, accelerator_type="A100")),
        ({"GPU": 0.5, "Accelerator_Type": " A100-40G "}, Bundle(gpu=0.5, accelerator_type="A100-40G")),
        ({"TPU": 4, "accelerator_type": "TPU-V6E"}, Bundle(tpu=4, accelerator_type="TPU-V6E")),
        ({"gpu": 1, "accelerator_type:A100": 0.001}, Bundle(gpu=1, accelerator_type="A100")),
        ({"gpu": 1, "accelerator_type:A100": 1}, Bundle(gpu=1, accelerator_type="A100")),
        ({"gpu": 1, "accelerator_type:A100": 0}, Bundle(gpu=1)),
        ({"gpu": 1, "accelerator_type": ""}, Bundle(gpu=1)),
        ({"gpu": 1, "accelerator_type": None}, Bundle(gpu=1)),
        ({"cpu": 1, "accelerator_type": None}, Bundle(cpu=1)),
        (
            {"gpu": 1, "accelerator_type": "a100", "accelerator_type:A100": 0.001},
            Bundle(gpu=1, accelerator_type="A100"),
        ),
        (
            {"gpu": 1, "custom_resources": {"accelerator_type:L4": 0.001, "tape": 2}},
            Bundle(gpu=1, custom=(("tape", 2.0),), accelerator_type="L4"),
        ),
    ],
)
def test_a_dict_means_one_bundle_and_no_cpu_means_none(request_, bundle):
    assert parse_resources(request_) == Resources((bundle,))


def test_what_makes_a_placement_group_factory_is_asked_for_it():
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 3})
    assert parse_resources(scaling) == Resources((Bundle(cpu=3), Bundle(cpu=3)))


def test_resources_are_taken_as_they_are():
    resources = Resources((Bundle(cpu=2), Bundle(cpu=1)), "SPREAD")
    assert parse_resources(resources) is resources


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"cpu": -1}, "cpu=-1"),
        ({"cpu": "2"}, "cpu='2'"),
        ({"cpu": True}, "cpu=True"),
        ({"cpu": float("nan")}, "cpu=nan"),
        ({"cpu": float("inf")}, "cpu=inf"),
        ({"gpu": 1.5}, "gpu=1.5"),
        ({"tpu": 0.5}, "tpu=0.5"),
        (
            {"tpu": 3},
            "TPU chips are given out by 1, 2, 4 or 8, found 3. A trial that needs more asks for several bundles",
        ),
        ({"tpu": 16}, "TPU chips are given out by 1, 2, 4 or 8, found 16"),
        ({"tpu": float("inf")}, "tpu=inf; expected a number"),
        ({"num_tpus": 4}, "did you mean 'tpu'"),
        ({"cpu": 1, "accelerator_type": "A100"}, "accelerator_type='A100' without gpu or tpu"),
        ({"cpu": 1, "accelerator_type:A100": 0.001}, "Add gpu=1, or leave accelerator_type out"),
        ({"gpu": 0, "cpu": 1, "accelerator_type": "A100"}, "without gpu or tpu"),
        ({"gpu": 1, "accelerator_type": 3}, "accelerator_type=3; expected a text such as 'A100'"),
        ({"gpu": 1, "accelerator_type": ["A100"]}, "accelerator_type=['A100']; expected a text"),
        ({"gpu": 1, "accelerator_type:": 0.001}, "'accelerator_type:' names no type"),
        ({"gpu": 1, "accelerator_type:A100": -1}, "accelerator_type:A100=-1; expected a small number"),
        ({"gpu": 1, "accelerator_type:A100": "1"}, "accelerator_type:A100='1'; expected a small number"),
        ({"gpu": 1, "accelerator_type:A100": float("nan")}, "accelerator_type:A100=nan; expected a small number"),
        ({"gpu": 1, "accelerator_type:A100": 1, "accelerator_type": "L4"}, "of the types A100 and L4 in one bundle"),
        (
            {"gpu": 1, "gpu_type": "A100"},
            "gpu_type='A100'; expected a number of at least 0. Only accelerator_type takes",
        ),
        ({"gpu": "A100"}, "gpu='A100'; expected a number of at least 0. Only accelerator_type takes a text."),
        ({"cpu": 10**400}, "cpu=1000"),  # no float holds it
        ({"cpu": 0}, "nothing at all"),
        ({"gpus": 1}, "did you mean 'gpu'"),
        ({"num_cpus": 1}, "did you mean 'cpu'"),
        ({"mem": 1}, "did you mean 'memory'"),
        ({"cpu": 1, "CPU": 2}, "given twice"),
        ({3: 1}, "named 3"),
        ({"memory": "lots"}, "memory='lots'"),
        ({"tape": "two"}, "tape='two'"),
        ({"cpu": 1, "custom_resources": 3}, "custom_resources"),
        ({"cpu": 1, "extra_cpu": 2}, "extra_cpu was for what a trial launches; give it a bundle of its own"),
        (2, "resources_per_trial is 2"),
        ([1], "resources_per_trial is [1]"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_what_was_found(request_, words):
    with pytest.raises(ResourceError) as error:
        parse_resources(request_)
    assert words in str(error.value)


def test_a_resource_error_is_a_value_error_too():
    with pytest.raises(ValueError):
        parse_resources({"cpu": -1})


def test_a_group_of_bundles_with_an_empty_head_takes_nothing_for_the_trial_itself():
    resources = PlacementGroupFactory([{}, {"CPU": 1, "GPU": 1}], strategy="SPREAD")
    assert resources == Resources((Bundle(), Bundle(cpu=1, gpu=1)), "SPREAD")
    assert (resources.head_cpus, resources.head_bundle_is_empty) == (0, True)


def test_a_group_of_bundles_tells_its_sum_under_tunes_names():
    resources = PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 0.5, "tape": 3}])
    assert resources.required_resources == {"CPU": 3, "GPU": 0.5, "tape": 3}
    assert (resources.head_cpus, resources.head_bundle_is_empty) == (1, False)


def test_a_group_of_bundles_names_the_type_of_its_devices_in_each():
    resources = PlacementGroupFactory([{"CPU": 1}, {"GPU": 1, "accelerator_type": "A100"}])
    assert resources == Resources((Bundle(cpu=1), Bundle(gpu=1, accelerator_type="A100")))


@pytest.mark.parametrize("type_", [3, None, b"A100"])
def test_a_type_that_is_no_text_is_refused_by_the_value_itself(type_):
    with pytest.raises(ResourceError, match="expected a text such as 'A100'"):
        Bundle(gpu=1, accelerator_type=type_)


@pytest.mark.parametrize(
    ("per_slice", "bundles", "words"),
    [
        (-1, (Bundle(tpu=4),), "bundles_per_slice is -1; expected a whole number, 0 for no slices"),
        (1.0, (Bundle(tpu=4),), "bundles_per_slice is 1.0; expected"),
        (True, (Bundle(tpu=4),), "bundles_per_slice is True; expected"),
        (False, (Bundle(tpu=4),), "bundles_per_slice is False; expected"),
        (None, (Bundle(tpu=4),), "bundles_per_slice is None; expected"),
        (1, (Bundle(gpu=1),), "the bundles with tpu are 0; expected a multiple of 1"),
        (2, (Bundle(cpu=1), *(Bundle(tpu=4),) * 3), "the bundles with tpu are 3; expected a multiple of 2"),
        (4, (Bundle(tpu=4),) * 2, "the bundles with tpu are 2; expected a multiple of 4"),
    ],
)
def test_bundles_that_fill_no_whole_slices_are_refused(per_slice, bundles, words):
    with pytest.raises(ResourceError) as error:
        Resources(bundles, bundles_per_slice=per_slice)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("bundles", "per_slice", "runs"),
    [
        ((Bundle(tpu=4),) * 4, 0, ()),
        ((Bundle(tpu=4),) * 4, 4, ((0, 1, 2, 3),)),
        ((Bundle(tpu=4),) * 4, 2, ((0, 1), (2, 3))),
        ((Bundle(cpu=1), Bundle(tpu=4), Bundle(cpu=1), Bundle(tpu=4)), 1, ((1,), (3,))),
    ],
)
def test_the_bundles_with_chips_are_cut_into_runs_in_order(bundles, per_slice, runs):
    assert Resources(bundles, bundles_per_slice=per_slice).slice_runs == runs


@pytest.mark.parametrize("bundles", [[], [{}], [{}, {"CPU": 0}]])
def test_a_group_of_nothing_is_refused(bundles):
    with pytest.raises(ResourceError):
        PlacementGroupFactory(bundles)


def test_an_unknown_strategy_is_refused_and_the_known_ones_are_listed():
    with pytest.raises(ResourceError) as error:
        PlacementGroupFactory([{"CPU": 1}], strategy="SPARSE")
    assert all(name in str(error.value) for name in ("'SPARSE'", *STRATEGIES))


def test_equal_requests_are_equal_and_hash_alike_whatever_the_order_of_their_names():
    a = parse_resources({"cpu": 1, "x": 1, "y": 2})
    b = parse_resources({"y": 2.0, "x": 1.0, "CPU": 1.0})
    assert a == b
    assert hash(a) == hash(b)
    assert a != parse_resources({"cpu": 1, "x": 1})


@pytest.mark.parametrize(
    "other",
    [
        Resources((Bundle(tpu=4),) * 2),
        Resources((Bundle(tpu=4, accelerator_type="TPU-V6E"),) * 2, bundles_per_slice=2),
        Resources((Bundle(tpu=4),) * 2, bundles_per_slice=1),
        Resources((Bundle(tpu=4),) * 2, distinct_devices=True, bundles_per_slice=2),
        Resources((Bundle(tpu=4),) * 2, "SPREAD", bundles_per_slice=2),
    ],
)
def test_requests_that_differ_in_anything_are_not_equal(other):
    resources = Resources((Bundle(tpu=4),) * 2, bundles_per_slice=2)
    assert resources == Resources((Bundle(tpu=4), Bundle(tpu=4)), "PACK", False, 2)
    assert hash(resources) == hash(Resources((Bundle(tpu=4), Bundle(tpu=4)), "PACK", False, 2))
    assert resources != other
    assert len({resources, other}) == 2


def test_the_total_adds_all_bundles():
    resources = Resources(
        (Bundle(cpu=1, gpu=0.5, memory=3, custom=(("x", 1.0),)), Bundle(cpu=2, gpu=2, custom=(("x", 2.0), ("y", 1.0))))
    )
    total = resources.total
    assert (total.cpu, total.gpu, total.tpu, total.memory) == (3, 2.5, 0, 3)
    assert total.custom == (("x", 3.0), ("y", 1.0))
    assert str(Resources((Bundle(gpu=0.5, accelerator_type="A100"), Bundle(gpu=2, tpu=4))).total) == "gpu=2.5 tpu=4"


def test_what_all_bundles_need_is_counted_by_type():
    resources = Resources(
        (
            Bundle(cpu=1, memory=3),
            Bundle(gpu=0.5, accelerator_type="A100"),
            Bundle(gpu=1, accelerator_type="a100"),
            Bundle(gpu=1, custom=(("x", 2.0),)),
            Bundle(tpu=4, accelerator_type="TPU-V6E"),
        )
    )
    assert list(resources.needs()) == [
        ("cpu", "", 1),
        ("gpu", "", 2.5),
        ("gpu", "A100", 1.5),
        ("tpu", "TPU-V6E", 4),
        ("memory", "", 3),
        ("x", "", 2),
    ]


MIXED = Node(
    "n",
    cpus=8,
    memory=2**30,
    devices=(
        Device("g0", type="NVIDIA A100-SXM4-40GB", labels=("A100", "A100-40G")),
        Device("g1", type="L4"),
        Device("g2"),
        Device("tpu0", "tpu", "TPU-V6E"),
    ),
    custom={"tape": 2.0},
)


@pytest.mark.parametrize(
    ("name", "type_", "amount"),
    [
        ("cpu", "", 8),
        ("memory", "", 2**30),
        ("tape", "", 2),
        ("disk", "", 0),
        ("gpu", "", 3),
        ("gpu", "a100-40g", 1),
        ("gpu", "nvidia a100-sxm4-40gb", 1),
        ("gpu", "A10", 0),
        ("gpu", "TPU-V6E", 0),
        ("tpu", "tpu-v6e", 1),
    ],
)
def test_a_node_says_how_much_it_has_of_everything_and_of_every_type(name, type_, amount):
    assert MIXED.amount(name, type_) == amount


@pytest.mark.parametrize(
    ("kind", "type_", "text"),
    [
        ("gpu", "A100-40", "1 x A100-40G, 1 x L4, 1 x an unknown type"),
        ("gpu", "L40", "1 x L4, 1 x A100-40G, 1 x an unknown type"),
        ("tpu", "v6e", "1 x TPU-V6E"),
        ("npu", "x", "no npu"),
    ],
)
def test_devices_are_listed_by_type_the_likeliest_first(kind, type_, text):
    assert list_devices([MIXED], kind, type_) == text
    assert list_devices([MIXED, MIXED], kind, type_) == text.replace("1 x", "2 x")


def test_amounts_and_requests_are_shown_in_the_units_of_people():
    assert (format_amount("gpu", 2.0), format_amount("memory", 3 * 2**29)) == ("2", "1.5GiB")
    assert format_request("gpu", 0.5, "A100") == "gpu=0.5 of type A100"
    assert format_request("memory", 2**30) == "memory=1GiB"


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (Resources(), "cpu=1"),
        (Resources((Bundle(cpu=0.5, gpu=1, memory=2**30, custom=(("x", 2.0),)),)), "cpu=0.5 gpu=1 memory=1GiB x=2"),
        (Resources((Bundle(), Bundle(cpu=2), Bundle(cpu=2)), "SPREAD"), "(nothing) + 2 x (cpu=2) SPREAD"),
        (Resources((Bundle(cpu=2, gpu=1, accelerator_type="A100"),)), "cpu=2 gpu=1 (A100)"),
        (Resources((Bundle(tpu=4, memory=2**30, accelerator_type="TPU-V6E"),)), "tpu=4 (TPU-V6E) memory=1GiB"),
        (Resources((Bundle(gpu=0.5, accelerator_type="L4"),) * 2), "2 x (gpu=0.5 (L4)) PACK"),
    ],
)
def test_a_request_is_shown_in_few_words(resources, text):
    assert str(resources) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4G", 4 * 10**9),
        ("4GB", 4 * 10**9),
        ("4GiB", 4 * 2**30),
        ("512MiB", 512 * 2**20),
        ("1.5 gb", 1_500_000_000),
        ("12", 12),
        ("1 k", 1000),
        ("1Ki", 1024),
        ("2t", 2 * 10**12),
        (" 7b ", 7),
        (1024, 1024),
        (1.9, 1),
        (0, 0),
    ],
)
def test_bytes_are_read_as_people_write_them(text, number):
    assert parse_bytes(text) == number


@pytest.mark.parametrize(
    "text", ["", "G", "-1", "4 X", "4i", "4 ib", "1e9", "four", True, -1, float("nan"), None, [1], "1,5G", 10**400]
)
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(ResourceError, match="no amount of memory"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0B"), (1023, "1.02e+03B"), (2**20, "1MiB"), (3 * 2**29, "1.5GiB"), (2**42, "4TiB")]
)
def test_bytes_are_shown_in_the_largest_unit_that_fits(number, text):
    assert format_bytes(number) == text


bundles = st.builds(
    Bundle,
    cpu=st.floats(0, 1000),
    gpu=st.one_of(st.floats(0, 1), st.integers(0, 9).map(float)),
    tpu=st.sampled_from([0.0, 1.0, 2.0, 4.0, 8.0]),
    memory=st.integers(0, 2**45),
    custom=st.dictionaries(st.sampled_from(["disk", "tape", "Zed"]), st.floats(0.5, 5)).map(
        lambda d: tuple(sorted(d.items()))
    ),
)


@st.composite
def requests(draw):
    items = draw(st.lists(bundles, min_size=1, max_size=4).filter(lambda items: not all(b.is_empty for b in items)))
    types = draw(st.lists(st.sampled_from(["", "A100", "TPU-V6E"]), min_size=len(items), max_size=len(items)))
    items = [
        Bundle(b.cpu, b.gpu, b.tpu, b.memory, b.custom, type_ if b.gpu or b.tpu else "")
        for b, type_ in zip(items, types, strict=True)
    ]
    number = sum(1 for bundle in items if bundle.tpu)
    per_slice = draw(st.sampled_from([0, *([1, number] if number else [])]))
    distinct, shared = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    strategy, alone = draw(st.sampled_from(STRATEGIES)), draw(st.booleans())
    return Resources(tuple(items), strategy, distinct, per_slice, alone=alone, shared_devices=shared)


@given(requests())
def test_a_request_survives_json(resources):
    assert Resources.from_json(json.loads(json.dumps(resources.to_json()))) == resources


def test_a_request_is_written_with_what_is_not_usual_only():
    assert Resources((Bundle(cpu=1, gpu=0.5),)).to_json() == {"bundles": [{"cpu": 1, "gpu": 0.5}]}
    workers = (Bundle(cpu=1), Bundle(tpu=4, accelerator_type="TPU-V6E"), Bundle(tpu=4, custom=(("x", 1.0),)))
    assert Resources(workers, "SPREAD", True, 2).to_json() == {
        "bundles": [{"cpu": 1}, {"tpu": 4, "accelerator_type": "TPU-V6E"}, {"tpu": 4, "x": 1.0}],
        "strategy": "SPREAD",
        "distinct_devices": True,
        "bundles_per_slice": 2,
    }


def test_devices_that_are_to_be_shared_are_written_and_never_distinct_too():
    halves = (Bundle(gpu=0.5),) * 2
    request = Resources(halves, shared_devices=True)
    assert request.to_json() == {"bundles": [{"gpu": 0.5}] * 2, "shared_devices": True}
    assert request != Resources(halves)
    with pytest.raises(ResourceError, match="distinct_devices and shared_devices are both True"):
        Resources(halves, distinct_devices=True, shared_devices=True)


def test_a_request_of_an_older_record_is_read():
    assert Resources.from_json({"bundles": [{"cpu": 1.0, "tpu": 4.0}]}) == Resources((Bundle(cpu=1, tpu=4),))


def test_a_placement_survives_json_and_lists_each_device_once():
    placement = Placement(
        (BundlePlacement("a", (("g0", 0.5), ("g1", 0.5))), BundlePlacement("b"), BundlePlacement("a", (("g0", 0.5),)))
    )
    assert Placement.from_json(placement.to_json()) == placement
    assert placement.devices == ("g0", "g1")


def test_devices_of_two_nodes_with_the_same_id_are_two_and_shown_with_their_nodes():
    half = (("g0", 0.5),)
    placement = Placement((BundlePlacement("a", half), BundlePlacement("b", half), BundlePlacement("a", half)))
    assert placement.placed_devices == (("a", "g0"), ("b", "g0"))
    assert placement.devices == ("g0", "g0")
    assert placement.device_names == ("a:g0", "b:g0")
    assert Placement((BundlePlacement("local", half),)).device_names == ("g0",)


# --- nodes in the record -------------------------------------------------------------------------------------------


def test_the_nodes_of_an_inventory_survive_the_record():
    nodes = (
        Node("a", 4, 2**30, (Device("GPU-1", "gpu", "L4", 2**34, "0", ("L4", "L4-24G"), "nvidia"),), {"x": 1.0}),
        Node("b", 8.5, devices=(Device("tpu0", "tpu", visible="0", vendor="google"), Device("g")), slice="s"),
        Node("c", address="10.0.0.5"),
    )
    for event in (NodesChanged(nodes), NodesChanged(nodes[:1], nodes[1:]), NodesChanged((), nodes)):
        assert event_of(json.loads(encode_event(event, 0.0, 0.0, None)), None) == event


# --- what is declared ----------------------------------------------------------------------------------------------

GIB = 2**30
FOUND = (
    Device("GPU-aa", "gpu", "NVIDIA A100-SXM4-40GB", 40 * GIB, "0", ("A100", "A100-40G"), "nvidia"),
    Device("GPU-bb", "gpu", "NVIDIA A100-SXM4-40GB", 40 * GIB, "1", ("A100", "A100-40G"), "nvidia"),
)


def see(environ, *, trust):
    """Stand in for the detection of GPUs: read the one entry of `CUDA_VISIBLE_DEVICES` among three GPUs."""
    assert not trust
    entry = environ["CUDA_VISIBLE_DEVICES"]
    assert entry == environ["HIP_VISIBLE_DEVICES"]
    names = {"0": "GPU-aa", "GPU-a": "GPU-aa", "GPU-aa": "GPU-aa", "1": "GPU-bb", "GPU-bb": "GPU-bb", "2": "GPU-cc"}
    if entry not in names:
        return ()
    return (Device(names[entry], "gpu", "NVIDIA A100-SXM4-40GB", 40 * GIB, entry, ("A100", "A100-40G"), "nvidia"),)


@pytest.fixture
def machine(monkeypatch):
    """Return a function that says which devices are detected; none at first."""

    def has(*devices, slice_=""):
        monkeypatch.setattr(inventory, "detected", lambda: (Node("local", 4.0, 16 * GIB, devices, slice=slice_),))
        if devices:
            monkeypatch.setattr(inventory.gpu, "detect", see)

    has()
    sweep.shutdown()
    yield has
    sweep.shutdown()


def declared(**arguments):
    """Declare an inventory and return its devices."""
    (node,) = sweep.init(**arguments)
    assert inventory.available() == (node,)
    return node.devices


def test_what_is_not_declared_is_detected(machine):
    machine(*FOUND, Device("tpu0", "tpu", "TPU-V6E"), slice_="s")
    assert sweep.init() == inventory.detected()
    (node,) = sweep.init(num_cpus=2, memory="1GiB", resources={"tape": 2})
    assert node == Node("local", 2.0, GIB, (*FOUND, Device("tpu0", "tpu", "TPU-V6E")), {"tape": 2}, "s")
    assert sweep.is_initialized()


@pytest.mark.parametrize(
    ("arguments", "devices"),
    [
        ({"num_gpus": 1}, (Device("0"),)),
        ({"num_gpus": 0}, ()),
        ({"gpu_ids": ["GPU-x", "MIG-y"]}, (Device("GPU-x", visible="GPU-x"), Device("MIG-y", visible="MIG-y"))),
        ({"gpu_ids": ("4", 5)}, (Device("4", visible="4"), Device("5", visible="5"))),
        ({"gpu_ids": [" 3 "], "num_gpus": 1}, (Device("3", visible="3"),)),
        ({"gpu_ids": []}, ()),
        ({"num_gpus": 1, "gpu_type": "A100"}, (Device("0", type="A100", labels=("A100",)),)),
        (
            {"num_gpus": 2, "gpu_type": "A100", "gpu_memory": "80GiB"},
            (
                Device("0", "gpu", "A100", 80 * GIB, labels=("A100", "A100-80G")),
                Device("1", "gpu", "A100", 80 * GIB, labels=("A100", "A100-80G")),
            ),
        ),
        (
            {"gpu_ids": ["7", "8"], "gpu_type": ["H100", " L4 "], "gpu_memory": [80 * GIB, "24GiB"]},
            (
                Device("7", "gpu", "H100", 80 * GIB, "7", ("H100", "H100-80G")),
                Device("8", "gpu", "L4", 24 * GIB, "8", ("L4", "L4-24G")),
            ),
        ),
        ({"num_gpus": 1, "gpu_memory": 1}, (Device("0", memory=1),)),
    ],
)
def test_gpus_that_are_declared_exist_on_paper(machine, arguments, devices):
    assert declared(**arguments) == devices


def test_a_gpu_of_amd_is_known_by_its_type(machine):
    (device,) = declared(num_gpus=1, gpu_type="AMD Instinct MI300X OAM")
    assert (device.vendor, device.labels[0]) == ("amd", "MI300X")


def test_of_the_detected_gpus_the_named_ones_are_taken_with_what_is_known_of_them(machine):
    machine(*FOUND)
    assert declared(gpu_ids=["GPU-bb"])[0] == Device(
        "GPU-bb", "gpu", "NVIDIA A100-SXM4-40GB", 40 * GIB, "GPU-bb", ("A100", "A100-40G"), "nvidia"
    )
    assert [(d.id, d.visible) for d in declared(gpu_ids=["1", "GPU-a"])] == [("GPU-bb", "1"), ("GPU-aa", "GPU-a")]
    assert [d.id for d in declared(gpu_ids=["1", "9"])] == ["GPU-bb", "9"]
    assert declared(num_gpus=1) == FOUND[:1]
    assert declared(num_gpus=3) == (*FOUND, Device("2"))


def test_what_is_declared_of_a_detected_gpu_counts_more_than_what_was_found(machine):
    machine(*FOUND)
    first, second = declared(gpu_type="H100", gpu_memory=["80GiB", "94GiB"])
    assert first == Device("GPU-aa", "gpu", "H100", 80 * GIB, "0", ("H100", "H100-80G"), "nvidia")
    assert (second.memory, second.labels) == (94 * GIB, ("H100", "H100-94G"))
    assert declared(gpu_memory="80GiB")[0].labels == ("A100", "A100-80G")


V6E = ("TPU-V6E", "v6e")


@pytest.mark.parametrize(
    ("arguments", "chips"),
    [
        (
            {"num_tpus": 2},
            [Device("tpu0", "tpu", visible="0", vendor="google"), Device("tpu1", "tpu", visible="1", vendor="google")],
        ),
        ({"num_tpus": 1, "tpu_type": "v6e"}, [Device("tpu0", "tpu", "TPU-V6E", 0, "0", V6E, "google")]),
        ({"num_tpus": 1, "tpu_type": "tpu-V6E"}, [Device("tpu0", "tpu", "TPU-V6E", 0, "0", V6E, "google")]),
        ({"tpu_topology": "1x1", "tpu_type": "TPU-V6E"}, [Device("tpu0", "tpu", "TPU-V6E", 0, "0", V6E, "google")]),
        ({"num_tpus": 0}, []),
    ],
)
def test_chips_that_are_declared_have_the_type_of_their_generation(machine, arguments, chips):
    assert declared(num_gpus=0, **arguments) == tuple(chips)


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ({"tpu_topology": "2x2"}, 4),
        ({"tpu_topology": " 2X4 "}, 8),
        ({"tpu_topology": "2x2x1"}, 4),
        ({"tpu_topology": "2x4", "num_tpus": 8}, 8),
        ({"tpu_topology": "2x4", "tpu_type": "v5e"}, 8),
        ({"tpu_topology": "2x2x1", "tpu_type": "v4", "num_tpus": 4}, 4),
    ],
)
def test_a_topology_says_how_many_chips_there_are(machine, arguments, number):
    assert [device.id for device in declared(**arguments)] == [f"tpu{i}" for i in range(number)]


def test_detected_chips_come_before_those_on_paper_and_take_a_declared_type(machine):
    chip = Device("chip", "tpu", "TPU-V5P", visible="3", vendor="google")
    machine(chip)
    assert declared(num_tpus=2) == (chip, Device("tpu1", "tpu", visible="1", vendor="google"))
    assert declared(tpu_type="v6e") == (Device("chip", "tpu", "TPU-V6E", 0, "3", V6E, "google"),)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_gpus": 1.5}, ResourceError, "num_gpus is 1.5; expected a whole number of at least 0."),
        ({"num_tpus": -1}, ResourceError, "num_tpus is -1; expected a whole number of at least 0."),
        ({"num_cpus": "2"}, ResourceError, "num_cpus is '2'; expected a number of at least 0."),
        ({"gpu_ids": "0,1"}, ConfigError, "gpu_ids is '0,1'; expected a list of indices or UUIDs, such as ['0', '1']."),
        ({"gpu_ids": 2}, ConfigError, "gpu_ids is 2; expected a list"),
        ({"gpu_ids": ["0,1"]}, ConfigError, "gpu_ids has '0,1'; expected the index or the UUID of one GPU."),
        ({"gpu_ids": [""]}, ConfigError, "gpu_ids has ''; expected"),
        ({"gpu_ids": [-1]}, ConfigError, "gpu_ids has -1; expected"),
        ({"gpu_ids": [True]}, ConfigError, "gpu_ids has True; expected"),
        ({"gpu_ids": [None]}, ConfigError, "gpu_ids has None; expected"),
        ({"gpu_ids": ["7", "7"]}, ConfigError, "gpu_ids names the GPU 7 twice; expected each once."),
        (
            {"gpu_ids": ["7"], "num_gpus": 2},
            ConfigError,
            "gpu_ids names 1 and num_gpus is 2; expected the same number.",
        ),
        (
            {"num_gpus": 2, "gpu_type": ["A100"]},
            ConfigError,
            "gpu_type has 1 entries and there are 2 GPUs; expected one",
        ),
        ({"num_gpus": 1, "gpu_type": ""}, ConfigError, "gpu_type has ''; expected a text such as 'A100'."),
        ({"num_gpus": 1, "gpu_type": 100}, ConfigError, "gpu_type has 100; expected a text such as 'A100'."),
        (
            {"gpu_type": "A100"},
            ConfigError,
            "gpu_type is 'A100' and there is no GPU. Give num_gpus or gpu_ids as well.",
        ),
        ({"num_gpus": 0, "gpu_memory": 1}, ConfigError, "gpu_memory is 1 and there is no GPU."),
        (
            {"num_gpus": 1, "gpu_memory": "lots"},
            ResourceError,
            "gpu_memory has 'lots'; expected bytes or a text such as",
        ),
        ({"num_gpus": 2, "gpu_memory": [1]}, ConfigError, "gpu_memory has 1 entries and there are 2 GPUs"),
        ({"num_tpus": 1, "tpu_type": "v6p"}, ResourceError, "unknown TPU type 'v6p'. Did you mean 'v6e'? Known: v2"),
        ({"num_tpus": 1, "tpu_type": 6}, ResourceError, "tpu_type is 6; expected a text such as 'v6e'."),
        (
            {"tpu_type": "v6e"},
            ConfigError,
            "tpu_type is 'v6e' and there is no TPU chip. Give num_tpus or tpu_topology.",
        ),
        ({"tpu_topology": "2*2"}, ResourceError, "topology is '2*2'; expected numbers of chips with x between them"),
        ({"tpu_topology": "4"}, ResourceError, "topology is '4'; expected"),
        ({"tpu_topology": "0x4"}, ResourceError, "topology is '0x4'; expected"),
        ({"tpu_topology": 4}, ResourceError, "topology is 4; expected"),
        ({"tpu_topology": "3x3", "tpu_type": "v6e"}, ResourceError, "topology '3x3' is no slice of v6e"),
        (
            {"tpu_topology": "2x2", "num_tpus": 8},
            ConfigError,
            "tpu_topology '2x2' has 4 chips and num_tpus is 8; expected the same number. Leave one of them out.",
        ),
        ({"runtime_env": 3}, ConfigError, "runtime_env is 3; expected {'env_vars': {'NAME': 'value'}}."),
        ({"runtime_env": {"env_var": {}}}, ConfigError, "unknown key 'env_var'. Did you mean 'env_vars'?"),
        ({"runtime_env": {"pipp": []}}, ConfigError, "unknown key 'pipp'. Known: env_vars."),
        ({"runtime_env": {"env_vars": ["A=1"]}}, ConfigError, "env_vars is ['A=1']; expected a dict of texts"),
        ({"runtime_env": {"env_vars": {"A": 1}}}, ConfigError, "env_vars has A=1; expected a text. Write '1'."),
        (
            {"runtime_env": {"env_vars": {"A=B": "1"}}},
            ConfigError,
            "env_vars has the name 'A=B'; expected a text without",
        ),
        ({"runtime_env": {"env_vars": {"": "1"}}}, ConfigError, "env_vars has the name ''; expected"),
        ({"num_cpu": 3}, ConfigError, "sweep.init has no parameter 'num_cpu'. Did you mean 'num_cpus'?"),
        ({"address": "10.0.0.1:6379", "num_gpus": 2}, ConfigError, "num_gpus declares this machine, and engine='ray'"),
        ({"address": "ray://head:10001"}, ConfigError, "is one of Ray Client, through which no agent could be reached"),
        (
            {"engine": "rey"},
            ConfigError,
            "engine is 'rey'; expected 'local', 'ray', 'agents' or 'slurm'. Did you mean 'ray'?",
        ),
        ({"max_nodes": 2}, ConfigError, "max_nodes is for a cluster. Add engine='ray', or leave it out."),
        ({"engine": "ray", "max_nodes": 0}, ConfigError, "max_nodes is 0; expected"),
        (
            {"engine": "ray", "heartbeat_timeout_s": -1},
            ConfigError,
            "heartbeat_timeout_s is -1; expected a number above 0.",
        ),
        ({"engine": "ray", "autoscale": {"max": 8}}, ConfigError, "expected {'node_type': {'CPU': 8, 'GPU': 1}, 'max'"),
        (
            {"redis_address": "10.0.0.1:6379"},
            ConfigError,
            "no parameter 'redis_address'. Give the address of a cluster of Ray",
        ),
        ({"local_mode": "yes"}, ConfigError, "local_mode is 'yes'; expected True or False."),
        ({"shared": "no"}, ConfigError, "shared is 'no'; expected True or False."),
        ({"engine": "ray", "shared": "no"}, ConfigError, "shared is 'no'; expected True or False."),
        ({"ignore_reinit_eror": True}, ConfigError, "sweep.init has no parameter 'ignore_reinit_eror'."),
        ({"nodes": [Node()], "gpu_ids": ["0"]}, ConfigError, "either nodes= or the amounts of one machine, not both"),
        ({"nodes": [Node()], "tpu_type": "v6e"}, ConfigError, "either nodes= or the amounts of one machine, not both"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused_and_changes_nothing(machine, arguments, error, words):
    before = sweep.init(num_cpus=3, runtime_env={"env_vars": {"A": "kept"}})
    with pytest.raises(error) as raised:
        sweep.init(**arguments)
    assert words in str(raised.value)
    assert inventory.available() == before
    assert inventory.env_vars() == {"A": "kept"}


def test_sharing_is_said_of_a_machine_or_of_a_cluster_and_alone_leaves_both_as_they_are(machine):
    sweep.init(engine="ray", max_nodes=2, shared=False)
    assert (inventory.default_engine(), inventory.is_shared()) == ("ray", False)
    sweep.init(shared=True)
    assert (inventory.default_engine(), inventory.is_shared()) == ("ray", True)
    assert inventory.cluster_options()["max_nodes"] == 2
    before = sweep.init(num_cpus=3, shared=False)
    assert (inventory.default_engine(), inventory.is_shared()) == ("local", False)
    sweep.init(shared=True)
    assert inventory.available() == before


def test_names_of_detected_gpus_are_checked_by_the_gpus_they_mean(machine):
    machine(*FOUND)
    with pytest.raises(ConfigError, match=r"gpu_ids names the GPU GPU-aa twice; expected each once\."):
        sweep.init(gpu_ids=["0", "GPU-aa"])


def test_what_only_concerns_a_cluster_of_ray_changes_nothing(machine):
    before = sweep.init(num_cpus=3)
    with pytest.warns(UserWarning, match=r"init: include_dashboard, log_to_driver have no eff") as one:
        assert sweep.init(num_cpus=3, include_dashboard=False, log_to_driver=False) == before
    assert [warned.filename for warned in one] == [__file__]
    assert sweep.init(num_cpus=3, log_to_driver=True) == before  # it was said
    with pytest.warns(UserWarning, match=r"sweep\.init: _temp_dir has no effect: there is no cluster"):
        sweep.init(_temp_dir="/tmp/ray", log_to_driver=True)
    with pytest.warns(UserWarning, match=r"runtime_env\['working_dir'\], runtime_env\['pip'\] have no effect"):
        sweep.init(runtime_env={"working_dir": ".", "pip": ["torch"], "env_vars": {"A": "1"}})
    assert inventory.env_vars() == {"A": "1"}


@pytest.fixture
def ray_address(tmp_path, monkeypatch):
    """The address of something that listens, as a cluster of Ray does; none is known on this machine."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(psutil, "process_iter", lambda attrs: [])
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


NOBODY = "no cluster of Ray answers at 127.0.0.1:1"


@pytest.mark.parametrize(
    ("address", "variable", "why"),
    [
        (None, "", ""),
        ("local", "", ""),
        ("local", "127.0.0.1:1", ""),
        (None, "local", ""),
        ("auto", "", "this machine belongs to no cluster of Ray, which address='auto' means"),
        ("auto", "127.0.0.1:1", NOBODY),
        (None, "127.0.0.1:1", NOBODY),
        (None, "nonsense", "no cluster of Ray answers at nonsense"),
        (None, "auto", "this machine belongs to no cluster of Ray, which address='auto' means"),
    ],
)
def test_where_no_cluster_answers_sweeps_run_on_this_machine(machine, ray_address, monkeypatch, address, variable, why):
    monkeypatch.setenv("RAY_ADDRESS", variable)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert sweep.init(address) == inventory.detected()
    assert [str(one.message) for one in said] == ([f"sweep.init: {why}; sweeps run on this machine."] if why else [])
    assert [one.filename for one in said] == [__file__] * bool(why)
    assert inventory.default_engine() == "local"


WAYS = ["auto by variable", "auto by file", "auto by process", "variable auto", "variable alone", "tune.run"]


@pytest.mark.parametrize("way", WAYS)
def test_a_cluster_that_answers_is_joined(machine, ray_address, monkeypatch, tmp_path, way):
    monkeypatch.setenv("RAY_ADDRESS", "" if "by file" in way or "by process" in way else ray_address)
    if way in ("auto by file", "variable auto"):
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(ray_address)
    if way == "variable auto":
        monkeypatch.setenv("RAY_ADDRESS", "auto")
    if way == "auto by process":
        lines = [None, ["python", "script.py"], ["/ray/raylet", f"--gcs-address={ray_address}", "--head"]]
        monkeypatch.setattr(psutil, "process_iter", lambda attrs: [SimpleNamespace(info={"cmdline": x}) for x in lines])
    if way == "tune.run":
        with pytest.raises(ConfigError, match=f"address='{ray_address}'"):  # nothing there speaks as Ray does
            sweep.tune.run(lambda config: None, storage_path=tmp_path, verbose=0)
    else:
        assert sweep.init("auto" if way.startswith("auto") else None) == ()
    assert inventory.default_engine() == "ray"
    assert inventory.cluster_options()["address"] == ray_address


def test_auto_joins_with_what_else_is_said_of_the_processes_there(machine, ray_address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    environment = {"working_dir": ".", "env_vars": {"A": "1"}}
    assert sweep.init("auto", runtime_env=environment, shared=False, ignore_reinit_error=True) == ()
    assert inventory.cluster_options() == {"address": ray_address, "runtime_env": environment}
    assert (inventory.env_vars(), inventory.is_shared()) == ({"A": "1"}, False)


def test_what_declares_this_machine_is_not_taken_elsewhere_by_a_variable(machine, ray_address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    assert sweep.init(num_cpus=3)[0].cpus == 3
    assert inventory.default_engine() == "local"


def test_init_returns_what_scripts_for_ray_read_of_it(machine):
    found = sweep.init(num_cpus=3)
    assert (found.dashboard_url, found.address_info["node_ip_address"]) == ("", "127.0.0.1")


def test_environment_variables_alone_leave_the_inventory_as_it_is(machine):
    assert sweep.init(runtime_env={"env_vars": {"A": "1"}}) == inventory.detected()
    assert sweep.is_initialized()
    machine(*FOUND)
    assert inventory.available() == inventory.detected()
    node = Node("own", 2)
    sweep.init(nodes=[node], runtime_env={"env_vars": {"B": "2"}})
    assert sweep.init(runtime_env={}) == (node,)


def test_environment_variables_stay_until_others_are_given_or_all_is_forgotten(machine):
    given_ = {"A": "1"}
    sweep.init(num_cpus=2, runtime_env={"env_vars": given_})
    given_["A"] = "changed later"
    sweep.init(num_cpus=1)
    assert inventory.env_vars() == {"A": "1"}
    inventory.env_vars()["A"] = "a copy"
    assert inventory.env_vars() == {"A": "1"}
    sweep.init(runtime_env={"env_vars": {"B": "2"}})
    assert inventory.env_vars() == {"B": "2"}
    sweep.init(runtime_env={"env_vars": None})
    assert inventory.env_vars() == {}
    sweep.init(runtime_env={"env_vars": {"B": "2"}})
    sweep.shutdown()
    assert inventory.env_vars() == {}
    assert not sweep.is_initialized()


def test_a_call_after_another_changes_nothing_where_ray_would_ignore_it(machine):
    (first,) = sweep.init(num_cpus=5, ignore_reinit_error=True)
    assert first.cpus == 5
    assert sweep.init(num_cpus=7, ignore_reinit_error=True) == (first,)
    (later,) = sweep.init(num_cpus=7)
    assert later.cpus == 7
