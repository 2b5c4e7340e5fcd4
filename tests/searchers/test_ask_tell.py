"""Tests of searchers without a sweep: the loop is the caller's, the suggestions are those of a sweep."""

from __future__ import annotations

import pytest
from conformance.searchers import Recorder

from searchers import (
    ConcurrencyLimiter,
    GridSearch,
    OptunaSearch,
    RandomSearch,
    Repeater,
    Searcher,
    SearchError,
    SearchExhausted,
    SearchWaits,
    choice,
    grid_search,
    loguniform,
    randint,
    uniform,
)
from sweep.engines.simulator import Point
from sweep.simulation.virtual import simulate

SPACE = {"lr": loguniform(1e-4, 1.0), "kind": choice(["a", "b"]), "n": {"width": randint(1, 9)}, "x": uniform(0, 1)}


def loss_of(config):
    return config["x"] + config["n"]["width"] + (config["kind"] == "a") + abs(config["lr"] - 0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OptunaSearch(),
        lambda: OptunaSearch(sampler="cmaes"),
        lambda: OptunaSearch(sampler="qmc"),
        lambda: OptunaSearch(points_to_evaluate=[{"lr": 0.5}, {"n/width": 3}]),
        lambda: RandomSearch(),
        lambda: ConcurrencyLimiter(OptunaSearch(), 1),
        lambda: Repeater(OptunaSearch(), 2),
    ],
)
def test_a_loop_suggests_what_a_sweep_of_one_trial_at_a_time_does(make):
    def curve(config, count):
        for step in range(2):
            yield Point(1.0, {"loss": loss_of(config) - step})

    swept = simulate(curve, config=SPACE, metric="loss", mode="min", num_samples=16, search_alg=make(), cpus=1, seed=9)
    search = make()
    assert search.set_search_properties("loss", "min", SPACE, num_samples=16, seed=9)
    asked = []
    for _ in range(16):
        trial_id, config = search.ask()
        asked.append(config)
        for step in range(2):
            search.tell(trial_id, {"loss": loss_of(config) - step}, is_done=False)
        search.tell(trial_id)
    assert asked == [dict(trial.config) for trial in swept.trials]


def test_what_is_told_reaches_the_searcher_as_from_a_sweep():
    search = Recorder()
    assert [search.ask() for _ in range(3)] == [(f"0000{n}", {"id": f"0000{n}"}) for n in range(3)]
    search.tell("00001", {"loss": 2, "eval": {"top": {"1": 0.5}}}, is_done=False)
    search.tell("00001", {"loss": 1})
    search.tell("00000", {"loss": 5, "training_iteration": 7}, is_done=False)
    search.tell("00000", error=True)
    search.tell("00002")
    assert search.heard == [
        ("result", "00001", {"training_iteration": 1, "loss": 2, "eval/top/1": 0.5}),
        ("result", "00001", {"training_iteration": 2, "loss": 1}),
        ("end", "00001", {"training_iteration": 2, "loss": 1}, False),
        ("result", "00000", {"training_iteration": 7, "loss": 5}),
        ("end", "00000", None, True),
        ("end", "00002", None, False),
    ]


def test_the_end_of_a_search_is_said():
    search = GridSearch({"a": grid_search([1, 2])}, "loss", "min")
    search.set_search_properties(None, None, {}, num_samples=1)
    assert [search.ask()[1]["a"] for _ in range(2)] == [1, 2]
    with pytest.raises(SearchExhausted, match="GridSearch has nothing more to suggest after 2 trials"):
        search.ask()


def test_a_search_that_waits_says_for_what():
    search = ConcurrencyLimiter(RandomSearch({"x": uniform(0, 1)}), 1)
    trial_id, _ = search.ask()
    with pytest.raises(SearchWaits, match="suggests nothing more while 1 trials are open; tell it of one"):
        search.ask()
    search.tell(trial_id, {"loss": 1})
    assert search.ask()[0] == "00001"


def test_none_and_nonsense_are_told_apart():
    class Odd(Recorder):
        def suggest(self, trial_id):
            return None

    with pytest.raises(SearchWaits):
        Odd().ask()
    Odd.suggest = lambda self, trial_id: [1]
    with pytest.raises(SearchError, match=r"Odd\.suggest\('00000'\) returned \[1\]; expected a dict"):
        Odd().ask()


@pytest.mark.parametrize(
    ("tell", "message"),
    [
        (lambda search: search.tell("00007", {}), "no trial '00007' is open; .*: 00000"),
        (lambda search: (search.tell("00000", {}), search.tell("00000", {})), "no trial '00000' is open; .*: none"),
        (lambda search: search.tell("00000", 0.5), r"result is 0\.5; expected a dict of metrics"),
    ],
)
def test_wrong_tellings_are_refused(tell, message):
    search = Recorder()
    search.ask()
    with pytest.raises(SearchError, match=message):
        tell(search)


def test_a_subclass_that_calls_no_constructor_can_be_asked():
    class Own(Searcher):
        def __init__(self):
            pass

        def suggest(self, trial_id):
            return {}

    assert Own().ask() == ("00000", {})
