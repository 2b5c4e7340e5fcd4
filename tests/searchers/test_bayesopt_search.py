"""Tests of the searcher on a Gaussian process: with a stand-in for the library, and (slow) with the library itself."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conformance.searchers import SearcherContract

from searchers import (
    EXHAUSTED,
    NOT_NOW,
    BayesOptSearch,
    ConcurrencyLimiter,
    SpaceError,
    choice,
    grid_search,
    loguniform,
    qloguniform,
    qrandint,
    quniform,
    randint,
    randn,
    uniform,
)

SPACE = {"lr": loguniform(1e-4, 1e-1), "model": {"width": uniform(8, 64)}, "momentum": uniform(0.0, 0.9), "epochs": 3}

# --- a stand-in for the library: the same calls, random answers, and a memory of what it was asked ---


class FakeOptimizer:
    """What the module calls `BayesianOptimization`."""

    def __init__(self, module, f, pbounds, acquisition_function, random_state, verbose):
        self.module, self.seed, self.names = module, random_state, list(pbounds)
        self.registered = []
        self.acquisition = acquisition_function
        assert f is None
        assert verbose == 0
        assert set(pbounds.values()) == {(0.0, 1.0)}
        module.made.append(self)

    def register(self, params, target):
        assert list(params) == self.names
        point = tuple(params.values())
        assert all(0 <= part <= 1 for part in point)
        assert point not in [known for known, _ in self.registered]  # the library raises
        self.registered.append((point, target))

    def predict(self, points):
        assert self.registered
        return np.full(len(points), 0.125)

    def suggest(self):
        if self.module.always is not None:
            return dict.fromkeys(self.names, np.float64(self.module.always))
        words = [part for point, target in self.registered for part in (*point, target)]
        rng = np.random.default_rng([self.seed, *np.array(words).tobytes()])
        return {name: rng.uniform() for name in self.names}


class FakeBayesOpt:
    """The module: `made` holds the optimizers; `always`, when given, is what they suggest."""

    def __init__(self):
        self.made = []
        self.always = None
        self.acquisition = SimpleNamespace(
            UpperConfidenceBound=lambda kappa: ("ucb", kappa),
            ExpectedImprovement=lambda xi: ("ei", xi),
            ProbabilityOfImprovement=lambda xi: ("poi", xi),
        )

    def BayesianOptimization(self, **arguments):
        return FakeOptimizer(self, **arguments)


@pytest.fixture
def library(monkeypatch):
    fake = FakeBayesOpt()
    monkeypatch.setitem(sys.modules, "bayes_opt", fake)
    return fake


def ready(space, **arguments):
    search = BayesOptSearch(**arguments)
    assert search.set_search_properties("loss", "min", space, seed=7)
    return search


# --- the space -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"x": choice([1, 2])}, "x is a choice; BayesOptSearch has continuous ranges of floats only"),
        ({"x": choice([{"y": uniform(0, 1)}, 2])}, "x is a choice"),
        ({"x": randint(0, 9)}, "continuous ranges of floats only. Use uniform or loguniform, and round"),
        ({"x": qrandint(0, 9, 3)}, "continuous ranges"),
        ({"a": {"x": quniform(0, 1, 0.5)}}, "a/x is .* continuous ranges"),
        ({"x": qloguniform(1, 8, 1)}, "continuous ranges"),
        ({"x": randn()}, "continuous ranges"),
        ({"x": grid_search([1, 2])}, "x is a grid_search over 2 values; BayesOptSearch"),
    ],
)
def test_what_the_library_cannot_search_is_refused_before_anything_starts(library, space, message):
    with pytest.raises(SpaceError, match=message):
        BayesOptSearch().set_search_properties("loss", "min", space)


def test_bounds_by_name_are_a_space(library):
    search = BayesOptSearch({"width": (0, 20), "net/height": [-100, 100.0]}, "loss", "min")
    assert search.set_search_properties(None, None, {"steps": 3})
    config = search.suggest("t")
    assert config.keys() == {"width", "net", "steps"}
    assert 0 <= config["width"] <= 20
    assert -100 <= config["net"]["height"] <= 100


@pytest.mark.parametrize(("part", "lr", "width"), [(0.0, 1e-4, 8.0), (0.5, math.sqrt(1e-5), 36.0), (1.0, 1e-1, 64.0)])
def test_ranges_are_searched_in_parts_and_log_ranges_in_their_logarithm(library, part, lr, width):
    library.always = part
    search = ready(SPACE, random_search_steps=0)
    search.observe({"lr": 1e-4, "model": {"width": 64}, "momentum": 0.225}, {"loss": 2.0})
    config = search.suggest("t")
    assert config["lr"] == pytest.approx(lr)
    assert config["model"]["width"] == width
    assert config["epochs"] == 3
    assert library.made[0].names == ["lr", "model/width", "momentum"]
    assert library.made[0].registered == [((0.0, 1.0, 0.25), -2.0)]
    assert 1e-4 <= config["lr"] <= 1e-1


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("utility", "acquisitions"),
    [
        ({"kind": "ucb", "kappa": 2.5, "xi": 0.0}, [("ucb", 2.5)] * 4),
        ({"kappa": 8, "kappa_decay": 0.5, "kappa_decay_delay": 1}, [("ucb", 8), ("ucb", 8), ("ucb", 4), ("ucb", 2)]),
        ({"kind": "ei", "xi": 0.25}, [("ei", 0.25)] * 4),
        ({"kind": "poi"}, [("poi", 0.0)] * 4),
        (None, [("ucb", 2.576)] * 4),
    ],
)
def test_the_utility_says_what_is_maximised(library, utility, acquisitions):
    search = ready({"x": uniform(0, 1)}, utility_kwargs=utility, random_search_steps=1)
    for trial in "abcde":
        search.suggest(trial)
        search.on_trial_complete(trial, {"loss": 1.0})
    assert [one.acquisition for one in library.made] == acquisitions


# --- what the library is told ----------------------------------------------------------------------------------------


def test_the_library_hears_every_point_in_the_order_of_its_number(library):
    search = BayesOptSearch({"x": (0, 1)}, "score", "max", random_search_steps=5)
    search.set_search_properties(None, None, {}, seed=1)
    parts = [search.suggest(trial)["x"] for trial in "abcde"]
    search.on_trial_complete("e", {"score": 4.0})
    search.on_trial_complete("b", {"score": math.nan})
    search.on_trial_complete("a", {"score": 1.5})
    search.on_trial_complete("c", error=True)
    search.on_trial_complete("a", {"score": 9.0})  # heard before
    assert library.made == []
    search.suggest("f")
    known = [((parts[0],), 1.5), ((parts[1],), 1.5), ((parts[4],), 4.0)]  # b: as the worst
    assert library.made[0].registered == [*known, ((parts[2],), 0.125), ((parts[3],), 0.125)]  # as expected there


def test_a_point_that_was_tried_twice_is_one_with_the_mean(library):
    search = ready({"x": uniform(0, 1)}, points_to_evaluate=[{"x": 0.5}] * 3, random_search_steps=0)
    for trial, loss in (("a", 1.0), ("b", 3.0), ("c", None)):
        assert search.suggest(trial) == {"x": 0.5}
        if loss is not None:
            search.on_trial_complete(trial, {"loss": loss})
    search.suggest("d")
    assert library.made[0].registered == [((0.5,), -2.0)]


def test_the_model_begins_after_the_random_steps_and_does_not_wait_for_their_results(library):
    search = ready({"x": uniform(0, 1)}, random_search_steps=3)
    for n in range(3):
        search.suggest(f"t{n}")
        search.on_trial_complete(f"t{n}", {"loss": 1.0} if n == 0 else None, error=n == 1)
    assert library.made == []
    search.suggest("t3")
    assert len(library.made) == 1


def test_the_trials_of_an_analysis_are_learned_from(library):
    trials = [SimpleNamespace(config={"x": x}, last_result={"loss": x}) for x in (0.25, 0.5)]
    search = BayesOptSearch(analysis=SimpleNamespace(trials=trials), random_search_steps=0)
    assert search.set_search_properties("loss", "min", {"x": uniform(0, 1)})
    search.suggest("a")
    assert library.made[0].registered == [((0.25,), -0.25), ((0.5,), -0.5)]
    search.suggest("b")
    assert len(library.made[1].registered) == 3
    assert len(search.get_state()["points"]) == 2  # learned once


# --- points that come again ------------------------------------------------------------------------------------------


def converged(library, **arguments):
    """Return a search whose model always suggests the point that was tried."""
    library.always = 0.5
    search = ready({"x": uniform(0, 1)}, points_to_evaluate=[{"x": 0.5}], random_search_steps=0, **arguments)
    search.suggest("first")
    search.on_trial_complete("first", {"loss": 1.0})
    return search


def test_a_search_that_finds_only_what_it_tried_ends(library):
    search = converged(library, patience=3)
    assert search.suggest("a") is EXHAUSTED
    assert len({one.seed for one in library.made}) == 3
    library.always = 0.75
    assert search.suggest("b") is EXHAUSTED


def test_while_trials_go_on_it_waits_for_them(library):
    search = converged(library)
    library.always = 0.75
    assert search.suggest("a") == {"x": 0.75}
    assert [search.suggest("b") for _ in range(3)] == [NOT_NOW] * 3
    assert len(library.made) == 1 + 5  # asked again before anything was heard, it need not ask the library
    assert search.suggest("a") == {"x": 0.75}
    search.on_trial_complete("a", {"loss": 2.0})
    assert search.suggest("b") is EXHAUSTED


def test_points_may_come_again_as_often_as_patience_says(library):
    search = converged(library, skip_duplicate=False, patience=3)
    answers = [search.suggest(trial) for trial in "ab"]
    for trial in "ab":
        search.on_trial_complete(trial, {"loss": 1.0})
    assert [*answers, search.suggest("c")] == [{"x": 0.5}, {"x": 0.5}, EXHAUSTED]


def test_without_patience_it_draws_another_point(library):
    search = converged(library, patience=None)
    values = {search.suggest(trial)["x"] for trial in "abc"}
    assert len(values) == 3
    assert 0.5 not in values


# --- the contract, with the stand-in and with the library itself -----------------------------------------------------


class Contract(SearcherContract):
    space = SPACE

    @staticmethod
    def is_inside(config):
        return (
            config.keys() == SPACE.keys()
            and 1e-4 <= config["lr"] <= 1e-1
            and 8 <= config["model"]["width"] <= 64
            and 0 <= config["momentum"] <= 0.9
        )

    def make(self):
        return ConcurrencyLimiter(BayesOptSearch(random_search_steps=4), max_concurrent=3)


@pytest.mark.usefixtures("library")
class TestTheContractWithTheStandIn(Contract):
    pass


@pytest.mark.slow
class TestTheContractWithTheLibrary(Contract):
    @pytest.fixture(autouse=True)
    def _library(self):
        pytest.importorskip("bayes_opt")


def test_a_space_is_converted_to_bounds():
    space = {"net": {"x": uniform(0, 20)}, "y": uniform(-1, 1), "epochs": 3}
    bounds = {"net/x": (0.0, 20.0), "y": (-1.0, 1.0)}
    assert BayesOptSearch.convert_search_space(space) == bounds
    assert BayesOptSearch.convert_search_space(space, join=True) == {"epochs": 3, **bounds}
    with pytest.warns(UserWarning, match="the bounds of lr leave out that its range is logarithmic"):
        assert BayesOptSearch.convert_search_space({"lr": loguniform(1e-3, 1)}) == {"lr": (1e-3, 1.0)}
    with pytest.raises(SpaceError, match="ranges of floats only"):
        BayesOptSearch.convert_search_space({"x": choice([1, 2])})
