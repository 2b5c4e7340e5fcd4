"""Tests of independent draws beyond the contract that every searcher keeps."""

from __future__ import annotations

import numpy as np
import pytest

from searchers import EXHAUSTED, RandomSearch, SearchError, grid_search, sample_from, uniform


def suggestions(searcher, number):
    return [searcher.suggest(f"t{n}") for n in range(number)]


def test_more_samples_leave_the_earlier_ones_as_they_were():
    short, long = RandomSearch(), RandomSearch()
    short.set_search_properties("loss", "min", {"x": uniform(0, 1)}, num_samples=3)
    long.set_search_properties("loss", "min", {"x": uniform(0, 1)}, num_samples=6)
    first = suggestions(short, 3)
    assert suggestions(long, 6)[:3] == first
    assert short.suggest("t3") is EXHAUSTED
    short.set_search_properties("loss", "min", {"x": uniform(0, 1)}, num_samples=4)
    assert short.suggest("t3") == long.suggest("t3")


def test_a_function_that_answers_differently_each_time_is_called_once_per_trial():
    rng = np.random.default_rng(0)
    search = RandomSearch({"x": sample_from(lambda: rng.random())})
    assert search.suggest("a") == search.suggest("a")


def test_a_trial_that_ended_is_forgotten():
    search = RandomSearch({"x": uniform(0, 1)})
    for n in range(100):
        search.suggest(f"t{n}")
        search.on_trial_complete(f"t{n}", {"loss": 1})
    search.suggest("t0")
    assert search.get_state()["count"] == 101  # else "t0" had been answered as before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomSearch({"a": grid_search([1, 2])}), "a is a grid_search over 2 values; RandomSearch"),
        (lambda: RandomSearch(seed=-1), "seed is -1"),
        (lambda: RandomSearch(points_to_evaluate={"x": 1}), "expected a list of configs"),
        (lambda: RandomSearch(points_to_evaluate=[3]), "expected dicts"),
        (lambda: RandomSearch({"x": 1}, points_to_evaluate=[{"y": 1}]), "names 'y'"),
        (lambda: RandomSearch([1]), "expected a dict"),
        (lambda: RandomSearch().suggest("a"), "has no space"),
        (lambda: RandomSearch().set_search_properties(None, None, {}, num_samples=-1), "num_samples is -1"),
        (lambda: RandomSearch().set_search_properties(None, None, {"a": grid_search([1, 2])}), "cannot cross a grid"),
        (lambda: RandomSearch({"x": 1}).observe({"x": 1}, {"loss": 1}), "cannot learn"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(SearchError, match=message):
        make()
