"""BOHBSearch: its densities by another route, what it learns from which budget, conditional spaces, restarts."""

from __future__ import annotations

import json
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import (
    NOT_NOW,
    BOHBSearch,
    Repeater,
    SearchError,
    SpaceError,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    uniform,
)
from searchers.bohb_search import _Axis, _Density
from searchers.space import Categorical, Domain, Float

LINE = {"x": uniform(0, 1)}


def search_of(space=None, *, mode="min", seed=7, budgets=(1, 3, 9), **arguments):
    given = {"metric": "m", "mode": mode, "seed": seed, "budgets": budgets, **arguments}
    return BOHBSearch(LINE if space is None else space, **given)


def bohb(space=None, config=None, **arguments):
    return search_of(space, bohb_config={"random_fraction": 0, **(config or {})}, **arguments)


def told(search, losses, time=1, *, ends=True):
    """Let trials report their losses; returns the configs that were suggested."""
    first = search._count
    configs = []
    for number, loss in enumerate(losses, first):
        configs.append(search.suggest(f"t{number}"))
        search.on_trial_result(f"t{number}", {"m": loss, "training_iteration": time})
        if ends:
            search.on_trial_complete(f"t{number}")
    return configs


def points_at(search, budget):
    """Return (number, loss) of what is known at a budget."""
    level = search._points_at.get(budget)
    return [] if level is None else [(number, loss) for number, loss, _ in level]


# --- densities -------------------------------------------------------------------------------------------------------


def reference_density(points, num_options, widths, place):
    """Return the density at one place by a sum over products, written down kernel by kernel."""
    total = 0.0
    for point in points:
        product = 1.0
        for at, mean, width, options in zip(place, point, widths, num_options, strict=True):
            if options:
                product *= 1 - width if at == mean else width / (options - 1)
            else:
                normal = statistics.NormalDist(mean, width)
                product *= normal.pdf(at) / (normal.cdf(1) - normal.cdf(0))
        total += product
    return total / len(points)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_a_density_is_the_mean_of_products_of_kernels(seed):
    rng = np.random.default_rng(seed)
    num_options = [int(k) for k in rng.choice([0, 0, 2, 3, 5], size=rng.integers(1, 5))]
    columns = [rng.integers(k, size=9) if k else rng.random(9) for k in num_options]
    points = np.array(columns, dtype=float).T
    density = _Density(points[:5], num_options, 1e-3)
    for place in points:
        expected = reference_density(points[:5], num_options, density.bandwidths, place)
        assert density.log_at(place[None])[0] == pytest.approx(math.log(expected))


# --- parameters as numbers -------------------------------------------------------------------------------------------


DOMAINS = [
    uniform(-1, 3),
    loguniform(1e-4, 1),
    quniform(-1, 1, 0.25),
    qloguniform(0.5, 8, 0.5),
    randint(-3, 4),
    randint(5, 6),
    qrandint(8, 64, 8),
    lograndint(1, 300),
    qlograndint(2, 100, 7),
    randn(2, 3),
    qrandn(0, 2, 0.5),
    Float(-1, 1).normal(0, 5),
    randint(0, 2**62),
    choice([1, "a", None]),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@pytest.mark.parametrize("position", [0.0, 1e-17, 0.3, 0.999999, 1.0])
def test_every_place_is_a_value_that_could_be_drawn(domain, position):
    axis = _Axis("x", domain)
    if isinstance(domain, Categorical):
        assert axis.value(position) in range(len(domain))
        return
    value = axis.value(position)
    assert domain.is_valid(value)
    assert type(value) is type(domain.draw(np.random.default_rng(1)))
    assert math.isfinite(value)


class Words(Domain):
    domain_str = "words"

    def draw(self, rng):
        return "word"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"x": grid_search([1, 2])}, "x is a grid_search over 2 values; BOHBSearch draws"),
        ({"x": Float(0, None)}, "expected a range with two finite bounds"),
        ({"x": Words()}, "BOHBSearch has ranges of numbers and choices only"),
        ([1], "the search space is a list"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(space, words):
    with pytest.raises(SpaceError, match=words):
        BOHBSearch().set_search_properties("m", "min", space)


# --- which results count ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "counted"),
    [
        ([1], {1: 1}),
        ([0.5], {}),
        ([1, 2], {1: 1}),
        ([1, 2, 3, 4, 9, 100], {1: 1, 3: 3, 9: 9}),
        ([4], {3: 4}),  # what lies between counts for the highest budget that it reached, and only for that
        ([4, 5], {3: 4}),
        ([1, 100], {1: 1, 9: 100}),
        ([9, 1, 3], {9: 9}),  # after a restart from an old checkpoint
        ([math.nan], {}),
        ([math.inf], {9: math.inf}),
        ([None, "3", True, 3], {3: 3}),
    ],
)
def test_the_first_result_at_a_budget_counts(times, counted):
    search = search_of()
    search.suggest("a")
    for time in times:
        value = time if isinstance(time, (int, float)) else 0
        result = {"m": value, "training_iteration": time}
        search.on_trial_result("a", {"m": value} if time is None else result)
    search.on_trial_complete("a", {"m": 77.0, "training_iteration": 50})
    assert {budget: points_at(search, budget) for budget in search._points_at} == {
        budget: [(0, float(value))] for budget, value in counted.items()
    }
    assert (search._open, search._reached, search._past) == ({}, {}, [])


