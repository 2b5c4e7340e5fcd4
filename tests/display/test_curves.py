"""The learning curves of a running sweep."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sweep.display.curves import LiveCurves


def shown(curves: LiveCurves, best: int | None = None) -> dict[int, Any]:
    return {curve.trial: curve for curve in curves.shown(best)}


def test_what_a_trial_reported_is_drawn_with_its_fate() -> None:
    curves = LiveCurves()
    for trial, fate in enumerate(("running", "stopped early")):
        curves.put(trial, "running", None)
        for step in (1, 2):
            curves.add(trial, step, float(step))
        curves.put(trial, fate, 0)
    found = shown(curves, best=0)
    assert found[0].points == [(1.0, 1.0), (2.0, 2.0)]
    assert [found[0].style, found[1].style] == ["best", "stopped early"]


@pytest.mark.parametrize("value", [None, "high", math.nan, math.inf, object()])
def test_what_is_no_finite_number_is_not_drawn(value: Any) -> None:
    curves = LiveCurves()
    curves.put(0, "running", None)
    curves.add(0, 1, value)
    curves.add(0, value, 2.0)  # a step of the user's own that is none: it is counted
    assert shown(curves)[0].points == [(1.0, 2.0)]


def test_a_trial_that_goes_on_from_a_checkpoint_is_one_line() -> None:
    curves = LiveCurves()
    curves.put(0, "running", None)
    for step in (1, 2, 3, 2, 3):
        curves.add(0, step, 10.0 * step)
    assert [x for x, _ in shown(curves)[0].points] == [1.0, 2.0, 3.0]


def test_a_long_trial_has_few_points_its_first_and_last_among_them() -> None:
    curves = LiveCurves()
    curves.put(0, "running", None)
    for step in range(1, 10_001):
        curves.add(0, step, 1 / step)
    points = shown(curves)[0].points
    assert len(points) <= 121
    assert (points[0][0], points[-1][0]) == (1.0, 10_000.0)


def test_of_many_trials_those_that_run_the_last_and_the_best_are_kept() -> None:
    curves = LiveCurves()
    curves.put(1_000, "running", None)
    curves.add(1_000, 1, 1.0)
    for trial in range(500):
        curves.add(trial, 1, 1.0)
        curves.put(trial, "finished", 7)
    for trial in range(100):
        curves.add(trial, 2, 1.0)  # heard of late
    found = shown(curves, best=7)
    assert {7, 499, 1_000} <= found.keys()
    assert len(found) < 60
    assert len(shown(curves, best=7)) == len(found)


def test_a_trial_that_is_tried_again_runs_again() -> None:
    curves = LiveCurves()
    curves.add(0, 1, 1.0)
    curves.put(0, "failed", None)
    curves.put(0, "running", None)
    assert shown(curves)[0].state == "running"
    curves.put(0, "finished", None)
    assert shown(curves)[0].state == "finished"
