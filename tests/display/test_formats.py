"""How values are shown to people."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from sweep.display.formats import (
    aligned,
    clean,
    duration,
    fit,
    number,
    pairs,
    rough_duration,
    text,
    to_yaml,
    width_of,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0412345, "0.04123"),
        (3.1e-4, "3.1e-4"),
        (0.000312345, "3.123e-4"),
        (0.0, "0"),
        (-2.5, "-2.5"),
        (12345.678, "12346"),
        (1.5e9, "1.5e9"),
        (512, "512"),
        (10**12, "1.000e+12"),
        (10**400, "huge"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_have_four_significant_digits(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (761, "12:41"), (3723, "1:02:03"), (183845, "2d 03:04:05"), (-1, "0:00")]
)
def test_durations_read_like_a_clock(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(40, "40s"), (420, "7m"), (10800, "3h"), (172800, "2d")])
def test_rough_durations_have_one_unit(seconds: float, shown: str) -> None:
    assert rough_duration(seconds) == shown


def test_control_characters_and_escape_sequences_are_stripped() -> None:
    assert clean("\x1b[31mred\x1b[0m\x07 a\nb\tc\u202e\x9b2J") == "red a b c2J"
    assert clean("\x1b]0;title\x07x") == "x"
    assert clean("naïve 漢字") == "naïve 漢字"


@given(st.text())
def test_a_cleaned_text_is_one_printable_line(shown: str) -> None:
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in clean(shown))
    assert len(clean(shown).splitlines()) <= 1


@given(st.text(), st.integers(min_value=0, max_value=30))
def test_a_fitted_text_is_never_wider_than_asked(shown: str, columns: int) -> None:
    assert width_of(fit(shown, columns)) <= columns


def test_a_cut_is_marked_and_wide_characters_count_twice() -> None:
    assert fit("abcdef", 4) == "abc…"
    assert fit("漢字漢字", 5) == "漢字…"
    assert width_of("漢字") == 4


def test_columns_are_as_wide_as_their_widest_cell_in_columns_of_the_terminal() -> None:
    rows = [["name", "loss", "why"], ["漢字", "1", "a b"], ["e\u0301", "12345", ""], ["short"]]
    lines = aligned(rows, {1})
    assert lines == ["name    loss  why", "漢字       1  a b", "e\u0301      12345", "short"]


def test_configs_are_shown_as_pairs() -> None:
    assert pairs({"lr": 3.1e-4, "act": "gelu", "deep": [1, 2.0], "none": None, "on": True}) == (
        "lr=3.1e-4 act=gelu deep=[1,2] none=- on=true"
    )
    assert text({"a": "\x1b[2J"}) == "{'a': '\\x1b[2J'}"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=20), _VALUES, max_size=4))
def test_yaml_reads_back_as_the_same_values(config: dict[str, Any]) -> None:
    shown = to_yaml(config)
    assert YAML(typ="safe", pure=True).load(shown) == (config or None)


def test_yaml_of_small_numbers_is_read_as_numbers_by_old_readers_too() -> None:
    assert to_yaml({"lr": 1e-05, "net": {"act": "relu", "on": "yes"}, "nan": math.nan}) == (
        'lr: 1.0e-05\nnet:\n  act: relu\n  "on": "yes"\nnan: .nan\n'
    )