@pytest.mark.parametrize(
    ("value", "loss"),
    [(0.5, 0.5), (math.nan, math.inf), (math.inf, math.inf), (-math.inf, math.inf), ("text", math.inf), (True, 1.0)],
)
def test_what_is_no_finite_number_is_the_worst(value, loss):
    search = search_of()
    told(search, [value])
    assert points_at(search, 1) == [(0, loss)]


@pytest.mark.parametrize(("reached", "counts_at"), [([], 1), ([1], 3), ([1, 3], 9), ([4], 9), ([1, 3, 9], None)])
def test_a_failure_is_the_worst_at_the_smallest_budget_that_was_not_reached(reached, counts_at):
    search = search_of()
    search.suggest("a")
    for time in reached:
        search.on_trial_result("a", {"m": 0.0, "training_iteration": time})
    search.on_trial_complete("a", None, error=True)
    search.on_trial_complete("a", None, error=True)
    worst = [(budget, one) for budget in search._points_at for one in points_at(search, budget) if one[1] == math.inf]
    assert worst == ([] if counts_at is None else [(counts_at, (0, math.inf))])


def test_means_of_repeats_count_for_the_largest_budget():
    search = search_of()
    repeated = Repeater(search, repeat=2)
    for trial_id in ("a", "b"):
        repeated.suggest(trial_id)
        repeated.on_trial_result(trial_id, {"m": 3.0, "training_iteration": 1})
    repeated.on_trial_complete("a", {"m": 1.0})
    repeated.on_trial_complete("b", {"m": 2.0})
    assert {budget: points_at(search, budget) for budget in search._points_at} == {9.0: [(0, 1.5)]}


def test_points_from_elsewhere_count_for_their_budget_or_the_largest():
    search = search_of()
    search.observe({"x": 0.5}, {"m": 1.0})
    search.observe({"x": 0.5}, {"m": 2.0, "training_iteration": 5})
    search.observe({"x": 0.5}, {"m": 3.0, "training_iteration": 0})
    search.observe({"x": 0.5}, {"training_iteration": 1})
    search.add_evaluated_point({"x": 0.25}, 4.0)
    assert {budget: points_at(search, budget) for budget in search._points_at} == {
        9.0: [(-1, 1.0), (-1, 4.0)],
        3.0: [(-1, 2.0)],
        1.0: [(-1, math.inf)],
    }
    with pytest.raises(SpaceError):
        search.observe({"x": 7}, {"m": 1.0})


# --- the model -------------------------------------------------------------------------------------------------------


def model_points(search):
    model = search._model()
    return None if model is None else tuple(density.points[:, 0].tolist() for density in model)


def fed(losses_of, budgets=(1, 3, 9), **config):
    """Return a search that was told points by observe: {budget: [(x, loss)]}."""
    search = bohb(config=config, budgets=budgets)
    for budget, points in losses_of.items():
        for x, loss in points:
            search.observe({"x": x}, {"m": loss, "training_iteration": budget})
    return search


