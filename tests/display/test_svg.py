"""The small pictures of notebooks."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ElementTree

import pytest

from sweep.display.svg import Curve, best_so_far, learning_curves

_NAME = "{http://www.w3.org/2000/svg}"


def lines_of(picture: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(picture).findall(f"{_NAME}polyline")


def ys(line: ElementTree.Element) -> list[float]:
    return [float(pair.split(",")[1]) for pair in (line.get("points") or "").split()]


def test_each_trial_is_a_line_that_is_coloured_by_its_fate_and_the_best_is_on_top() -> None:
    curves = [
        Curve(7, "finished", [(1, 3.0), (2, 1.0)], is_best=True),
        Curve(1, "running", [(1, 3.0), (2, 2.0)]),
        Curve(2, "stopped early", [(1, 4.0), (2, 3.5)]),
    ]
    lines = lines_of(learning_curves(curves, "loss"))
    assert [line.findtext(f"{_NAME}title") for line in lines] == ["trial 00002", "trial 00001", "trial 00007"]
    assert lines[0].get("stroke") == "currentColor"
    assert len({line.get("stroke") for line in lines}) == 3
    first, last = ys(lines[-1])
    assert first < last  # down the page: the y of an SVG grows downwards


def test_names_of_users_are_text() -> None:
    picture = learning_curves([Curve(1, "finished", [(1, 1.0), (2, 2.0)])], '"><script>alert(1)</script>\x1b[2J')
    assert not [one for one in ElementTree.fromstring(picture).iter() if "script" in one.tag]
    assert "\x1b" not in picture


@pytest.mark.parametrize("points", [[], [(1, math.nan)], [(math.inf, math.inf)]])
def test_without_a_finite_point_there_is_no_picture(points: list[tuple[float, float]]) -> None:
    assert learning_curves([Curve(1, "running", points)], "loss") == ""
    assert best_so_far([(1, value, "finished") for _, value in points], "x", "min") == ""


def test_one_value_is_a_dot_and_what_is_not_finite_is_left_out() -> None:
    picture = learning_curves([Curve(1, "running", [(1, 5.0)]), Curve(2, "finished", [(1, math.inf), (2, 5.0)])], "x")
    assert picture.count("<circle") == 2
    assert "nan" not in picture
    assert "inf" not in picture


def test_a_trial_that_diverged_does_not_squeeze_the_others() -> None:
    good = [Curve(k, "finished", [(step, k - 5 + 0.1 * step) for step in range(20)]) for k in range(10)]
    lines = lines_of(learning_curves([*good, Curve(99, "failed", [(0, 1.0), (1, -1e30)])], "loss"))
    assert sorted(max(ys(line)) - min(ys(line)) for line in lines)[3] > 10


def test_what_spans_orders_of_magnitude_has_a_logarithmic_axis() -> None:
    picture = learning_curves([Curve(1, "finished", [(step, 10.0**-step) for step in range(5)])], "loss")
    assert "loss (log)" in picture
    steps = [after - before for before, after in itertools.pairwise(ys(lines_of(picture)[0]))]
    assert max(steps) - min(steps) < 0.3


@pytest.mark.parametrize(("mode", "is_up"), [("min", False), ("max", True)])
def test_the_history_follows_the_best_until_then(mode: str, is_up: bool) -> None:
    values = [(0, 3.0, "finished"), (1, 5.0, "finished"), (2, 1.0, "stopped early"), (3, math.nan, "failed")]
    picture = best_so_far(values, "x", mode)
    found = ys(lines_of(picture)[0])
    assert (found[-1] < found[0]) == is_up
    assert picture.count("<circle") == 3


def test_of_what_is_long_or_many_a_few_are_drawn_the_ends_among_them() -> None:
    (line,) = lines_of(learning_curves([Curve(1, "finished", [(k, math.sin(k)) for k in range(10_000)])], "x"))
    pairs = (line.get("points") or "").split()
    assert len(pairs) <= 60
    assert (pairs[0].split(",")[0], pairs[-1].split(",")[0]) == ("64.0", "472.0")
    assert best_so_far([(k, float(k % 97), "finished") for k in range(10_000)], "x", "min").count("<circle") <= 400
