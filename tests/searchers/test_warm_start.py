"""Tests of learning from earlier trials: pairs, analyses, changed spaces, failed and stopped trials."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

import sweep as tune
from searchers import (
    ConcurrencyLimiter,
    OptunaSearch,
    RandomSearch,
    Searcher,
    SearchError,
    SpaceError,
    choice,
    loguniform,
    sample_from,
    uniform,
)
from searchers.history import HistorySearch
from searchers.named_space import DomainSpace
from searchers.warm_start import Learned

SPACE = {"lr": loguniform(1e-4, 1.0), "kind": choice(["a", "b"]), "twice": sample_from(lambda c: c["lr"] * 2), "n": 3}


class Nearest(HistorySearch):
    """Suggest the best point of all again: the smallest searcher that is told its whole history."""

    def __init__(self, space=None, metric=None, mode=None):
        super().__init__(space, metric, mode, None, 0, "seed")

    def _read(self, space):
        return DomainSpace(space, "Nearest")

    def _propose(self, number):
        past = [tried for tried in self._history() if tried.loss is not None]
        return dict(min(past, key=lambda tried: tried.loss).values) if past else {}


def ready(search, space=SPACE):
    assert search.set_search_properties("loss", "min", space)
    return search


def point(lr, kind, loss):
    return {"lr": lr, "kind": kind, "twice": 2 * lr, "n": 3}, {"loss": loss, "eval": {"top": 1}}


POINTS = [point(0.1, "a", 3.0), point(0.01, "b", 1.0), point(0.5, "a", 2.0)]


@pytest.mark.parametrize("make", [OptunaSearch, Nearest, lambda: ConcurrencyLimiter(Nearest(), 2)])
def test_pairs_are_learned_from_in_their_order(make):
    search = ready(make())
    assert search.observe_all(POINTS) == Learned(3, 0, 0, "")
    inner = getattr(search, "searcher", search)
    if isinstance(inner, OptunaSearch):
        assert [trial.value for trial in inner.study.trials] == [3.0, 1.0, 2.0]
    else:
        assert (search.suggest("t")["lr"], search.suggest("u")["kind"]) == (0.01, "b")


@pytest.mark.parametrize("make", [OptunaSearch, Nearest])
def test_what_has_no_number_teaches_nothing(make):
    bad = [(POINTS[0][0], result) for result in (None, {}, {"loss": None}, {"loss": math.nan}, {"loss": "text"})]
    search = ready(make())
    assert search.observe_all([*bad, POINTS[1]]) == Learned(1, 0, 5, "")


@pytest.mark.parametrize("make", [OptunaSearch, Nearest])
def test_points_outside_a_changed_space_are_counted_and_left_out(make):
    search = ready(make(), SPACE | {"lr": loguniform(0.05, 1.0)})
    with pytest.warns(UserWarning, match=r"1 of 3 evaluated points lie outside the space .* sets lr to 0\.01"):
        learned = search.observe_all(POINTS)
    assert (learned.num_learned, learned.num_outside, learned.num_without_metric) == (2, 1, 0)
    assert "sets lr to 0.01" in learned.first_outside


@pytest.mark.parametrize("make", [OptunaSearch, Nearest])
@pytest.mark.parametrize(
    "space",
    [SPACE | {"lr": loguniform(2.0, 3.0)}, SPACE | {"new": uniform(0, 1)}, {"lr": SPACE["lr"], "n": 3}],
)
def test_a_space_that_holds_none_of_them_is_an_error(make, space):
    with pytest.raises(
        SpaceError, match=r"none of the 3 evaluated points lies in the space of this search\. The first"
    ):
        ready(make(), space).observe_all(POINTS)


def test_nested_metrics_have_the_names_that_a_sweep_gives_them():
    search = OptunaSearch({"lr": SPACE["lr"]}, "eval/top", "max")
    search.observe_all([({"lr": 0.1}, {"eval": {"top": 0.5}})])
    assert search.study.trials[0].value == 0.5


def test_several_objectives_need_all_of_their_metrics_but_not_what_is_watched():
    search = OptunaSearch({"lr": SPACE["lr"]}, ["a", "b", "c"], ["min", "obs", "max"])
    pairs = [({"lr": 0.1}, {"a": 1.0, "c": 2.0}), ({"lr": 0.1}, {"a": 1.0, "b": 3.0})]
    assert search.observe_all(pairs) == Learned(1, 0, 1, "")
    assert [trial.values for trial in search.study.trials] == [[1.0, 2.0]]


def test_constraints_are_read_off_the_results():
    search = OptunaSearch({"lr": SPACE["lr"]}, "a", "min", constraints={"size": 5})
    search.observe_all([({"lr": 0.1}, {"a": 1.0, "size": 7}), ({"lr": 0.2}, {"a": 2.0, "size": 4})])
    assert search.study.best_value == 2.0


def test_failed_trials_teach_nothing_and_stopped_ones_their_last_value():
    config = POINTS[0][0]
    trials = [
        SimpleNamespace(config=config, status="ERROR", last_result={"loss": 0.0}),
        SimpleNamespace(config=config, error=ValueError(), metrics={"loss": 0.0}),
        SimpleNamespace(config=config, status="TERMINATED", last_result={"loss": 4.0, "done": False}),
    ]
    search = ready(OptunaSearch())
    assert search.add_evaluated_trials(trials) == 1
    assert [trial.value for trial in search.study.trials] == [4.0]


def test_who_cannot_learn_says_so():
    with pytest.raises(SearchError, match="RandomSearch cannot learn from points it did not propose"):
        ready(RandomSearch()).observe_all(POINTS)
    with pytest.raises(SearchError, match="does not know its metric"):
        OptunaSearch(SPACE).observe_all(POINTS)
    with pytest.raises(SearchError, match=r"metric is 'x', but this search has several: \['a', 'b'\]"):
        OptunaSearch(SPACE, ["a", "b"], ["min", "max"]).add_evaluated_trials([], "x")


@pytest.mark.parametrize("make", [OptunaSearch, Nearest])
def test_a_sweep_on_disk_is_learned_from(make, tmp_path):
    def trainable(config):
        if config["lr"] > 0.9:
            raise ValueError("too large")
        return {"loss": config["lr"]}

    first = tune.run(
        trainable,
        config={"lr": tune.grid_search([0.1, 0.2, 0.99]), "kind": "a", "n": 3},
        metric="loss",
        mode="min",
        storage_path=str(tmp_path),
        name="first",
        engine="inline",
        verbose=0,
        raise_on_failed_trial=False,
    )
    search: Searcher = ready(make(), {"lr": uniform(0, 1), "kind": "a", "n": 3})
    assert search.add_evaluated_trials(tune.ExperimentAnalysis(str(tmp_path / "first"))) == 2
    assert search.add_evaluated_trials(first) == 2
    if isinstance(search, OptunaSearch):
        assert [trial.value for trial in search.study.trials] == [0.1, 0.2, 0.1, 0.2]
    else:
        assert search.suggest("t") == {"lr": 0.1, "kind": "a", "n": 3}