def test_the_largest_budget_with_enough_points_has_the_model():
    few = [(0.1, 1.0), (0.2, 2.0), (0.3, 3.0)]
    enough = [*few, (0.4, 0.5)]
    low = [(one + 0.5, loss) for one, loss in enough]
    assert model_points(fed({1: few})) is None
    assert model_points(fed({1: enough})) == ([0.4, 0.1], [0.2, 0.3])
    assert model_points(fed({1: low, 3: enough, 9: few})) == ([0.4, 0.1], [0.2, 0.3])
    assert model_points(fed({1: low, 3: few, 9: few})) == ([0.9, 0.6], [0.7, 0.8])
    assert model_points(fed({1: low, 9: enough})) == ([0.4, 0.1], [0.2, 0.3])


def test_the_good_are_the_best_fifteen_percent_but_enough_of_them():
    ranked = [(i / 100, float(i)) for i in range(40)]
    good, bad = model_points(fed({1: ranked[::-1]}))
    assert good == [x for x, _ in ranked[:6]]
    assert sorted(bad) == [x for x, _ in ranked[6:]]
    assert len(model_points(fed({1: ranked}, top_n_percent=50))[0]) == 20
    assert len(model_points(fed({1: ranked}, min_points_in_model=13))[0]) == 13
    assert model_points(fed({1: ranked}, min_points_in_model=21)) is None
    assert len(model_points(fed({1: ranked}, min_points_in_model=1, top_n_percent=1))[0]) == 2  # one more than x


def test_only_finite_results_are_good():
    nan = math.nan
    assert model_points(fed({1: [(0.1, nan), (0.2, nan), (0.3, nan), (0.4, nan)]})) is None
    assert model_points(fed({1: [(0.1, 1.0), (0.2, nan), (0.3, nan), (0.4, nan)]})) is None
    points = [(0.1, nan), (0.2, 1.0), (0.3, 2.0), (0.4, nan), (0.5, nan)]
    assert model_points(fed({1: points}, top_n_percent=60)) == ([0.2, 0.3], [0.1, 0.4, 0.5])


def test_without_a_model_and_for_the_random_part_configs_are_those_of_a_plain_draw():
    drawn = told(search_of(bohb_config={"random_fraction": 1}), range(30))
    fresh = [search_of().suggest("a")]
    assert drawn[:1] == fresh
    mixed = told(search_of(), range(30))
    assert mixed[:4] == drawn[:4]
    same = [a == b for a, b in zip(mixed, drawn, strict=True)]
    assert 5 < sum(same) < 20  # a third
    assert sum(a == b for a, b in zip(told(bohb(), range(30)), drawn, strict=True)) == 4


@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_search_finds_where_the_best_results_are(mode):
    space = {"x": uniform(0, 1), "rate": loguniform(1e-4, 1), "kind": choice(["a", "b", "c"]), "n": randint(0, 20)}
    search = search_of(space, mode=mode, budgets=[1])
    sign = 1 if mode == "min" else -1
    near = 0.0
    for number in range(120):
        config = search.suggest(str(number))
        miss = abs(config["x"] - 0.7) + abs(math.log10(config["rate"]) + 2) + (config["kind"] != "b")
        miss += abs(config["n"] - 5) / 10
        search.on_trial_result(str(number), {"m": sign * miss, "training_iteration": 1})
        near += number >= 60 and miss < 1.0
    assert near > 20  # of 60, a third of them random; drawn at random it would be about 4


def test_the_order_in_which_results_arrive_plays_no_part():
    def run(order):
        search = search_of(SPACE_OF_MODELS, budgets=[1])
        for number in range(30):
            search.suggest(f"t{number}")
        for number in order:
            search.on_trial_result(f"t{number}", {"m": float(number * 7 % 5), "training_iteration": 1})
            search.on_trial_complete(f"t{number}")
        return [search.suggest(f"new{number}") for number in range(10)]

    assert run(range(30)) == run([*range(29, -1, -1)])


# --- conditional spaces ----------------------------------------------------------------------------------------------

