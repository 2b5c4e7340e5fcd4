"""The learning curves of a running sweep."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sweep.core.plan import Plan
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial
from sweep.display.curves import LiveCurves
from sweep.display.state import ViewState
from sweep.display.svg import learning_curves


def view_of(*trials: int, **status: Any) -> ViewState:
    view = ViewState(Plan(metric="loss", mode="min"), None)
    for number in trials:
        result = TrialResult({"loss": abs(number - 7)})
        view.update(0.0, Trial(f"a_{number:05d}", {}, Resources(), last_result=result, **status))
    return view


def points(curves: LiveCurves) -> Any:
    return curves.shown(view_of(0))[0].points


def reported(*steps: Any) -> LiveCurves:
    curves = LiveCurves()
    for step in steps:
        curves.add(0, step, 10.0 * step)
    return curves


@pytest.mark.parametrize("value", [None, "high", math.nan, math.inf, object()])
def test_what_is_no_finite_number_is_not_drawn(value: Any) -> None:
    curves = LiveCurves()
    curves.add(0, 1, value)
    curves.add(0, value, 2.0)  # a step of the user's own that is none: it is counted
    assert points(curves) == [(1.0, 2.0)]


def test_a_trial_that_goes_on_from_a_checkpoint_is_one_line() -> None:
    assert [x for x, _ in points(reported(1, 2, 3, 2, 3))] == [1.0, 2.0, 3.0]


def test_a_long_trial_has_few_points_its_first_and_last_among_them() -> None:
    found = points(reported(*range(1, 10_001)))
    assert len(found) <= 121
    assert (found[0][0], found[-1][0]) == (1.0, 10_000.0)


def test_of_many_trials_those_that_run_the_last_and_the_best_are_shown_and_others_are_forgotten() -> None:
    curves, view = LiveCurves(), view_of(*range(500), status=Status.TERMINATED)
    for trial in range(500):
        curves.add(trial, 1, 1.0)
    view.update(1.0, Trial("a_00002", {}, Resources(), Status.RUNNING))
    shown = curves.shown(view)
    found = {curve.trial: curve.style for curve in shown}
    assert found == {2: "running", 7: "best"} | dict.fromkeys(range(440, 500), "finished")
    assert learning_curves(shown, "loss").count("<circle") == len(found)
