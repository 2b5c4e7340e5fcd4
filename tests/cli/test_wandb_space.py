"""The parameters of a sweep file of W&B: every distribution, their defaults, slips, and the grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import searchers
from searchers.space import LogNormal, Normal
from sweep.cli.wandb_space import DISTRIBUTIONS, space_of


def domain(is_grid: bool = False, **given: Any) -> Any:
    space, mistakes = space_of({"x": given}, is_grid=is_grid)
    assert mistakes == []
    return space["x"]


def wrong(is_grid: bool = False, **given: Any) -> str:
    ((where, what),) = space_of({"x": given}, is_grid=is_grid)[1]
    assert where == ("x",)
    return what


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_every_distribution_can_be_written(kind: str) -> None:
    numbers = {"min": 1, "max": 4, "q": 1, "mu": 0, "sigma": 1, "a": 2, "b": 2, "value": 3, "values": [1]}
    given = {name: numbers[name] for name in DISTRIBUTIONS[kind][0] if name in numbers}
    assert domain(distribution=kind, **given) is not None
    assert wrong(distribution=kind, vlue=1).startswith(f"{kind} takes ") or not {*given} - {
        "mu",
        "sigma",
        "a",
        "b",
        "q",
    }


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"distribution": "inv_log_uniform", "min": 2, "max": 5}, searchers.loguniform(np.exp(-5.0), np.exp(-2.0))),
        ({"distribution": "inv_log_uniform_values", "min": 0.9, "max": 1}, searchers.loguniform(0.9, 1)),
        ({"distribution": "q_log_uniform_values", "min": 9.5, "max": 3000.5}, searchers.qlograndint(10, 3000, 1)),
        ({"distribution": "q_log_uniform", "min": 0, "max": 5, "q": 4}, searchers.qlograndint(4, 148, 4)),
        ({"distribution": "q_uniform", "min": 1, "max": 10, "q": 4}, searchers.qrandint(0, 8, 4)),
        ({"distribution": "q_uniform", "min": 0, "max": 1, "q": 0.25}, searchers.quniform(0.0, 1.0, 0.25)),
        ({"distribution": "q_uniform", "min": 0.1, "max": 0.5, "q": 0.1}, searchers.quniform(0.1, 0.5, 0.1)),
        ({"distribution": "int_uniform", "min": 1.0, "max": 3.0}, searchers.randint(1, 4)),
        ({"min": 1, "max": 10.5}, searchers.uniform(1, 10.5)),
        ({"min": 1, "max": 1}, searchers.randint(1, 2)),
        ({"mu": 1, "sigma": 2}, searchers.Float(-5.0, 7.0).normal(1, 2)),
        ({"values": [None, True, "a", 1, 1.5, [64, 64], {"a": 1}]},
         searchers.choice([None, True, "a", 1, 1.5, [64, 64], {"a": 1}])),
    ],
)  # fmt: skip
def test_distributions_mean_the_same_as_for_w_and_b(given: dict[str, Any], meant: Any) -> None:
    assert repr(domain(**given)) == repr(meant)


def test_unbounded_distributions_end_at_three_deviations_so_that_a_model_can_search_them() -> None:
    normal = domain(distribution="normal", mu=2, sigma=0.5)
    assert (normal.lower, normal.upper, normal.sampler) == (0.5, 3.5, Normal(2, 0.5))
    lognormal = domain(distribution="log_normal", sigma=0.1)
    assert (lognormal.lower, lognormal.sampler) == (np.exp(-0.1 * 3), LogNormal(0, 0.1))
    whole = domain(distribution="q_normal", mu=10, sigma=4, q=2)
    assert {type(one) for one in whole.sample(size=50, random_state=1).tolist()} == {int}
    for kind in ("normal", "log_normal", "q_normal", "q_log_normal", "beta", "q_beta"):
        space = {"x": domain(distribution=kind)}
        search = searchers.create_searcher("tpe", space=space, metric="loss", mode="min", seed=0)
        for number in range(12):
            value = search.suggest(str(number))["x"]
            assert space["x"].is_valid(value)
            search.on_trial_complete(str(number), {"loss": value})


def test_probabilities_weigh_the_options() -> None:
    weighted = domain(values=["a", "b", "c"], probabilities=[0.9, 0.1, 0])
    drawn = weighted.sample(size=1000, random_state=0)
    assert (drawn.count("c"), 850 < drawn.count("a") < 950) == (0, True)
    assert domain(is_grid=True, values=[1, 2], probabilities=[0.5, 0.5]) == searchers.grid_search([1, 2])
    assert "expected one each" in wrong(values=[1, 2], probabilities=[1])


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"values": [1, 2]}, [1, 2]),
        ({"min": 1, "max": 3}, [1, 2, 3]),
        ({"distribution": "q_uniform", "min": 0, "max": 8, "q": 4}, [0, 4, 8]),
        ({"distribution": "q_uniform", "min": 0.5, "max": 1.5, "q": 0.5}, [0.5, 1.0, 1.5]),
    ],
)
def test_the_grid_crosses_values_and_steps(given: dict[str, Any], values: list[Any]) -> None:
    assert domain(is_grid=True, **given) == searchers.grid_search(values)


def test_the_grid_refuses_ranges_without_steps_and_keeps_constants() -> None:
    assert domain(is_grid=True, value=[1, 2]) == [1, 2]
    assert wrong(is_grid=True, min=0.0, max=1.0).startswith("method grid needs values")
    assert wrong(is_grid=True, distribution="log_normal").startswith("method grid needs values")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"distribution": "q_log_uniform_values", "min": 1e-5, "max": 0.003}, "q=1 rounds all of 1e-05 to 0.003 to 0"),
        ({"distribution": "uniform", "min": 0}, "uniform takes min, max, found min."),
        ({"distribution": "normal", "sigma": -1}, "normal(mean=0, sd=-1): expected"),
        ({"distribution": "beta", "a": 0}, "a is 0; expected a finite number above 0."),
        ({"distribution": "q_uniform", "min": 0, "max": 1, "q": 0}, "q is 0; expected"),
        ({"distribution": "log_uniform_values", "min": -0.1, "max": 1}, "a log range begins at -0.1"),
        ({"values": "adam"}, "expected a list of at least one value"),
        ({"desc": 1}, "expected value, values, or min and max, found desc."),
        ({"value": 1, "vaules": [2]}, "unknown key 'vaules'. Did you mean 'values'?"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], what: str) -> None:
    assert what in wrong(**given)


def test_names_are_kept_as_they_are_and_nested_parameters_nest() -> None:
    given = {
        "a b": {"value": 1},
        "net/lr": {"value": 2},
        "x-y.z": {"value": 3},
        "n": {"parameters": {"w": {"value": 4}}},
    }
    assert space_of(given)[0] == {"a b": 1, "net/lr": 2, "x-y.z": 3, "n": {"w": 4}}


def test_keys_without_effect_are_collected_with_their_places() -> None:
    ignored: list[Any] = []
    inner = {"parameters": {"w": {"min": 0, "max": 1, "mu": 3}}}
    space_of({"n": inner, "o": {"values": [1], "min": 2}}, ("parameters",), ignored=ignored)
    assert ignored == [("parameters", "n", "parameters", "w", "mu"), ("parameters", "o", "min")]
