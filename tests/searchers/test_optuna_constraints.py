"""Tests of constraints: where they come from, what Optuna's samplers make of them, and that a restart keeps them."""

from __future__ import annotations

import math

import optuna
import pytest
from optuna.trial import TrialState

from searchers import OptunaSearch, SearchError, uniform
from searchers.base import derived_seed
from searchers.optuna_search import Constraints

SPACE = {"x": uniform(0.0, 1.0), "y": uniform(0.0, 1.0)}


def result_of(config):
    """The best loss lies where the constraint is violated: x + y must be at least 1."""
    return {"loss": config["x"] + config["y"], "lack": 1 - config["x"] - config["y"], "training_iteration": 1}


def searched(search, num_trials, result=result_of):
    for _ in range(num_trials):
        trial_id, config = search.ask()
        search.tell(trial_id, result(config))
    return search


@pytest.mark.parametrize(
    ("limits", "result", "violations"),
    [
        ("a", {"a": 0.5}, [0.5]),
        (["a", "b"], {"a": -1, "b": 2}, [-1.0, 2.0]),
        ({"a": 5, "b": 1.5}, {"a": 4, "b": 2}, [-1.0, 0.5]),
        (lambda result: result["a"] - 1, {"a": 3}, [2.0]),
        (lambda result: (result["a"], -1), {"a": 3}, [3.0, -1.0]),
        ("a", {}, None),
        ("a", {"a": "text"}, None),
        ("a", {"a": math.nan}, None),
        (lambda result: math.nan, {}, None),
    ],
)
def test_violations_are_read_off_a_result(limits, result, violations):
    assert Constraints(limits).violations(result) == violations


def test_what_the_function_does_wrong_is_said_once():
    limits = Constraints(lambda result: result["a"])
    with pytest.warns(UserWarning, match="the function of constraints raised KeyError: 'a'") as said:
        assert [limits.violations({}), limits.violations({})] == [None, None]
    assert len(said) == 1
    limits = Constraints(lambda result: result["a"])
    assert limits.violations({"a": [1, 2]}) == [1.0, 2.0]
    with pytest.warns(UserWarning, match="returned 1 values; expected 2, each time as many"):
        assert limits.violations({"a": [1]}) is None
    with pytest.warns(UserWarning, match="returned 0 values; expected at least 1"):
        assert Constraints(lambda result: []).violations({}) is None


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("tpe", lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True)),
        ("nsgaii", lambda seed: optuna.samplers.NSGAIISampler(seed=seed)),
        ("nsgaiii", lambda seed: optuna.samplers.NSGAIIISampler(seed=seed)),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_the_study_is_that_of_a_plain_one_whose_trials_have_constraints(name, make):
    num_trials = 24 if name == "tpe" else 60
    search = searched(OptunaSearch(SPACE, "loss", "min", sampler=name, constraints="lack", seed=2), num_trials)
    plain = optuna.create_study()
    for draw in range(num_trials):
        plain.sampler = make(derived_seed(2, draw))
        trial = plain.ask()
        config = {"x": trial.suggest_float("x", 0, 1), "y": trial.suggest_float("y", 0, 1)}
        trial.set_constraint("0", result_of(config)["lack"])
        plain.tell(trial, result_of(config)["loss"])
    assert [trial.params for trial in search.study.trials] == [trial.params for trial in plain.trials]
    assert [trial.constraints for trial in search.study.trials] == [trial.constraints for trial in plain.trials]


def test_a_gaussian_process_hears_of_constraints():
    search = OptunaSearch(SPACE, "loss", "min", sampler="gp", constraints={"lack": 0.0}, seed=1)
    for x, y in ((0.1, 0.1), (0.9, 0.9), (0.5, 0.6), (0.7, 0.2), (0.3, 0.9), (0.2, 0.2), (0.6, 0.6), (0.8, 0.1)):
        search.observe({"x": x, "y": y}, result_of({"x": x, "y": y}))
    searched(search, 2, lambda config: {"loss": 1.0})
    searched(search, 2)
    constraints = [list(trial.constraints.values()) for trial in search.study.trials]
    assert constraints[:2] == [[0.8], [1 - 0.9 - 0.9]]
    assert constraints[8:10] == [[math.inf], [math.inf]]
    assert [trial.state for trial in search.study.trials[8:10]] == [TrialState.PRUNED] * 2


@pytest.mark.parametrize(
    ("result", "error", "state", "violations"),
    [
        ({"loss": 1, "lack": -1}, False, TrialState.COMPLETE, [-1.0]),
        ({"loss": 1, "lack": 2}, False, TrialState.COMPLETE, [2.0]),
        ({"loss": 1}, False, TrialState.PRUNED, [math.inf]),
        ({"lack": -1}, False, TrialState.PRUNED, [-1.0]),
        (None, False, TrialState.PRUNED, [math.inf]),
        (None, True, TrialState.FAIL, []),
    ],
)
def test_how_a_trial_ends(result, error, state, violations):
    search = OptunaSearch(SPACE, "loss", "min", constraints="lack")
    search.suggest("a")
    search.on_trial_complete("a", result, error)
    (trial,) = search.study.trials
    assert (trial.state, list(trial.constraints.values())) == (state, violations)


def test_a_lasting_storage_is_not_told_twice(tmp_path):
    def make():
        return OptunaSearch(
            SPACE, "loss", "min", constraints="lack", storage=f"sqlite:///{tmp_path}/study.db", study_name="s"
        )

    first = make()
    config = first.suggest("a")
    first.on_trial_complete("a", {"loss": 1.0, "lack": 0.5})
    again = make()
    again.retell("a", config, None)
    again.on_trial_complete("a", {"loss": 1.0, "lack": 0.5})
    assert [(trial.value, trial.constraints) for trial in again.study.trials] == [(1.0, {"0": 0.5})]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"constraints": 3}, "constraints is 3; expected names of metrics"),
        ({"constraints": []}, r"constraints is \[\]; expected names"),
        ({"constraints": {"a": "b"}}, r"constraints\['a'\] is 'b'; expected a finite number"),
        ({"constraints": "a", "sampler": "cmaes"}, "cannot go with the sampler 'cmaes'"),
        (
            {"constraints": "a", "points_to_evaluate": [{}], "evaluated_rewards": [1]},
            "cannot go with evaluated_rewards",
        ),
    ],
)
def test_wrong_constraints_are_refused(arguments, message):
    with pytest.raises(SearchError, match=message):
        OptunaSearch(SPACE, "loss", "min", **arguments)
