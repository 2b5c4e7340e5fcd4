"""Which values must be numbers, and what is said of one that is none."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from sweep.core import reports
from sweep.core.plan import Plan
from sweep.core.results import TrialResult

PLAN = Plan(required=("loss", "eval/acc"), numbers=("training_iteration", "eval/step", "speed"))
LONG = "1" + "0" * 400


def fault(plan=PLAN, **metrics):
    return reports.fault(plan, TrialResult(metrics), metrics)[0]


@pytest.mark.parametrize(
    "value", [0.5, 1, True, None, float("nan"), float("-inf"), 10**308, np.float32(1.5), np.longdouble(1)]
)
def test_numbers_that_a_float_holds_are_none_and_missing_ones_pass(value):
    metrics = {"loss": value, "eval": {"acc": value, "step": value}, "training_iteration": value, "speed": value}
    assert fault(**metrics) == fault(loss=value) == fault(hostname="h") == fault() == ""


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"loss": "0.3"}, "the metric 'loss' is '0.3', a str; expected a number"),
        ({"loss": "7" * 308}, "the metric 'loss' is '" + "7" * 59 + "..., a str; expected a number"),
        (
            {"loss": 10**400},
            "the metric 'loss' is '1"
            + "0" * 58
            + "..., a whole number of 401 digits; expected a number that a float holds",
        ),
        (
            {"eval/acc": "-" + LONG},
            "the metric 'eval/acc' is '-1"
            + "0" * 57
            + "..., a whole number of 401 digits; expected a number that a float holds",
        ),
        ({"loss": 10**5000}, "the metric 'loss' is 'a whole number of about 5,001 digits', a str; expected a number"),
        ({"eval": {"acc": [1]}}, "the metric 'eval/acc' is [1], a list; expected a number"),
        (
            {"loss": {"a": {"b": 1}, "k" * 100: 2}},
            "the metric 'loss' is {'a': {'b': 1}, '" + "k" * 43 + "..., a dict; expected a number. Name one of "
            f"'loss/a/b', 'loss/{'k' * 55}'",
        ),
        ({"loss": date(2024, 1, 1)}, "the metric 'loss' is datetime.date(2024, 1, 1); expected a number"),
        ({"loss": {}}, "the metric 'loss' is {}, a dict; expected a number"),
        ({"training_iteration": "3"}, "the reported 'training_iteration' is '3', a str; expected a number"),
        ({"training_iteration": [3]}, "the reported 'training_iteration' is [3], a list; expected a number"),
        ({"speed": {"a": 1}}, "the reported 'speed' is {'a': 1}, a dict; expected a number"),
        ({"eval": {"step": "x"}}, "the reported 'eval/step' is 'x', a str; expected a number"),
        (
            {"speed": 10**400},
            "the reported 'speed' is '1"
            + "0" * 58
            + "..., a whole number of 401 digits; expected a number that a float holds",
        ),
        ({"a": "x", "speed": "y", "loss": 0.5}, "the reported 'speed' is 'y', a str; expected a number"),
        ({"loss": "x", "speed": "y"}, "the metric 'loss' is 'x', a str; expected a number"),
    ],
    ids=lambda value: "",  # pytest itself cannot print them all
)
def test_what_is_no_number_is_named_with_what_was_expected(metrics, says):
    assert fault(**metrics) == says


def test_other_keys_may_be_anything():
    assert fault(a="x", b=[1], c={"speed": "x"}, d=10**400, hostname="h", loss=1.0) == ""
