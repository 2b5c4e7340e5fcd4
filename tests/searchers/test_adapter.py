"""Tests of searchers that were written for something else: Optuna's samplers, Tune's searchers, anything alike."""

from __future__ import annotations

import json

import optuna
import pytest
from conformance.searchers import Session, is_inside

from searchers import (
    EXHAUSTED,
    NOT_NOW,
    ConcurrencyLimiter,
    ForeignSearcher,
    OptunaSearch,
    RandomSearch,
    SearchError,
    as_searcher,
    keyed_rng,
    uniform,
)
from sweep.engines.simulator import Point
from sweep.simulation.virtual import simulate


class Foreign:
    """A searcher as Tune has them, which knows its own space."""

    FINISHED = "FINISHED"

    def __init__(self, metric="loss", mode="min", num=100, offset=0):
        self.metric, self.mode, self.num, self.offset = metric, mode, num, offset
        self.count = 0
        self.heard = []

    def suggest(self, trial_id):
        if self.count == self.num:
            return self.FINISHED
        rng = keyed_rng(self.offset, self.count)
        self.count += 1
        width = int(rng.integers(1, 9)) * 8
        return {
            "lr": float(10 ** rng.uniform(-4, -1)),
            "model": {"width": width, "kind": "mlp"},
            "momentum": float(rng.uniform(0, 0.9)),
            "double": width * 2,
            "epochs": 3,
        }

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.heard.append((trial_id, result, error))


class Whole(Foreign):
    """One that has everything."""

    def set_search_properties(self, metric, mode, config, **spec):
        self.given = (metric, mode, config, spec)
        return True

    def on_trial_result(self, trial_id, result):
        self.heard.append((trial_id, result))

    def on_pause(self, trial_id):
        self.heard.append(("pause", trial_id))

    def on_unpause(self, trial_id):
        self.heard.append(("unpause", trial_id))

    def set_max_concurrency(self, max_concurrent):
        return max_concurrent < 3

    def add_evaluated_point(self, parameters, value, error=False, pruned=False, intermediate_values=None):
        self.heard.append((parameters, value))

    def save(self, path):
        path.write_text(str(self.count))

    def restore(self, path):
        self.count = int(path.read_text())


def test_a_searcher_is_returned_itself():
    search = RandomSearch()
    assert as_searcher(search) is search
    assert type(as_searcher(RandomSearch)) is RandomSearch


def test_a_sampler_class_without_a_seed_is_built():
    class Middle(optuna.samplers.BaseSampler):
        def infer_relative_search_space(self, study, trial):
            return {}

        def sample_relative(self, study, trial, search_space):
            return {}

        def sample_independent(self, study, trial, param_name, param_distribution):
            return (param_distribution.low + param_distribution.high) / 2

    for given in (Middle, Middle()):
        search = as_searcher(given)
        assert search.set_search_properties("loss", "min", {"x": uniform(0, 1)})
        assert search.suggest("a") == {"x": 0.5}


def test_an_object_of_other_making_is_asked_and_told():
    theirs = Foreign(num=2)
    search = as_searcher(theirs)
    assert search.set_search_properties("loss", "min", {"data": [1]})
    first = search.suggest("a")
    assert is_inside(first)
    assert first["data"] == [1]
    first["data"].append(2)
    assert search.suggest("a")["data"] == [1]
    search.suggest("b")
    assert [search.suggest("c"), search.suggest("c")] == [EXHAUSTED, EXHAUSTED]
    assert not search.hears_results
    search.on_trial_result("a", {"loss": 1})
    search.on_trial_complete("a", {"loss": 1})
    search.on_trial_complete("a", {"loss": 1})
    search.on_trial_complete("b", None, error=True)
    search.on_trial_complete("nobody", {"loss": 1})
    assert theirs.heard == [("a", {"loss": 1}, False), ("b", None, True)]


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [(None, NOT_NOW), ("FINISHED", EXHAUSTED), ("done", EXHAUSTED), (EXHAUSTED, EXHAUSTED), (NOT_NOW, NOT_NOW)],
)
def test_what_it_says_instead_of_a_config_is_translated(answer, meaning):
    theirs = Foreign()
    theirs.FINISHED = "done"
    theirs.suggest = lambda trial_id: answer
    assert as_searcher(theirs).suggest("a") is meaning


def test_nonsense_is_named():
    theirs = Foreign()
    theirs.suggest = lambda trial_id: 3
    with pytest.raises(SearchError, match=r"Foreign\.suggest\('a'\) returned 3; expected a dict, None .not now. or"):
        as_searcher(theirs).suggest("a")