SPACE_OF_MODELS = {
    "model": choice([{"kind": "tree", "depth": randint(1, 9)}, {"kind": "net", "rate": loguniform(1e-4, 1)}, "none"]),
    "seed": 3,
}


def test_a_parameter_exists_only_where_its_option_is_chosen():
    search = bohb(SPACE_OF_MODELS, budgets=[1])
    assert list(search._axes) == []  # known with the space
    configs = []
    for number in range(60):
        config = search.suggest(str(number))
        configs.append(config["model"])
        value = 1.0
        if config["model"] != "none" and config["model"]["kind"] == "net":
            value = abs(math.log10(config["model"]["rate"]) + 2) / 4
        search.on_trial_result(str(number), {"m": value, "training_iteration": 1})
    assert list(search._axes) == ["model", "model/0/depth", "model/1/rate"]
    gaps = {(*map(math.isnan, position),) for _, _, position in search._points_at[1.0]}
    assert gaps == {(False, True, True), (False, False, True), (False, True, False)}
    kinds = ["none" if one == "none" else one["kind"] for one in configs[30:]]
    assert kinds.count("net") > 20
    assert {tuple(one) for one in configs if one != "none"} == {("kind", "depth"), ("kind", "rate")}


def test_given_points_come_first_and_teach():
    points = [{"model": {"kind": "net", "rate": 0.01}}, {"model/kind": "tree"}, {}]
    search = BOHBSearch(SPACE_OF_MODELS, None, "m", "min", points[:1], 7, budgets=[1])
    assert search.suggest("a") == {"model": {"kind": "net", "rate": 0.01}, "seed": 3}
    search.on_trial_result("a", {"m": 1.0, "training_iteration": 1})
    ((_, _, position),) = search._points_at[1.0]
    assert position == pytest.approx([1.0, math.nan, 0.5], nan_ok=True)
    with pytest.raises(SpaceError):
        BOHBSearch(SPACE_OF_MODELS, None, "m", "min", [{"model": "forest"}], 7).suggest("a")


def test_a_space_without_parameters_and_a_choice_of_one_option_are_searched_too():
    assert told(bohb({"a": 1, "b": "c"}), [1.0] * 8) == [{"a": 1, "b": "c"}] * 8
    assert told(bohb({"a": choice([5])}), [1.0] * 8) == [{"a": 5}] * 8


# --- restarts, states, limits ----------------------------------------------------------------------------------------


def test_a_state_of_another_space_is_refused():
    first, other = bohb(SPACE_OF_MODELS, budgets=[1]), search_of()
    told(first, [1.0] * 5)
    other.set_state(json.loads(json.dumps(first.get_state())))
    with pytest.raises(SearchError, match="the restored points have 3 parameters, the space has 1"):
        other.suggest("a")


def test_as_many_trials_are_alive_as_are_allowed():
    search = search_of(max_concurrent=2)
    first = search.suggest("a")
    search.suggest("b")
    assert search.suggest("c") is NOT_NOW
    assert search.suggest("a") == first
    search.on_pause("a")
    search.on_pause("nobody")
    assert search.suggest("c") is not NOT_NOW
    assert search.suggest("d") is NOT_NOW
    search.on_trial_result("a", {"m": 1.0, "training_iteration": 1})  # so it goes on
    search.on_trial_complete("b")
    assert search.suggest("d") is NOT_NOW
    search.on_pause("a")
    search.on_unpause("a")
    assert search.suggest("d") is NOT_NOW
    search.on_trial_complete("c", None, error=True)
    assert search.suggest("d") is not NOT_NOW


def test_the_budgets_are_given_or_the_schedulers_or_powers():
    assert BOHBSearch().budgets == (1, 3, 9, 27, 81)
    assert BOHBSearch(max_t=16, reduction_factor=4).budgets == (1, 4, 16)
    given = BOHBSearch(budgets=[9, 1, 3, 3])
    told_so = BOHBSearch(max_t=16)
    for search in (given, told_so):
        search.set_budgets([2, 6])
    assert (given.budgets, told_so.budgets) == ((1, 3, 9), (2, 6))
