"""Requests in every form that users write them, byte amounts, and the JSON forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.resources import (
    STRATEGIES,
    Bundle,
    BundlePlacement,
    Placement,
    PlacementGroupFactory,
    Resources,
    format_bytes,
    parse_bytes,
    parse_resources,
)
from sweep.errors import ResourceError


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
    ],
)
def test_a_dict_means_one_bundle_and_no_cpu_means_none(request_, bundle):
    assert parse_resources(request_) == Resources((bundle,))


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
        ({"cpu": 0}, "nothing at all"),
        ({"gpus": 1}, "did you mean 'gpu'"),
        ({"num_cpus": 1}, "did you mean 'cpu'"),
        ({"mem": 1}, "did you mean 'memory'"),
        ({"cpu": 1, "CPU": 2}, "given twice"),
        ({3: 1}, "named 3"),
        ({"memory": "lots"}, "memory='lots'"),
        ({"tape": "two"}, "tape='two'"),
        ({"cpu": 1, "custom_resources": 3}, "custom_resources"),
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


def test_the_total_adds_all_bundles():
    resources = Resources(
        (Bundle(cpu=1, gpu=0.5, memory=3, custom=(("x", 1.0),)), Bundle(cpu=2, gpu=2, custom=(("x", 2.0), ("y", 1.0))))
    )
    total = resources.total
    assert (total.cpu, total.gpu, total.tpu, total.memory) == (3, 2.5, 0, 3)
    assert total.custom == (("x", 3.0), ("y", 1.0))


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (Resources(), "cpu=1"),
        (Resources((Bundle(cpu=0.5, gpu=1, memory=2**30, custom=(("x", 2.0),)),)), "cpu=0.5 gpu=1 memory=1GiB x=2"),
        (Resources((Bundle(), Bundle(cpu=2), Bundle(cpu=2)), "SPREAD"), "(nothing) + 2 x (cpu=2) SPREAD"),
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
    "text", ["", "G", "-1", "4 X", "4i", "4 ib", "1e9", "four", True, -1, float("nan"), None, [1], "1,5G"]
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
    tpu=st.integers(0, 8).map(float),
    memory=st.integers(0, 2**45),
    custom=st.dictionaries(st.sampled_from(["disk", "tape", "Zed"]), st.floats(0.5, 5)).map(
        lambda d: tuple(sorted(d.items()))
    ),
)


@given(st.lists(bundles, min_size=1, max_size=4), st.sampled_from(STRATEGIES), st.booleans())
def test_a_request_survives_json(items, strategy, distinct):
    if all(bundle.is_empty for bundle in items):
        return
    resources = Resources(tuple(items), strategy, distinct)
    assert Resources.from_json(resources.to_json()) == resources


def test_a_placement_survives_json_and_lists_each_device_once():
    placement = Placement(
        (BundlePlacement("a", (("g0", 0.5), ("g1", 0.5))), BundlePlacement("b"), BundlePlacement("a", (("g0", 0.5),)))
    )
    assert Placement.from_json(placement.to_json()) == placement
    assert placement.devices == ("g0", "g1")
