"""How figures write text and numbers."""

from __future__ import annotations

import html
import math

import pytest
from figure_checks import check_text
from hypothesis import example, given
from hypothesis import strategies as st
from odd_experiments import HOSTILE

from sweep.figures.style import FATES, axis_of_time, finish, graph_objects, lines_of, plain, rounded


@given(st.text(), st.integers(1, 100))
@example("<b>&amp;</b> $a$ %{x}", 80)
@example("\ud800\0\x1b[31m", 80)
def test_any_text_becomes_harmless_and_is_read_as_it_was(text: str, most: int) -> None:
    shown = plain(text, most)
    check_text(("text",), shown)
    assert len(html.unescape(shown)) <= most
    if text.isascii() and text.isprintable() and len(text) <= most:
        assert html.unescape(shown) == " ".join(text.split())


@given(st.text())
@example(HOSTILE)
def test_a_long_text_is_broken_into_short_lines(text: str) -> None:
    lines = lines_of(text, 20, 100).split("<br>")
    assert len(lines) <= 100
    for line in lines:
        check_text(("text",), line)
        assert len(html.unescape(line)) <= 20


@given(st.one_of(st.floats(), st.integers(), st.none(), st.text(), st.booleans()))
def test_a_number_is_kept_on_six_digits_and_what_is_none_has_no_place(value: object) -> None:
    found = rounded(value)
    if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 1e300:
        assert found == pytest.approx(float(value), rel=1e-5)
    elif not isinstance(value, int):
        assert found is None or math.isfinite(found)


def test_time_has_the_unit_that_suits_it() -> None:
    units = [axis_of_time(seconds)[1] for seconds in (0, 119, 120, 7200, 172_800)]
    assert units == ["seconds", "seconds", "minutes", "hours", "days"]


def test_no_two_fates_look_alike_even_without_colours() -> None:
    assert len({(look.symbol, look.dash) for look in FATES.values()}) == len(FATES)
    assert len({look.symbol for look in FATES.values()}) == len(FATES)
    assert len({look.dash for look in FATES.values()}) == len(FATES)


def test_a_figure_says_below_its_title_what_was_left_out() -> None:
    note = "300 of 10,000 trials: the best 100, 50 that failed, and a spread of the others."
    bare = finish([graph_objects().Scatter()], "curves", "loss", summary="It falls.")
    figure = finish([graph_objects().Scatter()], "curves", "loss", summary="It falls.", notes=[note, ""])
    assert figure.layout.title.subtitle.text.replace("<br>", " ") == note
    assert figure.layout.margin.t > bare.layout.margin.t
    assert bare.layout.title.subtitle.text is None
    assert figure.layout.meta == {"figure": "curves", "note": note, "summary": "It falls."}
    assert figure.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)"
