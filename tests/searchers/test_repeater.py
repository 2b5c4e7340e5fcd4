"""Tests of evaluating each suggestion several times."""

from __future__ import annotations

import math

import pytest
from conformance.searchers import Recorder, Session

from searchers import (
    NOT_NOW,
    BasicVariantGenerator,
    BOHBSearch,
    ConcurrencyLimiter,
    RandomSearch,
    Repeater,
    SearchError,
    uniform,
)
from searchers import grid_search as grid


def test_consecutive_trials_share_a_suggestion():
    repeater = Repeater(Recorder([{"inner": {"by": "a"}}]), repeat=2)
    configs = [repeater.suggest(trial_id) for trial_id in "abc"]
    assert configs == [
        {"inner": {"by": "a"}, "__trial_index__": 0},
        {"inner": {"by": "a"}, "__trial_index__": 1},
        {"id": "c", "__trial_index__": 0},
    ]
    configs[0]["inner"]["by"] = "spoiled"
    assert repeater.suggest("b") == configs[1]
    assert Repeater(Recorder(), repeat=2, set_index=False).suggest("a") == {"id": "a"}


def test_the_searcher_hears_the_mean_once_under_the_first_id():
    repeater = Repeater(Recorder(), repeat=3)
    for trial_id in "abc":
        repeater.suggest(trial_id)
    repeater.on_trial_complete("c", {"loss": 4.0})
    repeater.on_trial_complete("c", {"loss": 400.0})
    repeater.on_trial_complete("a", {"loss": 1.0})
    assert repeater.searcher.heard == []
    repeater.on_trial_complete("b", {"loss": 1.0})
    assert repeater.searcher.heard == [("end", "a", {"loss": 2.0}, False)]
    assert repeater._group_of == {}


def test_failed_and_nan_trials_are_left_out_of_the_mean():
    repeater = Repeater(Recorder((), ["loss", "cost"], ["min", "min"]), repeat=4)
    for trial_id, end in {
        "a": (None, True),
        "b": ({"loss": math.nan, "cost": 2.0}, False),
        "c": ({"loss": 3}, False),
        "d": ({"loss": "text", "cost": 4.0}, False),
    }.items():
        repeater.suggest(trial_id)
        repeater.on_trial_complete(trial_id, *end)
    assert repeater.searcher.heard == [("end", "a", {"loss": 3.0, "cost": 3.0}, False)]


def test_a_group_without_a_number_is_nan_and_one_that_failed_has_failed():
    repeater = Repeater(Recorder(), repeat=2)
    for trial_id, end in {"a": ({}, False), "b": (None, True), "c": (None, True), "d": (None, True)}.items():
        repeater.suggest(trial_id)
        repeater.on_trial_complete(trial_id, *end)
    (_, first, result, failed), second = repeater.searcher.heard
    assert (first, failed) == ("a", False)
    assert math.isnan(result["loss"])
    assert second == ("end", "c", None, True)


def test_a_searcher_that_cannot_answer_yet_begins_no_group():
    repeater = Repeater(Recorder([NOT_NOW]), repeat=2)
    assert repeater.suggest("later") is NOT_NOW
    assert repeater.suggest("a")["__trial_index__"] == 0


def test_a_restart_in_the_middle_of_a_group_goes_on_with_it():
    repeater = Repeater(Recorder(), repeat=2)
    repeater.retell("a", {"n": 0, "__trial_index__": 0}, {"of": "a"})
    assert repeater.searcher.heard == [("retell", "a", {"n": 0}, {"of": "a"})]
    assert repeater.suggest("b") == {"n": 0, "__trial_index__": 1}
    assert repeater.suggestion_state("a") == {"of": "a"}
    assert repeater.suggestion_state("b") is None


def test_points_of_others_are_learned_from_without_the_index():
    repeater = Repeater(Recorder(), repeat=2)
    repeater.observe({"n": 1, "__trial_index__": 0}, {"loss": 1})
    assert repeater.searcher.heard == [("observe", {"n": 1}, {"loss": 1})]


def test_a_suggestion_is_paused_while_none_of_its_trials_goes_on():
    repeater = Repeater(ConcurrencyLimiter(BOHBSearch({"x": uniform(0, 1)}, metric="loss", mode="min"), 1), repeat=2)

    def has_place():
        return isinstance(repeater.suggest("c"), dict)

    repeater.suggest("a")
    repeater.on_pause("a")  # the second trial of the group is still to come
    repeater.suggest("b")
    assert not has_place()
    repeater.on_pause("b")
    repeater.on_unpause("a")
    assert not has_place()
    repeater.on_trial_complete("a", {"loss": 1.0})  # "b" waits, nothing runs
    assert has_place()
    assert has_place()
    repeater.on_unpause("b")
    repeater.suggest("d")
    assert repeater.suggest("e") is NOT_NOW


def test_trials_are_counted():
    assert Repeater(RandomSearch(), 3).num_trials(9) == 9
    assert Repeater(RandomSearch(), 3).num_trials(10) == 10
    assert Repeater(RandomSearch(), 3).num_trials(None) is None
    repeater = Repeater(BasicVariantGenerator(), 2)
    assert repeater.set_search_properties("loss", "min", {"a": grid([1, 2, 3])}, num_samples=4)
    assert repeater.num_trials(4) == 12
    session = Session(repeater)
    while isinstance(session.ask(), dict):
        session.searcher.on_trial_complete(session.open.pop(), {"loss": 1})
    assert [config["a"] for config in session.configs] == [1, 1, 2, 2, 3, 3] * 2


def test_a_leftover_group_is_announced():
    repeater = Repeater(RandomSearch(), 3)
    with pytest.warns(UserWarning, match="num_samples=10 is no multiple of repeat=3"):
        repeater.set_search_properties("loss", "min", {"x": uniform(0, 1)}, num_samples=10)
    assert all(isinstance(repeater.suggest(f"t{n}"), dict) for n in range(10))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Repeater(RandomSearch), "expected a searcher"),
        (lambda: Repeater(RandomSearch(), 0), "repeat is 0"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(SearchError, match=message):
        make()
