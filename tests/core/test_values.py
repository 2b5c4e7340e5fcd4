"""Which values are numbers that a float holds, and how others are shown."""

from __future__ import annotations

import enum
import math
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from sweep.core.values import (
    MOST,
    as_float,
    is_held,
    printed,
    shown,
    shown_int,
    shown_range,
    sound_text,
    summed,
)


def test_the_largest_whole_number_that_counts_is_the_largest_float():
    assert int(sys.float_info.max) == MOST
    assert [is_held(value) for value in (MOST, -MOST, MOST + 1, -MOST - 1, 0)] == [True, True, False, False, True]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (True, 1.0),
        (0.5, 0.5),
        (MOST, float(MOST)),
        (-math.inf, -math.inf),
        (np.float32(1.5), 1.5),
        (np.int8(3), 3.0),
        (Fraction(1, 4), 0.25),
        ("1.0", None),
        (None, None),
        ([1.0], None),
        (1j, None),
        (Decimal(1), None),  # as it was: it is no `numbers.Real`
    ],
)
def test_a_number_as_a_float_and_nothing_for_what_is_none(value, expected):
    assert as_float(value) == expected
    assert type(as_float(value)) is type(expected)


def test_nan_stays_and_what_is_too_large_is_no_number():
    assert math.isnan(as_float(math.nan))
    assert [as_float(value) for value in (10**400, -(10**400), Fraction(10**400))] == [None, None, None]


def test_a_sum_that_no_float_holds_is_infinite():
    assert (summed(1, 2), summed(0.5, 1)) == (3, 1.5)
    assert (summed(MOST, 0), summed(-MOST, 0)) == (MOST, -MOST)
    assert (summed(MOST, MOST), summed(-MOST, -1)) == (math.inf, -math.inf)
    assert (summed(10**400, 0.5), summed(0.5, -(10**400))) == (math.inf, -math.inf)


def test_whole_numbers_are_shown_as_far_as_python_prints_them():
    assert shown_int(-12) == "-12"
    assert shown_int(10**4299) == "1" + "0" * 4299
    assert shown_int(10**5000) == "a whole number of about 5,001 digits"
    assert shown_int(-(10**5000)) == "a negative whole number of about 5,001 digits"


class Silent:
    def __repr__(self):
        raise RuntimeError("no repr")


class Level(enum.IntEnum):
    LOW = 1


def test_anything_can_be_shown():
    assert [shown(value) for value in (1, -1.5, "a\n", Level.LOW)] == ["1", "-1.5", "'a\\n'", "<Level.LOW: 1>"]
    assert shown(10**5000) == printed(10**5000) == "a whole number of about 5,001 digits"
    assert shown(Silent()) == printed(Silent()) == "<Silent, whose __repr__ raised RuntimeError>"
    assert shown([10**5000]) == "<list, whose __repr__ raised ValueError>"
    assert (len(shown("x" * 999)), len(shown("x" * 999, 7)), len(printed("x" * 999))) == (200, 7, 999)
    assert (printed("a\n"), printed(Level.LOW), printed(None)) == ("a\n", "1", "None")


def test_a_text_is_sound_without_nul_and_half_characters():
    assert sound_text("a\0\ud800b\udcffé") == "a\\x00\\ud800b\\udcffé"
    assert sound_text("plain\n") == "plain\n"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e-3, 1.0], (1e-3, 1.0, True)),  # spread over magnitudes
        ([1e-3, *(1 + n / 100 for n in range(100))], (1e-3, 1.99, False)),
        ([0.0, 1.0, 1e9], (0.0, 1e9, False)),  # no logarithm of 0, and too few to say what is outside
        ([*(1 + n / 100 for n in range(100)), 5000.0], (1.0, 5000.0, True)),  # one flattens all
        ([0.5, 0.6, 0.7, 0.8, 90.0], (0.5, 90.0, True)),
        ([0.01, *(0.9 + n / 1000 for n in range(10))], (0.9, 0.909, False)),  # which a logarithm would flatten, too
        ([-1e6, *(n / 10 for n in range(10))], (0.0, 0.9, False)),
        ([5e-324, 1e308, 1.0], (5e-324, 1e308, True)),
        ([-1e308, 1e308], (-1e308, 1e308, False)),
        ([2.0, 2.0, 2.0, 2.0, math.nan], (2.0, 2.0, False)),
        ([math.nan, math.inf], (0.0, 1.0, False)),
    ],
)
def test_an_axis_is_such_that_outliers_do_not_flatten_the_others(values, expected):
    assert shown_range(values) == pytest.approx(expected)
    outlier = values[0]
    assert shown_range(values, best=outlier)[0] <= outlier or math.isnan(outlier)
