"""Tests of the limit on open suggestions."""

from __future__ import annotations

import pytest
from conformance.searchers import Recorder

from searchers import (
    EXHAUSTED,
    NOT_NOW,
    BasicVariantGenerator,
    BOHBSearch,
    ConcurrencyLimiter,
    RandomSearch,
    SearchError,
    grid_search,
    uniform,
)


def test_no_more_than_the_limit_are_open():
    limiter = ConcurrencyLimiter(Recorder(), 2)
    assert limiter.suggest("a") == {"id": "a"}
    assert limiter.suggest("b") == {"id": "b"}
    assert limiter.suggest("c") is NOT_NOW
    limiter.on_trial_complete("a", {"loss": 1})
    assert limiter.searcher.heard == [("end", "a", {"loss": 1}, False)]
    assert limiter.suggest("c") == {"id": "c"}


def test_answers_without_a_config_take_no_place():
    limiter = ConcurrencyLimiter(Recorder([NOT_NOW, None, EXHAUSTED]), 1)
    assert [limiter.suggest("a") for _ in range(4)] == [NOT_NOW, NOT_NOW, EXHAUSTED, {"id": "a"}]


def test_a_batch_is_passed_on_whole_in_order_of_completion():
    limiter = ConcurrencyLimiter(Recorder(), 3, batch=True)
    for trial_id in "abc":
        limiter.suggest(trial_id)
    limiter.on_trial_complete("b", {"loss": 2})
    limiter.on_trial_complete("c", None, True)
    limiter.on_trial_complete("b", {"loss": 99})
    assert limiter.searcher.heard == []
    assert limiter.suggest("d") is NOT_NOW
    limiter.on_trial_complete("a", {"loss": 1})
    assert limiter.searcher.heard == [
        ("end", "b", {"loss": 2}, False),
        ("end", "c", None, True),
        ("end", "a", {"loss": 1}, False),
    ]
    assert [limiter.suggest(trial_id) for trial_id in "def"] == [{"id": "d"}, {"id": "e"}, {"id": "f"}]


def test_a_batch_that_the_searcher_cut_short_does_not_stall():
    limiter = ConcurrencyLimiter(Recorder([{"n": 1}, {"n": 2}, NOT_NOW]), 3, batch=True)
    assert [limiter.suggest(trial_id) for trial_id in "abc"] == [{"n": 1}, {"n": 2}, NOT_NOW]
    limiter.on_trial_complete("a", {"loss": 1})
    limiter.on_trial_complete("b", {"loss": 2})
    assert [entry[1] for entry in limiter.searcher.heard] == ["a", "b"]
    assert limiter.suggest("c") == {"id": "c"}


def test_unknown_trials_do_not_reach_the_searcher():
    limiter = ConcurrencyLimiter(Recorder(), 1)
    limiter.on_trial_complete("nobody", {"loss": 1})
    assert limiter.searcher.heard == []


def test_everything_else_is_passed_through():
    limiter = ConcurrencyLimiter(Recorder(), 1)
    limiter.on_trial_result("a", {"loss": 1})
    limiter.observe({"x": 1}, {"loss": 1})
    limiter.retell("a", {"x": 1}, {"of": "a"})
    assert limiter.suggestion_state("a") == {"of": "a"}
    assert limiter.searcher.heard == [
        ("result", "a", {"loss": 1}),
        ("observe", {"x": 1}, {"loss": 1}),
        ("retell", "a", {"x": 1}, {"of": "a"}),
    ]


@pytest.mark.parametrize("batch", [False, True])
def test_a_restart_finds_the_places_taken_as_they_were(batch):
    limiter = ConcurrencyLimiter(Recorder(), 2, batch=batch)
    limiter.retell("a", {}, None)
    limiter.retell("b", {}, None)
    limiter.on_trial_complete("a", {"loss": 1})
    assert (limiter.suggest("c") is NOT_NOW) == batch
    limiter.on_trial_complete("b", {"loss": 1})
    assert limiter.suggest("d") == {"id": "d"}


def test_a_searcher_that_limits_itself_is_asked_and_told_directly():
    class Limited(Recorder):
        def set_max_concurrency(self, max_concurrent):
            self.heard.append(("limit", max_concurrent))
            return True

    limiter = ConcurrencyLimiter(Limited(), 1, batch=True)
    assert [limiter.suggest(trial_id) for trial_id in "ab"] == [{"id": "a"}, {"id": "b"}]
    limiter.on_trial_complete("a", {"loss": 1})
    limiter.on_trial_complete("z", None, True)
    limiter.retell("c", {}, None)
    assert limiter.suggest("d") == {"id": "d"}
    assert limiter.searcher.heard == [
        ("limit", 1),
        ("end", "a", {"loss": 1}, False),
        ("end", "z", None, True),
        ("retell", "c", {}, None),
    ]


@pytest.mark.parametrize(("outer", "inner"), [(1, 2), (2, 1), (1, 1)])
def test_of_two_limits_of_a_searcher_that_limits_itself_the_smaller_holds_and_pauses_make_room(outer, inner):
    bohb = BOHBSearch({"x": uniform(0, 1)}, metric="loss", mode="min")
    limiter = ConcurrencyLimiter(ConcurrencyLimiter(bohb, inner), outer)
    assert isinstance(limiter.suggest("a"), dict)
    assert limiter.suggest("b") is NOT_NOW
    limiter.on_pause("a")
    assert isinstance(limiter.suggest("b"), dict)
    limiter.on_unpause("a")
    limiter.on_trial_complete("b", {"loss": 1.0})
    assert limiter.suggest("c") is NOT_NOW


def test_a_batch_of_one_is_passed_on_at_once_and_others_wait_for_all_that_are_open():
    limiter = ConcurrencyLimiter(Recorder(), 1, batch=True)
    limiter.suggest("a")
    limiter.on_trial_complete("a", {"loss": 1})
    assert [entry[1] for entry in limiter.searcher.heard] == ["a"]
    assert limiter.suggest("b") == {"id": "b"}


def test_the_searcher_takes_the_run_and_counts_the_trials():
    limiter = ConcurrencyLimiter(BasicVariantGenerator(), 2)
    assert limiter.set_search_properties("loss", "min", {"a": grid_search([1, 2, 3])}, num_samples=2)
    assert (limiter.metric, limiter.mode) == ("loss", "min")
    assert limiter.num_trials(2) == 6
    assert not limiter.set_search_properties("accuracy", "min", {})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConcurrencyLimiter("optuna", 2), "expected a searcher"),
        (lambda: ConcurrencyLimiter(RandomSearch(), 0), "max_concurrent is 0"),
        (lambda: ConcurrencyLimiter(RandomSearch(), 2.0), "max_concurrent is 2.0"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(SearchError, match=message):
        make()
