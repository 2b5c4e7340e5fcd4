"""Tests of what every searcher has: metric and mode, points of others, files of what was learned."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import pytest
from conformance.searchers import SPACE, Recorder

from searchers import (
    EXHAUSTED,
    NOT_NOW,
    BasicVariantGenerator,
    BayesOptSearch,
    BOHBSearch,
    ConcurrencyLimiter,
    GridSearch,
    HyperOptSearch,
    OptunaSearch,
    RandomSearch,
    Searcher,
    SearchError,
    SpaceError,
    create_searcher,
    grid_search,
    uniform,
)
from searchers.base import answer_of


def observed(search):
    return [(config, result) for what, config, result in search.heard if what == "observe"]


# --- as in Tune ------------------------------------------------------------------------------------------------------


def test_the_names_of_tune_mean_the_same():
    assert Searcher.FINISHED is EXHAUSTED
    assert RandomSearch().set_search_properties("loss", "min", config={"x": uniform(0, 1)}, stop=None, time_budget_s=3)
    with pytest.raises(TypeError, match=r"set_search_properties has no parameter 'space'\. It is called config\."):
        RandomSearch().set_search_properties("loss", "min", space={"x": uniform(0, 1)}, config={})
    with pytest.raises(TypeError, match=r"has no parameter 'sed'\. Did you mean 'seed'"):
        OptunaSearch().set_search_properties("loss", "min", config={"x": uniform(0, 1)}, sed=3)
    assert [answer_of(answer) for answer in (None, NOT_NOW, EXHAUSTED, {})] == [NOT_NOW, NOT_NOW, EXHAUSTED, {}]


def test_a_searcher_that_keeps_its_metric_under_tunes_name_is_understood():
    class Own(Searcher):
        def __init__(self):  # calls no __init__ of ours
            self._metric = "score"

        def suggest(self, trial_id):
            return {}

    search = Own()
    assert (search.metric, search.mode) == ("score", None)
    assert search.set_search_properties("score", "max", {})
    assert (search._metric, search._mode, search.mode) == ("score", "max", "max")
    assert not search.set_search_properties("loss", "max", {})


@pytest.mark.parametrize(
    ("metric", "mode", "message"),
    [
        ("loss", "best", "mode is 'best'; expected 'min' or 'max'"),
        ("loss", "obs", "mode is 'obs'"),
        (["a", "b"], ["min"], "2 metrics but 1 modes"),
        (["a", "b"], ["obs", "obs"], "all metrics are only watched"),
        (["a"], ["least"], "mode is 'least'"),
    ],
)
def test_metric_and_mode_are_checked_together(metric, mode, message):
    with pytest.raises(SearchError, match=message):
        Recorder((), metric, mode)


def test_a_watched_metric_may_stand_beside_an_optimised_one():
    assert Recorder((), ["a", "b"], ["min", "obs"]).mode == ["min", "obs"]


def test_no_searcher_limits_itself_unless_it_says_so():
    assert Recorder().set_max_concurrency(3) is False


# --- points of others ------------------------------------------------------------------------------------------------


def test_evaluated_points_are_observed_and_those_without_a_value_are_not():
    search = Recorder()
    search.add_evaluated_point({"x": 1}, 2.0)
    search.add_evaluated_point({"x": 2}, 3.0, error=True)
    search.add_evaluated_point({"x": 3}, 4.0, pruned=True, intermediate_values=[1, 2])
    assert observed(search) == [({"x": 1}, {"loss": 2.0})]
    several = Recorder((), ["a", "b"], ["min", "max"])
    several.add_evaluated_point({}, [1, 2])
    assert observed(several) == [({}, {"a": 1, "b": 2})]
    with pytest.raises(SearchError, match="expected 2 numbers"):
        several.add_evaluated_point({}, 1)
    with pytest.raises(SearchError, match="does not know its metric"):
        Recorder(metric=None, mode=None).add_evaluated_point({}, 1)


def test_the_trials_of_another_sweep_are_learned_from():
    trials = [
        SimpleNamespace(config={"x": 1}, last_result={"loss": 2.0}),
        SimpleNamespace(config={"x": 2}, last_result=None),
        SimpleNamespace(config={"x": 3}, metrics={"loss": math.inf, "score": 5}),
        SimpleNamespace(config={"x": 4}, last_result={"score": 7}),
    ]
    search = Recorder()
    assert search.add_evaluated_trials(trials) == 2
    assert observed(search) == [({"x": 1}, {"loss": 2.0}), ({"x": 3}, {"loss": math.inf, "score": 5})]
    search = Recorder()
    assert search.add_evaluated_trials(SimpleNamespace(trials=trials), "score") == 2
    assert observed(search) == [({"x": 3}, {"loss": 5, "score": 5}), ({"x": 4}, {"loss": 7, "score": 7})]
    assert search.add_evaluated_trials(trials[0]) == 1
    with pytest.raises(SearchError, match="has no config to learn from"):
        search.add_evaluated_trials([3])


# --- files -----------------------------------------------------------------------------------------------------------


def known(search, seed=11, num_samples=None):
    assert search.set_search_properties("loss", "min", SPACE, num_samples=num_samples, seed=seed)
    return search


def test_open_trials_are_no_part_of_a_state(tmp_path):
    limiter = known(ConcurrencyLimiter(OptunaSearch(), 1))
    for trial_id in ("t0", "t1"):
        limiter.suggest(trial_id)
        limiter.on_trial_complete(trial_id, {"loss": 1.0})
    limiter.suggest("open")
    limiter.save(tmp_path / "state")
    bare = OptunaSearch()
    bare.restore(tmp_path / "state")  # a limit is no part of a state either
    assert [trial.user_attrs["trial_id"] for trial in known(bare).study.trials] == ["t0", "t1"]
    again = ConcurrencyLimiter(OptunaSearch(), 1)
    again.restore(tmp_path / "state")
    assert known(again).suggest("a") is not NOT_NOW


def test_a_restored_grid_goes_on_behind_its_last_point():
    space = {"a": grid_search([1, 2, 3]), "r": uniform(0, 1)}
    first = BasicVariantGenerator(random_state=3)
    assert first.set_search_properties(None, None, space, num_samples=1)
    before = [first.suggest(str(n)) for n in range(3)]
    assert first.suggest("x") is EXHAUSTED
    again = BasicVariantGenerator()
    again.set_state(json.loads(json.dumps(first.get_state())))
    assert again.set_search_properties(None, None, space, num_samples=2)
    assert again.num_trials(2) == 6
    after = [again.suggest(str(n)) for n in range(6)]
    assert again.suggest("x") is EXHAUSTED
    whole = BasicVariantGenerator(random_state=3)
    assert whole.set_search_properties(None, None, space, num_samples=3)
    assert before + after == [whole.suggest(str(n)) for n in range(9)]


def test_the_rest_of_a_sample_that_was_begun_is_finished_before_new_ones():
    space = {"a": grid_search([1, 2, 3])}
    first = GridSearch(space)
    first.suggest("a")
    again = GridSearch(space)
    again.set_state(first.get_state())
    assert again.set_search_properties(None, None, {}, num_samples=1)
    assert [again.suggest(str(n)) for n in range(6)] == [{"a": a} for a in (2, 3, 1, 2, 3)] + [EXHAUSTED]
    assert again.num_trials(1) == 5


def test_evaluated_points_and_functions_as_spaces_are_restored_without_doubles(tmp_path):
    def space(trial):
        if trial.suggest_categorical("kind", ["a", "b"]) == "b":
            trial.suggest_int("depth", 1, 9)

    def make():
        return OptunaSearch(space, "loss", "min", [{"kind": "b", "depth": 3}], seed=1, evaluated_rewards=[0.25])

    search = make()
    for n in range(4):
        search.suggest(f"t{n}")
        search.on_trial_result(f"t{n}", {"loss": 1.0, "training_iteration": 1})
        search.on_trial_complete(f"t{n}", {"loss": float(n)})
    search.save(tmp_path / "state")
    again = make()
    again.restore(tmp_path / "state")
    assert [(t.params, t.values, t.intermediate_values) for t in again.study.trials] == [
        (t.params, t.values, t.intermediate_values) for t in search.study.trials
    ]
    assert again.suggest("next") == search.suggest("next")


def test_a_state_file_is_whole_or_not_there(tmp_path):
    search = known(RandomSearch())
    search.save_to_dir(tmp_path, "2026-01-01")
    search.suggest("a")
    search.save_to_dir(tmp_path, "2026-01-02")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "searcher-state-2026-01-01.json",
        "searcher-state-2026-01-02.json",
    ]
    again = RandomSearch()
    again.restore_from_dir(tmp_path)
    assert again.get_state()["count"] == 1
    with pytest.raises(OSError, match="missing"):
        search.save(tmp_path / "missing" / "state")
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        search.save(tmp_path / "taken")


def test_a_state_that_is_no_json_is_refused_and_leaves_nothing_behind(tmp_path):
    class Own(Recorder):
        def get_state(self):
            return {"what": object()}

    with pytest.raises(SearchError, match="the state of Own cannot be written as JSON"):
        Own().save(tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_restored_is_refused_with_the_reason(tmp_path):
    search = known(OptunaSearch())
    search.suggest("a")
    search.save(tmp_path / "state")
    (tmp_path / "broken").write_text("{")
    (tmp_path / "other").write_text("[1]")
    (tmp_path / "newer").write_text('{"format": 2, "searcher": "OptunaSearch", "state": {}}')
    for name, message in {
        "missing": "there is no searcher state",
        "broken": "cannot be read as the state of a searcher",
        "other": "is no state of a searcher",
        "newer": "is no state of a searcher",
    }.items():
        with pytest.raises(SearchError, match=message):
            OptunaSearch().restore(tmp_path / name)
    with pytest.raises(SearchError, match="is the state of OptunaSearch; it cannot be restored into GridSearch"):
        GridSearch().restore(tmp_path / "state")
    with pytest.raises(SearchError, match="this search has begun"):
        search.restore(tmp_path / "state")
    with pytest.raises(SearchError, match="the state is of metric='loss' and mode='min', this search is for"):
        OptunaSearch(metric="loss", mode="max").restore(tmp_path / "state")
    with pytest.raises(SearchError, match=r"holds no searcher-state-\*\.json; .* warm_start=directory"):
        OptunaSearch().restore_from_dir(tmp_path)
    with pytest.raises(SearchError, match="Recorder cannot be saved"):
        Recorder().save(tmp_path / "told")
    with pytest.raises(SearchError, match="Recorder cannot be restored"):
        Recorder().set_state({})


def test_a_space_that_no_longer_holds_the_points_is_refused():
    search = OptunaSearch({"x": uniform(0, 1)}, "loss", "min")
    search.suggest("a")
    search.on_trial_complete("a", {"loss": 1})
    again = OptunaSearch({"y": uniform(0, 1)}, "loss", "min")
    again.set_state(search.get_state())
    with pytest.raises(SpaceError, match="a trial of the saved search"):
        again.suggest("a")


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "arguments", "words"),
    [
        (BayesOptSearch, {"utility_kwargs": {"kapa": 1}}, "utility_kwargs is 'kapa'; .* Did you mean 'kappa'"),
        (BayesOptSearch, {"utility_kwargs": {"kind": "uct"}}, "kind of utility_kwargs is 'uct'; .* Did you mean 'ucb'"),
        (BayesOptSearch, {"utility_kwargs": {"kappa": -1}}, "kappa of utility_kwargs is -1; expected a finite"),
        (BayesOptSearch, {"utility_kwargs": {"kappa_decay": 1.5}}, "is 1.5; .* above 0 and at most 1"),
        (BayesOptSearch, {"utility_kwargs": {"kappa_decay_delay": -1}}, "kappa_decay_delay is -1"),
        (BayesOptSearch, {"random_state": -1}, "random_state is -1"),
        (BayesOptSearch, {"random_search_steps": -1}, "random_search_steps is -1; expected a whole number"),
        (BayesOptSearch, {"patience": 0}, "patience is 0; expected a whole number of at least 1"),
        (BayesOptSearch, {"metric": ["a", "b"]}, "metric is \\['a', 'b'\\]; BayesOptSearch has one objective"),
        (HyperOptSearch, {"n_initial_points": -1}, "n_initial_points is -1; expected a whole number of at least 0"),
        (HyperOptSearch, {"gamma": 1}, "gamma is 1; expected a number above 0 and below 1"),
        (HyperOptSearch, {"random_state_seed": -3}, "random_state_seed is -3"),
        (HyperOptSearch, {"metric": ["a", "b"], "mode": ["min", "max"]}, "has one objective. Use OptunaSearch"),
        (HyperOptSearch, {"points_to_evaluate": {"x": 1}}, "expected a list of configs"),
        (BOHBSearch, {"seed": -1}, "seed is -1"),
        (BOHBSearch, {"max_concurrent": -1}, "max_concurrent is -1; .* at least 0. 0 means no limit"),
        (BOHBSearch, {"budgets": []}, r"budgets is \[\]; expected a list of finite numbers above 0"),
        (BOHBSearch, {"budgets": [1, math.nan]}, "budgets is"),
        (BOHBSearch, {"max_t": 0.5}, "max_t is 0.5; expected a finite number of at least 1"),
        (BOHBSearch, {"reduction_factor": 1}, "reduction_factor is 1; expected a finite number above 1"),
        (BOHBSearch, {"metric": ["a", "b"]}, "BOHBSearch has one objective"),
        (BOHBSearch, {"bohb_config": [1]}, "bohb_config is .*expected a dict with some of min_points"),
        (BOHBSearch, {"bohb_config": {"min_points_in_model": 0}}, "min_points_in_model of bohb_config is 0"),
        (BOHBSearch, {"bohb_config": {"num_samples": None}}, "num_samples of bohb_config is None; .* at least 1"),
        (BOHBSearch, {"bohb_config": {"top_n_percent": 100}}, "of bohb_config is 100; .* above 0 and below 100"),
        (BOHBSearch, {"bohb_config": {"random_fraction": 1.1}}, "of bohb_config is 1.1; .* and at most 1"),
        (BOHBSearch, {"bohb_config": {"num_sample": 3}}, "a name in bohb_config is .* Did you mean 'num_samples'"),
    ],
)
def test_a_wrong_argument_is_named(build, arguments, words):
    with pytest.raises(SearchError, match=words):
        build(**arguments)


@pytest.mark.parametrize("kind", [HyperOptSearch, BOHBSearch, OptunaSearch])
def test_metric_mode_and_space_must_be_known(kind):
    with pytest.raises(SearchError, match="needs both, for instance metric='loss'"):
        kind({"x": uniform(0, 1)}).suggest("t")
    with pytest.raises(SearchError, match="mode=None; it needs both"):
        kind(metric="loss").set_search_properties(None, None, {"x": uniform(0, 1)})  # before a run begins
    with pytest.raises(SearchError, match="has no space to search"):
        kind(metric="loss", mode="min").suggest("t")


@pytest.mark.parametrize("kind", [RandomSearch, BOHBSearch, OptunaSearch])
def test_a_space_of_its_own_takes_constants_of_the_run_and_no_second_space(kind):
    search = kind({"x": uniform(0, 1)}, metric="loss", mode="min")
    assert not search.set_search_properties(None, None, {"y": uniform(0, 1)})
    assert search.set_search_properties(None, None, {"epochs": 3})
    assert search.suggest("t").keys() == {"x", "epochs"}


@pytest.mark.parametrize(
    ("name", "module", "kind", "package"),
    [
        ("hyperopt", "hyperopt", "HyperOptSearch", "hyperopt"),
        ("bayesopt", "bayes_opt", "BayesOptSearch", "bayesian-optimization"),
    ],
)
def test_a_missing_library_is_named_before_anything_starts(monkeypatch, name, module, kind, package):
    monkeypatch.setitem(sys.modules, module, None)
    search = create_searcher(name)
    with pytest.raises(SearchError, match=f"{kind} needs the package {package}: pip install {package}"):
        search.set_search_properties("loss", "min", {"x": uniform(0, 1)})
