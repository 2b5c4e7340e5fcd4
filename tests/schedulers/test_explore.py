"""How a config is changed: each kind of mutation, its bounds, its types, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from searchers.space import choice, grid_search, loguniform, qrandint, quniform, randint, randn, sample_from, uniform
from sweep.errors import ConfigError
from sweep.schedulers.explore import checked_mutations, complete_config, customised, explore, quantile_size


def explored(config, mutations, *, times=400, chance=0.0, factors=(1.2, 0.8)):
    """Return what becomes of a config in many draws."""
    rng = np.random.default_rng(5)
    checked = checked_mutations(mutations)
    return [explore(config, checked, rng, chance, factors) for _ in range(times)]


def values(config, mutations, key="x", **options):
    return {new[key] for new in explored(config, mutations, **options)}


@pytest.mark.parametrize(
    ("num_trials", "sizes"),
    [(2, (1, 1, 1)), (3, (1, 1, 1)), (4, (1, 2, 1)), (5, (2, 2, 1)), (8, (2, 4, 1)), (10, (3, 5, 1))],
)
def test_the_quantiles_are_those_of_tune(num_trials, sizes):
    assert tuple(quantile_size(num_trials, fraction) for fraction in (0.25, 0.5, 0.1)) == sizes


def test_a_fraction_of_nothing_is_nobody_and_a_product_is_not_rounded_up_by_its_last_bit():
    assert quantile_size(10, 0.0) == 0
    assert quantile_size(100, 0.07) == 7


@pytest.mark.parametrize(
    ("start", "options", "expected"),
    [
        (2, [1, 2, 3], {1, 3}),
        (1, [1, 2, 3], {1, 2}),
        (3, (1, 2, 3), {2, 3}),
        (9, [1, 2, 3], {1, 2, 3}),
        ("b", choice(["a", "b", "c"]), {"a", "c"}),
        (True, [1, True], {1}),
        (7, [7], {7}),
    ],
)
def test_a_listed_value_moves_to_a_neighbour_and_an_unlisted_one_is_drawn(start, options, expected):
    assert values({"x": start}, {"x": options}) == expected


def test_a_number_is_multiplied_by_one_of_the_factors():
    assert values({"x": 0.5}, {"x": lambda: 99.0}) == {0.5 * 1.2, 0.5 * 0.8}
    assert values({"x": 0.5}, {"x": uniform(0, 1)}, factors=(2.0,)) == {1.0}
    assert values({"x": np.float64(0.5)}, {"x": lambda: 99.0}, factors=(2.0,)) == {1.0}


@pytest.mark.parametrize(
    ("start", "spec", "expected"),
    [
        (0.9, uniform(0, 1), {1.0, 0.9 * 0.8}),
        (1.1e-4, loguniform(1e-4, 1e-1), {1e-4, 1.1e-4 * 1.2}),
        (10, randint(1, 12), {11, 8}),
        (1, randint(1, 12), {1}),
        (32, randint(1, 100), {38, 25}),
        (10, qrandint(0, 100, 4), {12, 8}),
        (0.5, quniform(0, 1, 0.25), {0.5}),
        (10.0, randn(), {12.0, 8.0}),
        (10, uniform(0, 100), {12, 8}),
        (32, lambda: 1, {38, 25}),  # an int stays an int, cut off
    ],
)
def test_a_domain_keeps_its_bounds_its_steps_and_its_type(start, spec, expected):
    found = values({"x": start}, {"x": spec})
    assert found == expected
    assert {type(value) for value in found} == {type(start)}


@pytest.mark.parametrize("start", ["relu", None, True, math.nan, math.inf])
def test_what_is_no_number_is_drawn_anew(start):
    assert values({"x": start}, {"x": lambda: 7}) == {7}


def test_nested_values_change_in_place_and_the_rest_stays():
    leaf = object()
    config = {"lr": 1.0, "net": {"width": 2, "depth": 3, "act": leaf}, "list": [{"a": 1}]}
    (new,) = explored(config, {"net": {"width": [1, 2]}}, times=1, chance=1.0)
    assert new["net"]["width"] in (1, 2)
    assert new["net"]["act"] is leaf
    assert {**new, "net": {**new["net"], "width": 2}} == config
    new["net"]["depth"] = 4
    new["list"][0]["a"] = 2
    assert config["net"]["depth"] == 3
    assert config["list"] == [{"a": 1}]


def test_what_a_config_lacks_is_drawn():
    (new,) = explored({}, {"x": [5], "net": {"width": lambda: 3}}, times=1)
    assert new == {"x": 5, "net": {"width": 3}}


def test_custom_explore_fn_has_the_last_word():
    assert customised({"x": 1}, None) == {"x": 1}
    assert customised({"x": 1}, lambda config: {"y": config["x"]}) == {"y": 1}
    with pytest.raises(ConfigError, match="custom_explore_fn returned None; expected the config to use"):
        customised({"x": 1}, lambda config: None)


def test_a_config_is_completed_with_what_it_lacks():
    mutations = checked_mutations({"x": uniform(0, 1), "y": [4], "net": {"w": lambda: 3, "d": [2]}})
    config = {"x": 9.0, "net": {"d": 7}, "z": 1}
    completed = complete_config(config, mutations, np.random.default_rng(0))
    assert completed == {"x": 9.0, "y": 4, "net": {"d": 7, "w": 3}, "z": 1}
    assert config == {"x": 9.0, "net": {"d": 7}, "z": 1}


@pytest.mark.parametrize(
    ("mutations", "words"),
    [
        ({"x": 3}, "hyperparam_mutations['x'] is 3; expected a list of values"),
        ({"x": "abc"}, "hyperparam_mutations['x'] is 'abc'"),
        ({"x": []}, "hyperparam_mutations['x'] is empty"),
        ({"x": sample_from(lambda config: 1)}, "hyperparam_mutations['x'] is sample_from"),
        ({"x": grid_search([1, 2])}, "hyperparam_mutations['x'] is a grid; give the list itself: [1, 2]"),
        ({"net": {"x": None}}, "hyperparam_mutations['net']['x'] is None"),
        ([("x", 1)], "hyperparam_mutations is [('x', 1)]; expected a dict"),
    ],
)
def test_what_cannot_be_a_mutation_is_named(mutations, words):
    with pytest.raises(ConfigError) as error:
        checked_mutations(mutations)
    assert words in str(error.value)
