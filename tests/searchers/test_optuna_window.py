"""Tests of the window: the Parzen estimator sees the best and the newest trials, and its good ones stay the same."""

from __future__ import annotations

import random

import optuna
import pytest
from optuna.samplers._tpe.sampler import _split_trials, default_gamma
from optuna.trial import TrialState, create_trial

from searchers import OptunaSearch, SearchError, choice, loguniform, randint, uniform
from searchers.optuna_samplers import CONSTRAINTS, Window

SPACE = {"kind": choice(["a", "b"]), "lr": loguniform(1e-4, 1.0), "x": uniform(0.0, 1.0)}


def changing(trial):
    """A range that is another one from time to time, and a parameter that not every trial has."""
    x = trial.suggest_float("x", 0.0, 1.0 + trial.number // 40 % 2)
    if trial.suggest_categorical("kind", ["a", "b"]) == "a":
        trial.suggest_float("lr", 1e-4, 1.0 + x, log=True)


SPACES = {
    "continuous": SPACE,
    "finite": {"kind": choice(["a", "b"]), "x": choice([0.1, 0.2, 0.4, 0.6]), "n": randint(0, 40)},
    "conditional": {"x": uniform(0.0, 1.0), "model": choice([{"kind": "a", "lr": loguniform(1e-4, 1.0)}, {"n": 3}])},
    "changing": changing,
}


def loss_of(config):
    return (config["x"] - 0.5) ** 2 + config.get("lr", 0.1) + (config.get("kind") == "a") / 4


def asked(window, num_trials, told=(), space=SPACE, observed=(), storage=None):
    search = OptunaSearch(space, "loss", "min", seed=5, window=window, storage=storage)
    record = []
    for number in range(num_trials):
        if number in observed:
            search.observe(record[number // 2][1], {"loss": loss_of(record[number // 2][1])})
        if number < len(told):
            trial_id, config, state = told[number]
            search.retell(trial_id, config, state)
        else:
            trial_id, config = f"t{number}", search.suggest(f"t{number}")
        record.append((trial_id, config, search.suggestion_state(trial_id)))
        if number >= 3:  # four trials at a time
            search.on_trial_complete(f"t{number - 3}", {"loss": loss_of(record[number - 3][1])})
    return search, record


def study_of(outcomes, directions=("minimize",)):
    """Return a study of trials: a value, ("pruned", step, value), ("infeasible", violation), "open", or "failed"."""
    study = optuna.create_study(directions=list(directions))
    for outcome in outcomes:
        match outcome:
            case "open":
                study.add_trial(create_trial(state=TrialState.RUNNING))
            case "failed":
                study.add_trial(create_trial(state=TrialState.FAIL))
            case ("pruned", step, value):
                reports = {} if step is None else {step: value}
                study.add_trial(create_trial(state=TrialState.PRUNED, intermediate_values=reports))
            case ("infeasible", violation):
                study.add_trial(create_trial(value=0.0, system_attrs={CONSTRAINTS: [violation]}))
            case (*values,):
                study.add_trial(create_trial(values=values))
            case value:
                study.add_trial(create_trial(value=value))
    return study


def numbers(window, study):
    return [trial.number for trial in Window(window).of(study, study.trials)]


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_below_the_window_nothing_changes(space):
    """Without a window, Optuna's sampler looks at all trials of the study itself."""
    _, whole = asked(None, 60, space=space, observed=(20, 21, 40))
    search, seen = asked(60, 60, space=space, observed=(20, 21, 40))
    assert seen == whole
    assert type(search.study.sampler).__name__ == "TPESampler"


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_one_trial_of_each_kind_tells_the_space_of_all(space, monkeypatch):
    _, seen = asked(50, 75, space=space)
    monkeypatch.setattr(Window, "one_of_each_kind", lambda _, trials: trials)
    assert asked(50, 75, space=space)[1] == seen


def test_what_others_add_to_a_storage_is_seen():
    storage = optuna.storages.InMemoryStorage()
    search, _ = asked(50, 20, storage=storage)
    search.study.add_trial(create_trial(value=0.0, params={}, distributions={}))
    search.suggest("next")
    assert 20 in [trial.number for trial in search._sampling.window.of(search.study, ())]


def test_a_suggestion_looks_only_at_what_ended_since(monkeypatch):
    search, _ = asked(50, 20)
    search.suggest("next")
    monkeypatch.setattr(type(search.study), "get_trials", None)
    monkeypatch.setattr(Window, "_see", lambda _, trial, __: looked_at.append(trial.number))
    for looked_at, ended in [([], ()), ([], (17, 19)), ([], ())]:
        for number in ended:
            search.on_trial_complete(f"t{number}", {"loss": 1.0})
        search.suggest(f"after {ended} {len(search._open)}")
        assert looked_at == [*ended]


def test_beyond_it_the_estimator_sees_the_best_and_the_newest():
    search, _ = asked(50, 76)
    best = sorted(range(48), key=lambda number: search.study.trials[number].value)[:25]
    assert numbers(50, search.study) == sorted(best) + list(range(48, 73))
    _, whole = asked(None, 76)
    assert [config for _, config, _ in whole] != [config for _, config, _ in asked(50, 76)[1]]


def test_a_restart_beyond_the_window_changes_nothing():
    _, whole = asked(50, 76)
    for num_told in (40, 72):
        assert [config for _, config, _ in asked(50, 76, whole[:num_told])[1]] == [config for _, config, _ in whole]


@pytest.mark.parametrize(
    ("outcomes", "shown"),
    [
        ([3, 1, 2, 0, 9, 9, 9], [1, 3, 4, 5, 6]),
        ([1, 1, 1, 1, 9, 9, 9], [0, 1, 4, 5, 6]),
        ([3, "failed", "open", 0, 9, 9, 9, "open", 9], [0, 3, 5, 6, 8]),
        ([("pruned", 3, 5), ("pruned", 3, 4), ("pruned", 2, 0), ("pruned", None, None), 9, 9, 9], [0, 1, 4, 5, 6]),
        ([("infeasible", 1), ("infeasible", 0.5), ("pruned", None, None), 8, 9, 9, 9], [2, 3, 4, 5, 6]),
        ([("infeasible", 1), ("infeasible", 0.5), ("infeasible", -1), 8, 9, 9, 9], [2, 3, 4, 5, 6]),
        ([("pruned", 1, float("nan")), ("pruned", 1, 5), ("pruned", 0, 0), 9, 9, 9], [0, 1, 3, 4, 5]),
    ],
)
def test_what_the_window_shows(outcomes, shown):
    assert numbers(5, study_of(outcomes)) == shown


def test_a_window_that_saw_trials_end_in_any_order_shows_what_a_new_one_shows():
    rng, study, window = random.Random(2), optuna.create_study(), Window(20)
    going_on, new, sizes = [], [], set()
    for _ in range(300):
        going_on.append(study.ask())
        if len(going_on) > 15:
            ended = going_on.pop(rng.randrange(len(going_on)))
            new = [study.tell(ended, *rng.choice([(rng.random(),), (None, TrialState.FAIL)]))]
        shown, anew = window.of(study, new), Window(20).of(study, study.trials)
        assert shown == anew
        sizes.add(len(shown))
    assert sizes == {*range(21)}


def test_with_several_objectives_the_front_is_shown():
    outcomes = [(1, 1), (2, 2), (2, 1), (1, 1), (0, 0), (9, 0), (9, 0), (9, 0)]
    study = study_of(outcomes, ["minimize", "maximize"])
    assert numbers(5, study) == [3, 4, 5, 6, 7]
    study = study_of([(5, 5), (1, 1), (0, 6), (9, 0), (9, 0), (9, 0)], ["minimize", "maximize"])
    assert numbers(5, study) == [2, 3, 4, 5]
    study = study_of([(0, 0), (1, 1), (2, 2), (3, 3), (9, 0), (9, 0), (9, 0)], ["minimize", "maximize"])
    assert numbers(5, study) == [2, 3, 4, 5, 6]


def test_the_good_trials_of_the_estimator_are_those_that_it_would_have_without_a_window():
    rng = random.Random(1)
    outcomes = [
        rng.choice([rng.random(), ("pruned", rng.randrange(3), rng.random()), ("infeasible", rng.random()), "failed"])
        for _ in range(400)
    ]
    study = study_of(outcomes)
    ended = [trial for trial in study.trials if trial.state != TrialState.FAIL]
    good, _ = _split_trials(study, ended, default_gamma(len(ended)))
    seen = Window(60).of(study, study.trials)
    assert len(seen) == 60
    good_in_window, _ = _split_trials(study, seen, default_gamma(400))
    assert [trial.number for trial in good_in_window] == [trial.number for trial in good]


@pytest.mark.parametrize("window", [49, 0, -1, True, 60.0, "all"])
def test_a_wrong_window_is_refused(window):
    with pytest.raises(SearchError, match="expected a whole number of at least 50"):
        OptunaSearch(window=window)
