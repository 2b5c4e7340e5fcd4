"""HyperBandForBOHB: brackets from large to small, decisions compared as a whole, sweeps with BOHB in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
from conformance.schedulers import Told
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_run import given_configs, in_virtual_time, new_sweep

from searchers.bohb_search import BOHBSearch
from searchers.space import uniform
from sweep.engines.simulator import Point
from sweep.schedulers.hyperband import HyperBandForBOHB, HyperBandScheduler


def told_of(num_trials, **arguments):
    scheduler = HyperBandForBOHB(**{"max_t": 9, **arguments})
    scheduler.set_search_properties("m", "max")
    return Told(scheduler, num_trials)


def test_the_largest_bracket_is_filled_first():
    told = told_of(9 + 5 + 3 + 1)
    assert [num_taken for _, _, num_taken, _ in told.scheduler.state()] == [9, 5, 3, 1]
    small_first = HyperBandScheduler(max_t=9)
    for trial in told.trials.values():
        small_first.on_trial_add(trial)
    assert [num_taken for _, _, num_taken, _ in small_first.state()] == [3, 5, 9, 1]


@pytest.mark.parametrize(
    ("max_t", "factor", "expected"),
    [
        (81, 3, (1, 3, 9, 27, 81)),
        (100, 3, (1, 3, 9, 27, 81)),  # the other brackets have 11, 33 and 99 or 100: later, and of the same budget
        (100, 4, (1, 4, 16, 64)),
        (16, 2, (1, 2, 4, 8, 16)),
        (6, 3, (2, 6)),
        (1, 3, (1,)),
    ],
)
def test_the_milestones_are_those_of_the_largest_bracket(max_t, factor, expected):
    assert HyperBandForBOHB(max_t=max_t, reduction_factor=factor).milestones == expected


@given(st.floats(1, 3000), st.floats(1.2, 10))
@settings(max_examples=60, deadline=None)
def test_a_searcher_with_the_same_numbers_has_the_same_budgets(max_t, factor):
    scheduler = HyperBandForBOHB(max_t=max_t, reduction_factor=factor)
    assert BOHBSearch(max_t=max_t, reduction_factor=factor).budgets == scheduler.milestones
    search = BOHBSearch()
    search.set_budgets(scheduler.milestones)
    assert search.budgets == scheduler.milestones


# --- sweeps in virtual time ------------------------------------------------------------------------------------------


def steps_of(searcher, num_trials, *, cpus=1):
    """Run a sweep whose trials report their x at every step; returns their configs and how far they came."""

    def curve(config, done):
        for _ in range(done, 9):
            yield Point(1.0, {"m": config["x"]}, has_checkpoint=True)

    ahead = 1 if searcher.is_adaptive else 4
    sweep = new_sweep(told_of(0).scheduler, num_trials=num_trials, ask_ahead=ahead, mode="max")
    in_virtual_time(sweep, curve, searcher, cpus=cpus)
    trials = sweep.trials.values()
    return [trial.config["x"] for trial in trials], [trial.last_result["training_iteration"] for trial in trials]


@pytest.mark.parametrize("cpus", [1, 4])
def test_a_band_spends_what_the_table_says_largest_bracket_first(cpus):
    configs = given_configs([{"x": (7 * i) % 17} for i in range(17)])
    _, steps = steps_of(configs, 17, cpus=cpus)
    assert Counter(steps[:9]) == {1: 6, 3: 2, 9: 1}
    assert Counter(steps[9:14]) == {3: 3, 9: 2}
    assert steps[14:] == [9, 9, 9]
    best = max(range(9), key=lambda i: (7 * i) % 17)
    assert steps[best] == 9


def test_bohb_learns_from_the_short_trials_before_it_suggests_more():
    search = BOHBSearch({"x": uniform(0, 1)}, metric="m", mode="max", seed=1, max_t=9)
    xs, _ = steps_of(search, 68)
    assert sum(xs[:4]) / 4 < 0.7
    assert sum(xs[34:]) / 34 > 0.75  # a third of them is random


def test_a_limit_below_the_bracket_does_not_stall_the_sweep():
    """Nobody says here which trials are paused, so they count: the brackets are closed with what they have."""
    search = BOHBSearch({"x": uniform(0, 1)}, metric="m", mode="max", seed=1, max_t=9, max_concurrent=4)
    xs, steps = steps_of(search, 12, cpus=8)
    assert len(xs) == 12
    assert max(steps) == 9
