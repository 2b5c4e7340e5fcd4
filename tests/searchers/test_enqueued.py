"""Configs of persons come first, count against no limit of the search, and are learned from where that can be."""

from __future__ import annotations

from searchers import ConcurrencyLimiter, GridSearch, OptunaSearch, grid_search, uniform
from searchers.base import EXHAUSTED, NOT_NOW
from searchers.wrapper import Enqueued, learns_from_others


def a_grid(*values):
    searcher = GridSearch()
    searcher.set_search_properties("m", "min", {"x": grid_search(list(values))}, num_samples=1)
    return searcher


def test_configs_of_persons_come_first_and_the_search_goes_on_where_it_was():
    searcher = Enqueued(a_grid(1, 2))
    assert searcher.suggest("a") == {"x": 1}
    searcher.on_request({"config": {"x": 7}})
    searcher.on_request({"config": {"x": 8}})
    assert [searcher.suggest(name) for name in "bcd"] == [{"x": 7}, {"x": 8}, {"x": 2}]
    assert searcher.suggest("b") == {"x": 7}
    assert searcher.suggest("e") is EXHAUSTED
    assert searcher.suggestion_state("b") == {"enqueued": True}
    assert searcher.suggestion_state("a") is None


def test_they_count_against_no_limit_and_the_limit_can_change():
    searcher = Enqueued(ConcurrencyLimiter(a_grid(1, 2, 3), 1))
    assert searcher.suggest("a") == {"x": 1}
    assert searcher.suggest("b") is NOT_NOW
    searcher.on_request({"config": {"x": 7}})
    assert searcher.suggest("b") == {"x": 7}
    assert searcher.suggest("c") is NOT_NOW
    searcher.on_request({"max_concurrent": 2})
    assert searcher.suggest("c") == {"x": 2}
    assert searcher.suggest("d") is NOT_NOW


def test_more_samples_are_drawn_when_a_person_wants_more():
    searcher = Enqueued(a_grid(1, 2))
    assert [searcher.suggest(name) for name in "abc"] == [{"x": 1}, {"x": 2}, EXHAUSTED]
    searcher.on_request({"num_samples": 2})
    assert [searcher.suggest(name) for name in "cde"] == [{"x": 1}, {"x": 2}, EXHAUSTED]
    searcher.on_request({"num_samples": 1})  # the plan sees to it that fewer are made
    assert searcher.suggest("e") is EXHAUSTED


def test_the_searcher_learns_from_them_and_what_is_outside_costs_nothing():
    inner = OptunaSearch(seed=0)
    inner.set_search_properties("m", "min", {"x": uniform(0, 1)}, num_samples=10)
    searcher = Enqueued(inner)
    for config in ({"x": 0.5}, {"x": 7.0}):
        searcher.on_request({"config": config})
    assert [searcher.suggest("a"), searcher.suggest("b")] == [{"x": 0.5}, {"x": 7.0}]
    searcher.on_trial_complete("a", {"m": 0.25})
    searcher.on_trial_complete("b", {"m": 0.1})
    assert [trial.params for trial in inner.study.trials] == [{"x": 0.5}]
    assert learns_from_others(searcher)
    assert not learns_from_others(Enqueued(a_grid(1)))


def test_told_again_it_suggests_the_same():
    requests = [{"config": {"x": 7}}, {"num_samples": 2}]
    first, again = Enqueued(a_grid(1, 2)), Enqueued(a_grid(1, 2))
    answers = [first.suggest("a")]
    for request in requests:
        first.on_request(request)
    answers += [first.suggest("b"), first.suggest("c")]
    again.retell("a", answers[0], None)
    for request in requests:
        again.on_request(request)
    again.retell("b", answers[1], {"enqueued": True})
    again.retell("c", answers[2], None)
    assert [first.suggest(name) for name in "def"] == [again.suggest(name) for name in "def"]
