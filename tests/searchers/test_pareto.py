"""Tests of the Pareto front: against its definition, on random points with ties, duplicates and missing values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.errors import SearchError, UnknownNameError
from searchers.pareto import pareto_front

VALUE = st.one_of(
    st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf, -0.0, None, "text"]), st.floats()
)


def by_definition(points, modes):
    """Compare each point with each other one, objective by objective."""

    def is_number(value):
        return isinstance(value, float) and not math.isnan(value)

    def dominates(one, two):
        pairs = [
            (a, b) if mode == "min" else (b, a) for a, b, mode in zip(one, two, modes, strict=True) if mode != "obs"
        ]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    whole = [
        number
        for number, point in enumerate(points)
        if all(is_number(value) for value, mode in zip(point, modes, strict=True) if mode != "obs")
    ]
    return [one for one in whole if not any(dominates(points[two], points[one]) for two in whole)]


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_the_front_is_what_its_definition_says(data):
    modes = data.draw(st.lists(st.sampled_from(["min", "max", "obs"]), min_size=1, max_size=5))
    if all(mode == "obs" for mode in modes):
        modes.append("min")
    points = data.draw(st.lists(st.tuples(*[VALUE] * len(modes)), max_size=16))
    assert pareto_front(points, modes) == by_definition(points, modes)


@pytest.mark.parametrize(
    ("points", "modes", "front"),
    [
        ([], ["min"], []),
        ([(3,), (1,), (2,), (1,)], ["min"], [1, 3]),
        ([(1, 4), (2, 2), (4, 1), (3, 3), (2, 2), (2, 5)], ["min", "min"], [0, 1, 2, 4]),
        ([(math.nan, math.nan), (None, 1)], ["min", "max"], []),
        ([(1, math.nan, 5), (2, 7, 5)], ["min", "obs", "max"], [0]),
    ],
)
def test_fronts_that_one_sees_by_eye(points, modes, front):
    assert pareto_front(points, modes) == front


@pytest.mark.parametrize(
    ("points", "modes", "error", "message"),
    [
        ([(1,)], ["least"], UnknownNameError, "a mode is 'least'"),
        ([(1,)], ["obs"], SearchError, "at least one objective"),
        ([(1,)], [], SearchError, "at least one objective"),
        ([(1, 2), (1,)], ["min", "min"], SearchError, "point 1 has 1 values; expected 2"),
    ],
)
def test_wrong_modes_and_points_are_refused(points, modes, error, message):
    with pytest.raises(error, match=message):
        pareto_front(points, modes)
