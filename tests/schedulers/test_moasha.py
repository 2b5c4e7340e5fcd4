"""MOASHA: who is stopped by several objectives, and the order of fronts compared with the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conformance.schedulers import Told, tid
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.messages import StopTrial
from sweep.errors import ConfigError
from sweep.schedulers.moasha import MOASHAScheduler, ParetoOrder


def moasha(metric=("a", "b"), mode=("max", "max"), *, seed=0, num_trials=0, **arguments):
    scheduler = MOASHAScheduler(**{"max_t": 100, "reduction_factor": 2, **arguments})
    scheduler.set_search_properties(list(metric), list(mode), seed=seed)
    return Told(scheduler, num_trials)


def stopped(told, points, **more):
    """Report one point per new trial at its first rung; returns the numbers of those that are stopped."""
    found = []
    first = len(told.trials)
    for number, (a, b) in enumerate(points, first):
        told.add(number)
        if told.report(number, a=a, b=b, **more):
            found.append(number)
    return found


def test_trials_that_others_dominate_are_stopped():
    told = moasha()
    points = [(1, 1), (2, 0), (0, 2), (0.5, 0.5), (3, 3), (0.9, 0.9), (2.5, 2.5)]
    assert stopped(told, points) == [3, 5]
    (decision,) = told.answers[3]
    assert decision == StopTrial(tid(3), "stopped early: a=0.5, b=0.5 at 1 is not among the best 1/2 of 4")
    assert told.scheduler.num_stopped == 2


def test_on_one_front_those_far_from_the_others_go_on():
    told = moasha(reduction_factor=3)
    ends = [(0.0, 1.0), (1.0, 0.0)]
    assert stopped(told, [*ends, (0.5, 0.5)]) == [2]  # one may be before it, and both ends are
    assert stopped(told, [(0.4, 0.6), (0.6, 0.4)]) == [3, 4]
    assert stopped(told, [(1.5, -0.5), (-0.5, 1.5)]) == []  # new ends


@pytest.mark.parametrize("place", [0, 1])
def test_nan_in_any_objective_stops_and_counts(place):
    told = moasha(reduction_factor=4)
    point = [0.5, 0.5]
    point[place] = math.nan
    assert stopped(told, [point, point, point, (0, 0)]) == [0, 1, 2]
    assert told.scheduler.state()[0][-1][2] == [[(0.0, 0.0)]]
    assert stopped(told, [(-1, -1), (-1, -1), (-1, -1)]) == [5, 6]  # one may be before a newcomer of five to seven
    assert "no number" not in told.answers[0][0].reason


def test_a_result_without_one_of_the_objectives_decides_nothing():
    told = moasha(num_trials=1)
    for values in ({"a": 1}, {"b": 1}, {}, {"a": 1, "b": 2, "training_iteration": math.nan}):
        assert not told.report(0, **values)
    assert told.scheduler.state()[0][-1][1] == []


# --- objectives -------------------------------------------------------------------------------------------------------


AB = {"metric": ["a", "b"], "mode": ["min", "max"]}


@pytest.mark.parametrize(
    ("given", "to_run", "modes"),
    [
        (AB, (None, None), ("min", "max")),
        (AB, (["a", "b"], ["min", "max"]), ("min", "max")),
        (AB, ("a", "min"), ("min", "max")),
        (AB, ("a", None), ("min", "max")),
        ({"mode": ["min", "max"]}, (["a", "b"], None), ("min", "max")),
        ({}, (["a", "b"], None), ("max", "max")),
        ({}, (["a", "b"], "min"), ("min", "min")),  # one mode stands for all
    ],
)
def test_objectives_may_be_given_here_or_to_the_run(given, to_run, modes):
    scheduler = MOASHAScheduler(**given)
    scheduler.set_search_properties(*to_run)
    assert (scheduler.metrics, scheduler.modes) == (("a", "b"), modes)
    assert (scheduler.metric, scheduler.mode) == ("a", modes[0])


@pytest.mark.parametrize("given_to_run", [(["b", "a"], None), ("c", None), (["a", "b"], "max"), ("a", "max")])
def test_other_objectives_of_the_run_are_refused(given_to_run):
    scheduler = MOASHAScheduler(**AB)
    with pytest.raises(ConfigError, match="give them in one place"):
        scheduler.set_search_properties(*given_to_run)


@pytest.mark.parametrize("metric", [None, "a", ["a"]])
def test_fewer_than_two_objectives_are_refused(metric):
    with pytest.raises(ConfigError, match="two objectives or more"):
        MOASHAScheduler().set_search_properties(metric, None)


# --- the order of fronts ----------------------------------------------------------------------------------------------


def naive_fronts(points):
    left, fronts = list(points), []
    while left:
        front = [p for p in left if not any(all(x >= y for x, y in zip(q, p, strict=True)) and q != p for q in left)]
        fronts.append(sorted(front))
        left = [p for p in left if p not in front]
    return fronts


def naive_net(points):
    """Return the points as an epsilon net takes them; distances of objectives scaled by their range."""
    array = np.array(points, dtype=float)
    low, high = array.min(axis=0), array.max(axis=0)
    array = (array - low) / np.where(high > low, high - low, 1)
    taken = [int(np.argmax(array[:, 0]))]
    while len(taken) < len(points):
        left = [i for i in range(len(points)) if i not in taken]
        distances = [min(float(((array[i] - array[j]) ** 2).sum()) for j in taken) for i in left]
        taken.append(left[int(np.argmax(distances))])
    return taken


def naive_is_best(points, newcomer, eta):
    most = int((len(points) + 1) / eta)
    before = 0
    for front in naive_fronts([*points, newcomer]):
        if newcomer not in front:
            before += len(front)
            continue
        others = list(front)
        others.remove(newcomer)
        if before > most or before + len(front) <= most + 1:
            return before <= most
        return before + naive_net([*others, newcomer]).index(len(others)) <= most
    raise AssertionError


whole = st.integers(0, 6).map(float)
fine = st.floats(0, 1, allow_nan=False)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("values", [whole, fine], ids=["with ties", "without"])
@pytest.mark.parametrize("eta", [2, 4])
def test_newcomers_are_judged_as_if_all_were_sorted_anew(number, values, eta):
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(*[values] * number), max_size=40))
    def check(points):
        order = ParetoOrder(eta)
        for n, point in enumerate(points):
            assert (order.judge(point) is None) is naive_is_best(points[:n], point, eta), (n, point)
        assert order.state() == naive_fronts(points)

    check()


def test_infinities_are_in_order_too():
    order = ParetoOrder(2)
    points = [(math.inf, 0.0), (-math.inf, 1.0), (0.0, math.inf), (-math.inf, -math.inf), (math.inf, math.inf)]
    assert [order.judge(point) is None for point in points] == [True, True, True, False, True]
    assert order.state()[0] == [(math.inf, math.inf)]