def test_whatever_else_it_has_is_used(tmp_path):
    theirs = Whole(metric=None, mode=None)
    search = as_searcher(theirs)
    space = {"x": uniform(0, 1)}
    assert search.set_search_properties("score", "max", space, num_samples=5, seed=1)
    assert theirs.given == ("score", "max", space, {"num_samples": 5})
    assert (search.metric, search.mode, search.hears_results) == ("score", "max", True)
    assert [search.set_max_concurrency(2), search.set_max_concurrency(3)] == [True, False]
    search.suggest("a")
    search.on_trial_result("a", {"score": 1})
    for trial_id in ("a", "unknown"):
        search.on_pause(trial_id)
        search.on_unpause(trial_id)
    search.add_evaluated_point({"x": 0.5}, 2.0)
    assert theirs.heard == [("a", {"score": 1}), ("pause", "a"), ("unpause", "a"), ({"x": 0.5}, 2.0)]
    search.save(tmp_path / "state")
    new = as_searcher(Whole())
    new.restore(tmp_path / "state")
    assert new.searcher.count == 1


def test_what_it_lacks_is_named():
    search = as_searcher(Foreign())
    with pytest.raises(SearchError, match="Foreign has no method save"):
        search.save("path")
    with pytest.raises(SearchError, match="no add_evaluated_point"):
        search.observe({}, {"loss": 1})
    assert not search.set_max_concurrency(2)


def test_a_space_or_metric_of_the_run_that_it_does_not_take_is_refused():
    assert not as_searcher(Foreign()).set_search_properties("loss", "min", {"x": uniform(0, 1)})
    assert not as_searcher(Foreign()).set_search_properties("score", "min", {})
    assert as_searcher(Foreign(None, None)).set_search_properties("score", "max", {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "3 is no searcher: it has no method suggest.trial_id. and no method on_trial_complete"),
        (type("Half", (), {"suggest": lambda self, trial_id: {}})(), "it has no method on_trial_complete"),
        (type("Other", (), {"on_trial_complete": lambda self: 0}), r"it has no method suggest\(trial_id\)\."),
        (None, "None is no searcher"),
        (ForeignSearcher, "ForeignSearcher is a class and could not be called"),
    ],
)
def test_what_is_no_searcher_is_refused(given, message):
    with pytest.raises(SearchError, match=message):
        as_searcher(given)


def test_a_restart_of_a_seeded_object_changes_nothing():
    whole = Session(as_searcher(Foreign()))
    whole.run(20)
    again = whole.tell_again(as_searcher(Foreign()), 30)
    again.run(20)
    assert again.configs == whole.configs
    assert json.dumps(again.searcher.searcher.heard) == json.dumps(whole.searcher.searcher.heard)


def test_an_object_that_draws_otherwise_after_a_restart_is_told_of_once():
    whole = Session(as_searcher(Foreign()))
    whole.run(6)
    with pytest.warns(UserWarning, match="after the restart Foreign suggested") as said:
        again = whole.tell_again(as_searcher(Foreign(offset=1)), 12)
    assert len(said) == 1
    assert again.searcher.suggest(again.open[0]) == whole.configs[int(again.open[0][2:])]


@pytest.mark.parametrize("base", [Foreign, RandomSearch])
def test_one_of_the_first_releases_is_told_no_more_than_it_takes(base):
    class Early(base):
        told = None

        def set_search_properties(self, metric, mode, config):
            self.told = (metric, mode, config)
            return True

        def suggest(self, trial_id):
            return dict.fromkeys(self.told[2], 0.5)

    found = simulate(
        lambda config: [Point(1.0, {"loss": config["x"]})],
        config={"x": uniform(0, 1)},
        metric="loss",
        mode="min",
        num_samples=2,
        search_alg=ConcurrencyLimiter(Early(), max_concurrent=1) if base is RandomSearch else as_searcher(Early()),
    )
    assert [trial.config["x"] for trial in found.trials] == [0.5, 0.5]


def test_samplers_of_your_own_are_refused_when_they_make_none():
    for sampler, message in (
        (lambda seed: 3, "returned 3; expected a sampler of Optuna"),
        (lambda: 3, "could not be called"),
        (optuna.samplers.GridSampler, "could not be called"),
    ):
        search = OptunaSearch({"x": uniform(0, 1)}, "loss", "min", sampler=sampler)
        with pytest.raises(SearchError, match=message):
            search.suggest("a")
