"""Tests of the grid crossed with random draws, beyond the contract that every searcher keeps."""

from __future__ import annotations

import numpy as np
import pytest

from searchers import (
    EXHAUSTED,
    NOT_NOW,
    BasicVariantGenerator,
    GridSearch,
    SearchError,
    choice,
    grid_search,
    sample_from,
    uniform,
)

SPACE = {"a": grid_search([1, 2]), "b": grid_search(["x", "y", "z"]), "r": uniform(0, 1)}


def ready(searcher, space=SPACE, num_samples=1, seed=0):
    assert searcher.set_search_properties("loss", "min", space, num_samples=num_samples, seed=seed)
    return searcher


def rest(searcher):
    configs = []
    while not isinstance(config := searcher.suggest(f"t{len(configs)}"), type(EXHAUSTED)):
        configs.append(config)
    return configs


def test_trials_are_samples_times_grid_points():
    search = ready(GridSearch(), num_samples=4)
    configs = rest(search)
    assert search.num_trials(4) == len(configs) == 24
    assert [(c["a"], c["b"]) for c in configs[:6]] == [(1, "x"), (2, "x"), (1, "y"), (2, "y"), (1, "z"), (2, "z")]
    assert len({c["r"] for c in configs}) == 24
    assert rest(ready(GridSearch(), num_samples=2)) == configs[:12]  # more samples leave the earlier ones as they were


def test_without_a_number_of_samples_it_goes_on():
    search = GridSearch({"a": grid_search([1, 2])})
    assert [search.suggest(f"t{n}")["a"] for n in range(5)] == [1, 2, 1, 2, 1]
    assert search.num_trials(None) is None


def test_points_and_a_constant_grid_search_are_those_of_the_variants():
    search = BasicVariantGenerator(points_to_evaluate=[{"a": 2, "r": 0.5}], constant_grid_search=True)
    configs = rest(ready(search, num_samples=2))
    assert configs[:3] == [{"a": 2, "b": b, "r": 0.5} for b in "xyz"]
    assert len(configs) == search.num_trials(2) == 3 + 6
    assert len({c["r"] for c in configs}) == 2


def test_no_more_than_max_concurrent_are_open():
    search = ready(BasicVariantGenerator(max_concurrent=2))
    assert search.suggest("t0") == search.suggest("t0")
    search.suggest("t1")
    assert search.suggest("t2") is NOT_NOW
    search.on_trial_complete("t0", {"loss": 1})
    assert search.suggest("t2") == ready(GridSearch()).suggest("t0") | {"b": "y"} | {"r": search.suggest("t2")["r"]}


def test_max_concurrent_holds_after_a_restart():
    search = ready(BasicVariantGenerator(max_concurrent=2))
    search.retell("t0", {}, None)
    search.retell("t1", {}, None)
    assert search.suggest("t2") is NOT_NOW
    search.on_trial_complete("t1")
    assert search.suggest("t2") is not NOT_NOW


def test_a_restart_draws_nothing():
    def never():
        raise AssertionError("called")

    search = ready(GridSearch(), {"x": sample_from(never)})
    search.retell("t0", {"x": 4}, None)
    assert search.suggest("t0") == {"x": 4}


def test_generators_give_a_seed():
    def first(random_state):
        return ready(BasicVariantGenerator(random_state=random_state), seed=9).suggest("a")["r"]

    assert first(3) == first(np.int64(3))
    assert first(np.random.default_rng(3)) == first(np.random.default_rng(3)) != first(np.random.default_rng(4))
    assert first(np.random.RandomState(3)) == first(np.random.RandomState(3)) != first(np.random.RandomState(4))
    assert first(None) == ready(GridSearch(), seed=9).suggest("a")["r"]


def test_what_happened_before_does_not_matter_even_far_out():
    search = ready(GridSearch(), {f"g{i}": grid_search(range(100)) for i in range(8)}, num_samples=None)
    search.set_state({"count": 12_345_678_901_234_567, "seed": 0})
    assert list(search.suggest("far").values()) == [67, 45, 23, 1, 89, 67, 45, 23]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BasicVariantGenerator(max_concurrent=-1), "max_concurrent is -1"),
        (lambda: BasicVariantGenerator(max_concurrent=1.5), "max_concurrent is 1.5"),
        (lambda: BasicVariantGenerator(random_state="x"), "random_state is 'x'"),
        (lambda: GridSearch(seed=-2), "seed is -2"),
        (lambda: GridSearch().suggest("a"), "GridSearch has no space"),
        (lambda: BasicVariantGenerator().suggest("a"), "BasicVariantGenerator has no space"),
        (lambda: GridSearch({"c": choice([{"a": grid_search([1])}])}), "inside a choice"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(SearchError, match=message):
        make()
