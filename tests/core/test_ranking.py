"""Which trial is best: what counts, and who beats whom."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.ranking import best_of, rankable, replaces

NAN, INF = math.nan, math.inf

values = st.one_of(st.sampled_from([NAN, INF, -INF, None, "0.3", 0, 1, True, 2.5, -1.0]), st.floats(-3, 3))
modes = st.sampled_from(["min", "max"])


@pytest.mark.parametrize("value", [NAN, INF, -INF, None, "0.3", [1.0], {}])
def test_what_is_no_finite_number_cannot_be_best(value: object) -> None:
    assert rankable(value) is None
    assert best_of([(0, value)], "min") is None


def test_a_number_too_large_for_a_float_is_never_best() -> None:
    assert best_of([(0, 10**400), (1, 1.0)], "max") == (1, 1.0)
    assert best_of([(0, -(10**400)), (1, 1)], "min", infinite=True) == (1, 1)
    assert best_of([(0, 10**308), (1, 1.0)], "max") == (0, 10**308)


def test_the_first_of_equals_is_best() -> None:
    assert best_of([(0, 2.0), (1, 1.0), (2, 1)], "min") == (1, 1.0)


@pytest.mark.parametrize(
    ("new", "old", "mode", "expected"),
    [
        (1.0, INF, "max", True),  # an infinity is never the best report of a trial that has a number
        (INF, 1.0, "max", False),
        (-INF, 1.0, "min", False),
        (-INF, INF, "min", True),
        (INF, NAN, "min", True),
        (NAN, INF, "min", False),
        (NAN, NAN, "min", False),
        (None, NAN, "min", False),
        (1.0, 2.0, "min", True),
        (2.0, 2.0, "min", False),
        (2, 1, "max", True),
        (2, 1, "min", False),
        (NAN, 1, "max", False),
        (NAN, 1, "min", False),
        (1, NAN, "max", True),
        (1, NAN, "min", True),
        (-INF, NAN, "max", True),
        (NAN, -INF, "max", False),
        (None, 1, "max", False),
    ],
)
def test_finite_numbers_come_before_infinities_and_these_before_nan(
    new: object, old: object, mode: str, expected: bool
) -> None:
    assert replaces(new, old, mode) is expected


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, np.int32, np.uint8])
def test_numpy_scalars_are_numbers(kind: Callable[[int], float]) -> None:
    assert rankable(kind(2)) == 2.0
    assert replaces(kind(3), kind(2), "max")


@given(values, values, modes)
def test_of_two_values_at_most_one_is_better(a: object, b: object, mode: str) -> None:
    assert not (replaces(a, b, mode) and replaces(b, a, mode))
