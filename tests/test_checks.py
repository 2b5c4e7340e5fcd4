"""The checks of single arguments, of both packages: what they take, what they refuse, and the words of the refusal."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from searchers import checks as search_checks
from searchers.errors import SearchError, UnknownNameError
from sweep import checks
from sweep.errors import ConfigError, ResourceError

CASES: list[tuple[str, Any, dict[str, Any], Any]] = [
    ("whole", 0, {}, 0),
    ("whole", np.int64(3), {"least": 3, "most": 3}, 3),
    ("whole", -5, {"least": None}, -5),
    ("whole", True, {}, "a whole number of at least 0"),
    ("whole", 2.0, {"least": 1}, "a whole number of at least 1"),
    ("whole", 9, {"least": 1, "most": 8}, "a whole number of at least 1 and at most 8"),
    ("whole", -2, {"least": -1, "expected": "-1, or more"}, "-1, or more"),
    ("number", 1, {}, 1.0),
    ("number", np.float32(0.5), {"above": 0, "below": 1}, 0.5),
    ("number", math.inf, {"least": 0, "is_finite": False}, math.inf),
    ("number", math.nan, {"least": 0, "is_finite": False}, "a number of at least 0"),
    ("number", math.inf, {"above": 0}, "a finite number above 0"),
    ("number", 10**400, {"above": 0}, "a finite number above 0"),
    ("number", 1.0, {"above": 0, "below": 1}, "a number above 0 and below 1"),
    ("number", False, {"most": 1}, "a number at most 1"),
    ("number", "1", {}, "a finite number"),
    ("seconds", timedelta(minutes=1), {}, 60.0),
    ("seconds", math.inf, {}, math.inf),
    ("seconds", 0, {"is_zero_allowed": True}, 0.0),
    ("seconds", 0, {}, "seconds above 0, or a timedelta"),
    ("seconds", math.nan, {}, "seconds above 0, or a timedelta"),
    (
        "seconds",
        math.inf,
        {"most": 1e9, "is_zero_allowed": True},
        "seconds of at least 0 and at most 1e+09, or a timedelta",
    ),
    ("seconds", "soon", {}, "seconds above 0, or a timedelta"),
    ("one_of", "fast", {"known": ("full", "fast")}, "fast"),
    ("one_of", "fasst", {"known": ("full", "fast")}, "'full' or 'fast'. Did you mean 'fast'?"),
    ("one_of", 3, {"known": ("full", "fast", "none")}, "'full', 'fast' or 'none'"),
    ("one_of", "x", {"known": ("full",), "hint": "Leave it out."}, "'full'. Leave it out."),
]


@pytest.mark.parametrize(("check", "value", "options", "expected"), CASES)
def test_what_is_within_comes_back_plain_and_all_else_is_refused_with_what_was_expected(
    check: str, value: Any, options: dict[str, Any], expected: Any
) -> None:
    if isinstance(expected, str) and expected != value:
        with pytest.raises(ConfigError) as caught:
            getattr(checks, check)("limit", value, **options)
        end = "" if expected.endswith((".", "?")) else "."
        assert str(caught.value) == f"limit is {value!r:.100}; expected {expected}{end}"
    else:
        found = getattr(checks, check)("limit", value, **options)
        assert found == expected
        assert type(found) is type(expected)


def test_a_mode_is_min_or_max() -> None:
    assert checks.mode("max") == "max"
    with pytest.raises(ConfigError, match=r"mode is 'maximum'; expected 'min' or 'max'\. Say 'min' for a loss"):
        checks.mode("maximum")


def test_each_side_raises_its_own_error() -> None:
    with pytest.raises(SearchError):
        search_checks.whole("n", 1.5)
    with pytest.raises(UnknownNameError):
        search_checks.mode("maximum")
    with pytest.raises(ResourceError):
        checks.resource.number("cpu", -1, least=0)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        checks.whole("n", "x" * 10_000)
    assert len(str(caught.value)) < 200
