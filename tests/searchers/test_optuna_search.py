"""Tests of the searcher that asks Optuna, beyond the contract that every searcher keeps."""

from __future__ import annotations

import json
import math
from types import MappingProxyType

import optuna
import pytest
from conformance.searchers import Session
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from searchers import (
    OptunaSearch,
    SearchError,
    SpaceError,
    UnknownNameError,
    as_searcher,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

CONDITIONAL = MappingProxyType(
    {
        "model": choice(
            [
                {"kind": "linear", "lr": loguniform(1e-3, 1)},
                {"kind": "mlp", "lr": loguniform(1e-5, 1e-1), "layers": [randint(1, 5), qrandint(8, 64, 8)]},
                "none",
            ]
        ),
        "drop": uniform(0, 0.5),
    }
)


def ready(space, **arguments):
    search = OptunaSearch(**arguments)
    assert search.set_search_properties(*(arguments.get(k, d) for k, d in (("metric", "loss"), ("mode", "min"))), space)
    return search


def suggestions(search, number, loss=lambda config: 0.0):
    configs = []
    for n in range(number):
        configs.append(search.suggest(f"t{n}"))
        search.on_trial_complete(f"t{n}", {"loss": loss(configs[-1])})
    return configs


# --- spaces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "distribution"),
    [
        (uniform(0, 1), FloatDistribution(0, 1)),
        (quniform(0, 1, 0.25), FloatDistribution(0, 1, step=0.25)),
        (loguniform(1e-3, 1), FloatDistribution(1e-3, 1, log=True)),
        (qloguniform(0.5, 8, 0.5), FloatDistribution(0.5, 8, log=True)),
        (randint(1, 5), IntDistribution(1, 4)),
        (qrandint(1, 10, 3), IntDistribution(3, 9, step=3)),
        (lograndint(1, 5), IntDistribution(1, 4, log=True)),
        (qlograndint(2, 10, 2), IntDistribution(2, 10, log=True)),
        (choice(["a", 2, None, 2.5, True]), CategoricalDistribution(["a", 2, None, 2.5, True])),
    ],
)
def test_domains_become_distributions(domain, distribution):
    search = ready({"x": domain})
    values = [config["x"] for config in suggestions(search, 12)]
    assert search.study.trials[0].distributions == {"x": distribution}
    assert search._ot_study is search.study
    assert all(domain.is_valid(value) for value in values)
    assert len(set(values)) > 1


def test_quantized_log_values_are_rounded_not_forgotten():
    search = ready({"x": qloguniform(0.5, 8, 0.5), "n": qlograndint(2, 10, 2)})
    for config in suggestions(search, 10):
        assert config["x"] % 0.5 == 0
        assert config["n"] in (2, 4, 6, 8, 10)
        assert type(config["n"]) is int


def test_names_are_flat_in_the_study_and_nested_in_the_config():
    search = ready({"a": {"b": uniform(0, 1), "l": [1, (uniform(0, 1),)]}, "c": 3})
    config = search.suggest("t")
    assert search.study.trials[0].params == {"a/b": config["a"]["b"], "a/l/1/0": config["a"]["l"][1][0]}
    assert config["c"] == 3
    assert isinstance(config["a"]["l"][1], tuple)


def test_options_that_are_no_plain_values_come_back_as_they_are():
    marker = object()
    options = [marker, [64, 64], (1, 2), {"a": 1}, "x"]
    search = ready({"o": choice(options)})
    values = [config["o"] for config in suggestions(search, 40)]
    assert all(any(value == option for option in options) for value in values)
    assert any(value is marker for value in values)
    labels = search.study.trials[0].distributions["o"].choices
    assert labels == ("option 0", "[64, 64]", "[1, 2]", '{"a": 1}', '"x"')


def test_options_that_are_equal_stay_apart():
    values = [config["o"] for config in suggestions(ready({"o": choice([1, True, 1.0, 1])}), 40)]
    assert {type(value) for value in values} == {int, bool, float}


def test_objects_and_computed_values_are_kept_from_optuna():
    marker = object()
    search = ready({"x": uniform(0, 1), "o": marker, "d": sample_from(lambda config: config["x"] * 2)})
    config = search.suggest("t")
    assert config["o"] is marker
    assert config["d"] == config["x"] * 2
    assert search.study.trials[0].params.keys() == {"x"}


def test_a_choice_of_dicts_is_a_conditional_space():
    search = ready(dict(CONDITIONAL))
    configs = suggestions(search, 40, lambda config: config["drop"])
    models = [{"kind": "none"} if config["model"] == "none" else config["model"] for config in configs]
    names = {
        (model["kind"], *sorted(trial.params.keys() - {"model", "drop"}))
        for model, trial in zip(models, search.study.trials, strict=True)
    }
    linear, mlp = ("linear", "model/0/lr"), ("mlp", "model/1/layers/0", "model/1/layers/1", "model/1/lr")
    assert names == {("none",), linear, mlp}
    assert all(model["layers"][1] % 8 == 0 for model in models if model["kind"] == "mlp")
    assert all(model.keys() == {"kind", "lr"} for model in models if model["kind"] == "linear")


def test_a_dict_of_distributions_is_a_space():
    space = {
        "net/width": IntDistribution(1, 9),
        "lr": FloatDistribution(0, 1),
        "k": CategoricalDistribution(["a", "b"]),
    }
    search = OptunaSearch(space, "loss", "min")
    config = search.suggest("t")
    assert config == {"net": {"width": config["net"]["width"]}, "lr": config["lr"], "k": config["k"]}
    assert config["net"]["width"] in range(1, 10)
    assert search.study.trials[0].distributions == space


def define_by_run(trial):
    kind = trial.suggest_categorical("net/kind", ["a", "b"])
    if kind == "a":
        trial.suggest_float("net/width", 0, 1)
    else:
        trial.suggest_int("depth", 1, 5)
    return {"constant": 7, "net": {"fixed": 8}}


def test_a_function_is_a_space():
    search = OptunaSearch(define_by_run, metric="loss", mode="min")
    for config in suggestions(search, 12):
        assert config["constant"] == 7
        assert config["net"]["fixed"] == 8
        assert ("width" in config["net"]) == (config["net"]["kind"] == "a") != ("depth" in config)


def test_constants_of_the_run_are_kept_from_optuna():
    search = OptunaSearch({"x": uniform(0, 1)})
    assert search.set_search_properties("loss", "min", {"data": "digits"})
    search.observe({"x": 0.5, "data": "digits"}, {"loss": 1.0})
    assert search.study.trials[0].params == {"x": 0.5}


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "error", "state", "value"),
    [
        ({"loss": 2}, False, TrialState.COMPLETE, 2.0),
        ({"loss": math.inf}, False, TrialState.COMPLETE, math.inf),
        ({"loss": math.nan}, False, TrialState.PRUNED, None),
        ({"loss": "text"}, False, TrialState.PRUNED, None),
        ({"other": 2}, False, TrialState.PRUNED, None),
        (None, False, TrialState.PRUNED, None),
        (None, True, TrialState.FAIL, None),
        ({"loss": 2}, True, TrialState.FAIL, None),
    ],
)
def test_how_a_trial_ends_in_the_study(result, error, state, value):
    search = ready({"x": uniform(0, 1)})
    search.suggest("t")
    search.on_trial_complete("t", result, error)
    trial = search.study.trials[0]
    assert (trial.state, trial.value, trial.user_attrs) == (state, value, {"trial_id": "t"})


@pytest.mark.parametrize("seed", [1, 2])
def test_where_the_metric_is_nan_tpe_looks_less(seed):
    """NaN counts as worse than every number. If it taught nothing, all of the last trials would lie where it is."""
    search = ready({"x": uniform(0, 1)}, seed=seed)
    configs = suggestions(search, 40, lambda config: math.nan if config["x"] < 0.5 else config["x"])
    assert sum(config["x"] < 0.5 for config in configs[20:]) <= 12


def test_a_metric_that_is_only_watched_is_left_out():
    search = OptunaSearch({"x": uniform(0, 1)}, ["loss", "size"], ["min", "obs"])
    search.suggest("t")
    search.on_trial_result("t", {"loss": 3.0, "training_iteration": 1})
    search.on_trial_complete("t", {"loss": 2.0})
    (trial,) = search.study.trials
    assert (search.study.directions[0].name, trial.values, trial.intermediate_values) == ("MINIMIZE", [2.0], {1: 3.0})


def test_intermediate_results_are_reported_by_iteration():
    search = ready({"x": uniform(0, 1)})
    search.suggest("t")
    for iteration, loss in ((1, 3.0), (2, math.nan), (3, 1.0)):
        search.on_trial_result("t", {"loss": loss, "training_iteration": iteration})
    search.on_trial_result("t", {"loss": 5.0})
    assert search.study.trials[0].intermediate_values == {1: 3.0, 3: 1.0}
    search.on_trial_complete("t", None)
    assert (search.study.trials[0].state, search.study.trials[0].value) == (TrialState.PRUNED, 1.0)


def test_it_learns():
    def loss(config):
        return (config["x"] - 1) ** 2

    configs = suggestions(ready({"x": uniform(-10, 10)}), 40, loss)
    assert min(map(loss, configs[20:])) < min(map(loss, configs[:10]))
    assert abs(sum(config["x"] for config in configs[30:]) / 10 - 1) < 3


@pytest.mark.parametrize("sampler", ["tpe", "nsgaii", "nsgaiii", "random", "qmc"])
def test_several_objectives(sampler):
    search = ready({"x": uniform(0, 1)}, metric=["loss", "speed"], mode=["min", "max"], sampler=sampler)
    for n in range(12):
        config = search.suggest(f"t{n}")
        search.on_trial_result(f"t{n}", {"loss": 1, "speed": 1, "training_iteration": 1})
        search.on_trial_complete(f"t{n}", {"loss": config["x"], "speed": config["x"] ** 2} if n else {"loss": 1})
    trials = search.study.trials
    assert [direction.name for direction in search.study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert trials[0].state == TrialState.PRUNED
    assert trials[3].values == [trials[3].params["x"], trials[3].params["x"] ** 2]
    assert search.study.best_trials


def test_points_of_others_are_learned_from():
    search = ready(dict(CONDITIONAL))
    search.observe({"model": {"kind": "linear", "lr": 0.1}, "drop": 0.25}, {"loss": 0.5})
    search.observe({"model": "none", "drop": 0.25}, {"loss": math.nan})
    best, without = search.study.trials
    assert best.params == {"model": "option 0", "model/0/lr": 0.1, "drop": 0.25}
    assert (best.value, without.state) == (0.5, TrialState.PRUNED)
    for config in ({"model": "none"}, {"model": "none", "drop": 3.0}):
        with pytest.raises(SpaceError, match="drop"):
            search.observe(config, {"loss": 1})


# --- points to evaluate ----------------------------------------------------------------------------------------------


def test_points_are_suggested_first_and_completed():
    points = [{"drop": 0.125}, {"model": {"kind": "mlp", "layers": [2, 16]}}, {"model": "none", "drop": 0.5}]
    search = ready(dict(CONDITIONAL), points_to_evaluate=points)
    first, second, third, fourth = suggestions(search, 4)
    assert first["drop"] == 0.125
    assert second["model"]["layers"] == [2, 16]
    assert 1e-5 <= second["model"]["lr"] <= 1e-1
    assert third == {"model": "none", "drop": 0.5}
    assert fourth["drop"] != 0.5
    assert len(search.study.trials) == 4


def test_points_work_with_every_form_of_a_space():
    search = OptunaSearch({"n/w": IntDistribution(1, 9)}, "loss", "min", [{"n": {"w": 4}}, {"n/w": 5}])
    assert [config["n"]["w"] for config in suggestions(search, 2)] == [4, 5]
    search = OptunaSearch(define_by_run, "loss", "min", [{"net": {"kind": "b"}, "depth": 4}])
    assert search.suggest("a") == {"constant": 7, "net": {"fixed": 8, "kind": "b"}, "depth": 4}


def test_a_point_that_the_function_does_not_ask_for_is_refused_when_it_is_due():
    search = OptunaSearch(define_by_run, "loss", "min", [{"net": {"kind": "b"}, "dephts": 4}])
    with pytest.raises(SpaceError, match=r"names 'dephts', which the space did not ask for\. Did you mean 'depth'"):
        search.suggest("a")
    assert search.study.trials[0].state == TrialState.FAIL


@pytest.mark.parametrize("space", [{"x": uniform(0, 1)}, {"x": FloatDistribution(0, 1)}, "function"])
def test_evaluated_points_are_learned_from_and_not_run(space):
    if space == "function":
        space = lambda trial: {"y": trial.suggest_float("x", 0, 1)}  # noqa: E731
    search = OptunaSearch(space, "loss", "min", [{"x": 0.25}, {"x": 0.75}], evaluated_rewards=[3.0, 1.0])
    assert search.suggest("a")["x"] not in (0.25, 0.75)
    assert [trial.value for trial in search.study.trials] == [3.0, 1.0, None]
    assert search.study.best_params == {"x": 0.75}


def test_evaluated_points_may_have_several_objectives():
    search = OptunaSearch(
        {"x": uniform(0, 1)}, ["a", "b"], ["min", "max"], [{"x": 0.25}], evaluated_rewards=[[1.0, 2.0]]
    )
    assert search.study.trials[0].values == [1.0, 2.0]


# --- exactness -------------------------------------------------------------------------------------------------------

FLAT = MappingProxyType(
    {
        "lr": loguniform(1e-4, 1e-1),
        "model": {"width": qrandint(8, 64, 8), "kind": choice(["mlp", "conv"])},
        "momentum": uniform(0.0, 0.9),
        "layers": choice([[64], [64, 64]]),
    }
)


def assert_exact_after_a_restart(make, num_trials, num_entries):
    whole = Session(make())
    whole.run(num_trials)
    again = whole.tell_again(make(), min(num_entries, len(whole.record)))
    again.run(num_trials)
    assert again.configs == whole.configs
    return whole


@pytest.mark.parametrize(("sampler", "num_trials"), [("tpe", 60), ("cmaes", 60), ("qmc", 60), ("nsgaii", 160)])
def test_a_restart_half_way_through_a_long_search_changes_nothing(sampler, num_trials):
    assert_exact_after_a_restart(lambda: ready(dict(FLAT), sampler=sampler, seed=3), num_trials, num_trials * 3 // 2)


@pytest.mark.parametrize("num_entries", [3, 20, 41])
def test_a_restart_of_any_form_of_space_changes_nothing(num_entries):
    def conditional(trial):
        trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        if trial.suggest_categorical("big", [True, False]):
            trial.suggest_int("model/width", 32, 64)
        else:
            trial.suggest_int("model/small", 1, 2)
        return {"model": {"width": 8}, "momentum": 0.5}

    points = [{"lr": 0.01}, {"lr": 0.001, "big": False}]
    assert_exact_after_a_restart(lambda: OptunaSearch(conditional, "loss", "min", points), 25, num_entries)
    dists = {"lr": FloatDistribution(1e-4, 1e-1, log=True), "model/width": IntDistribution(8, 64)}
    space = {**dists, "momentum": CategoricalDistribution([0.0, 0.5])}
    assert_exact_after_a_restart(lambda: OptunaSearch(space, "loss", "min", sampler="cmaes"), 25, num_entries)
    nested = {"lr": choice([0.1, loguniform(1e-4, 1e-1)]), "model": choice([{"width": randint(1, 9)}, {"width": 3}])}
    nested |= {"momentum": sample_from(lambda config: config["lr"] / 2)}
    make = lambda: ready(nested, points_to_evaluate=[{"momentum": 0.25, "lr": 0.1}])  # noqa: E731
    assert assert_exact_after_a_restart(make, 25, num_entries).configs[0]["momentum"] == 0.25


def test_a_restart_restores_the_study_itself():
    whole = Session(ready(dict(CONDITIONAL)))
    whole.searcher.observe({"model": "none", "drop": 0.25}, {"loss": 1.0})
    for number in range(10):
        whole.ask()
        whole.searcher.on_trial_complete(whole.open.pop(), {"loss": float(number)})
    again = ready(dict(CONDITIONAL))
    again.observe({"model": "none", "drop": 0.25}, {"loss": 1.0})
    for number, (_, trial_id, config, state) in enumerate(whole.record):
        again.retell(trial_id, config, state)
        again.on_trial_complete(trial_id, {"loss": float(number)})
    for one, two in zip(whole.searcher.study.trials, again.study.trials, strict=True):
        assert (one.number, one.state, one.values, one.params, one.distributions, one.system_attrs) == (
            (two.number, two.state, two.values, two.params, two.distributions, two.system_attrs)
        )


def test_a_suggestion_is_restored_from_its_config_when_the_state_is_gone():
    search = ready(dict(CONDITIONAL))
    config = {"model": {"kind": "linear", "lr": 0.1}, "drop": 0.25}
    search.retell("a", config, None)
    assert search.suggest("a") == config
    search.on_trial_complete("a", {"loss": 1})
    assert search.study.best_params == {"model": "option 0", "model/0/lr": 0.1, "drop": 0.25}


def test_options_that_json_cannot_hold_are_restored():
    with pytest.warns(UserWarning, match="tuple"):
        space = {"o": CategoricalDistribution([(1, 2), (3, 4)])}
    search = OptunaSearch(space, "loss", "min")
    config = search.suggest("a")
    state = json.loads(json.dumps(search.suggestion_state("a")))
    again = OptunaSearch(space, "loss", "min")
    again.retell("a", {"o": list(config["o"])}, state)
    assert again.study.trials[0].params == {"o": config["o"]}


def test_a_suggestion_that_the_space_no_longer_holds_is_refused():
    first = ready({"x": uniform(5, 6), "y": uniform(0, 1)})
    config = first.suggest("a")
    for space in (
        {"x": uniform(0, 1), "y": uniform(0, 1)},
        {"y": uniform(0, 1)},
        {"x": uniform(5, 6), "z": choice([1])},
    ):
        with pytest.raises(SearchError, match="does not"):
            ready(space).retell("a", config, first.suggestion_state("a"))


def test_the_state_is_small_and_plain():
    search = ready({"x": uniform(0, 1)}, sampler="nsgaii")
    for n in range(120):
        search.suggest(f"t{n}")
        state = search.suggestion_state(f"t{n}")
        assert json.loads(json.dumps(state)) == state
        assert len(json.dumps(state)) < 1500
        search.on_trial_complete(f"t{n}", {"loss": n})
    assert search.suggestion_state("t0") is None


# --- samplers, storages ----------------------------------------------------------------------------------------------


SAMPLERS = {"tpe": "TPE", "TPE": "TPE", "cmaes": "CmaEs", "gp": "GP", "qmc": "QMC", "nsgaii": "NSGAII", None: "TPE"}


@pytest.mark.parametrize(("name", "class_name"), [*SAMPLERS.items(), ("nsgaiii", "NSGAIII"), ("random", "Random")])
def test_samplers_by_name(name, class_name):
    search = ready({"x": uniform(0, 1)}, sampler=name)
    assert type(search.study.sampler).__name__ == f"{class_name}Sampler"
    assert type(search.study.pruner).__name__ == "NopPruner"
    assert search.is_adaptive == (name != "random")


def test_a_sampler_object_is_used_as_it_is():
    sampler = optuna.samplers.RandomSampler(seed=1)
    search = as_searcher(sampler)
    assert search.set_search_properties("loss", "min", {"x": uniform(0, 1)})
    values = [config["x"] for config in suggestions(search, 3)]
    assert search.study.sampler is sampler
    assert len(set(values)) == 3
    search.retell("again", {"x": 0.5}, {"params": {"x": 0.5}})
    assert search.suggest("again") == {"x": 0.5}


def test_it_is_quiet(capfd):
    for sampler in ("qmc", "cmaes", "nsgaiii", "tpe"):
        suggestions(ready(dict(CONDITIONAL), sampler=sampler), 4)
    assert capfd.readouterr() == ("", "")
    level = optuna.logging.get_verbosity()
    ready({"x": uniform(0, 1)}).suggest("a")
    assert optuna.logging.get_verbosity() == level


def test_a_lasting_storage_is_continued_without_doubles(tmp_path):
    def make():
        storage = f"sqlite:///{tmp_path}/study.db"
        return ready(
            {"x": uniform(0, 1)},
            storage=storage,
            study_name="s",
            points_to_evaluate=[{"x": 0.5}],
            evaluated_rewards=[9.0],
        )

    first = make()
    config = first.suggest("a")
    other = first.suggest("b")
    first.on_trial_complete("a", {"loss": 1})
    orphan = first.suggest("c")  # answered, but the answer was lost in the crash
    again = make()
    again.retell("a", config, None)
    again.retell("b", other, None)
    again.on_trial_complete("a", {"loss": 1})
    again.on_trial_complete("b", {"loss": 2})
    assert again.suggest("c") == orphan
    states = [trial.state.name for trial in again.study.trials]
    assert states == ["COMPLETE", "COMPLETE", "COMPLETE", "FAIL", "RUNNING"]
    assert again.study.study_name == "s"


# --- wrong arguments -------------------------------------------------------------------------------------------------


def bad_constants(trial):
    return {1: 2}


def raises(trial):
    raise ZeroDivisionError("oops")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: OptunaSearch(sampler="tpee"), UnknownNameError, "no sampler is called 'tpee'. Did you mean 'tpe'"),
        (lambda: OptunaSearch(sampler=3), SearchError, "sampler is 3; expected a name"),
        (lambda: OptunaSearch(sampler=optuna.samplers.TPESampler(), seed=1), SearchError, "its own seed"),
        (lambda: OptunaSearch(3), SpaceError, "expected a dict"),
        (lambda: OptunaSearch({"a": grid_search([1, 2])}), SpaceError, "over 2 values; OptunaSearch"),
        (lambda: OptunaSearch({"a": choice([{"b": grid_search([1])}])}), SpaceError, "inside a choice"),
        (lambda: OptunaSearch({"a": randn()}), SpaceError, "in place of randn"),
        (lambda: OptunaSearch({"a/b": uniform(0, 1)}), SpaceError, "holds a '/'"),
        (lambda: OptunaSearch({"a": FloatDistribution(0, 1), "b": 3}), SpaceError, "'b' is 3 while other values"),
        (lambda: OptunaSearch({"x": uniform(0, 1)}, "loss", "min", [{"y": 1}]), SpaceError, "names 'y'"),
        (lambda: OptunaSearch({"x": uniform(0, 1)}, "loss", "min", [{"x": 2}]), SpaceError, "sets x to"),
        (lambda: OptunaSearch({"x": quniform(0, 1, 0.5)}, "loss", "min", [{"x": 0.3}]), SpaceError, "sets x to"),
        (lambda: OptunaSearch({"x": choice([1, 2])}, "loss", "min", [{"x": 3}]), SpaceError, "not among"),
        (lambda: OptunaSearch({"x": randint(0, 3)}, "loss", "min", [{"x": 3}]), SpaceError, "sets x to"),
        (lambda: OptunaSearch({"x": FloatDistribution(0, 1)}, "a", "min", [{"x": "s"}]), SpaceError, "sets x to"),
        (lambda: OptunaSearch({"x": 1}, "a", "min", [{}], evaluated_rewards=[1, 2]), SearchError, "1 points"),
        (lambda: OptunaSearch({"x": uniform(0, 1)}, "loss").study, SearchError, "mode=None; it needs both"),
        (lambda: OptunaSearch({"x": 1}, ["a", "b"], ["min"] * 2, sampler="cmaes").study, SearchError, "one objective"),
        (lambda: OptunaSearch(bad_constants, "loss", "min").suggest("a"), SearchError, "string keys"),
        (lambda: OptunaSearch(raises, "loss", "min").suggest("a"), SearchError, "ZeroDivisionError: oops"),
        (
            lambda: OptunaSearch({"y": uniform(0, 1)}, "a", "min", [{}], evaluated_rewards=[1]).study,
            SpaceError,
            "'y' is not found.* Every parameter must be named",
        ),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SearchError, match="the sampler 'gp' needs scipy and torch: pip install scipy torch"):
        OptunaSearch(sampler="gp")


def test_an_error_of_the_function_uses_up_no_number():
    calls = []

    def flaky(trial):
        trial.suggest_float("x", 0, 1)
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")

    search = OptunaSearch(flaky, "loss", "min", sampler="random", seed=2)
    with pytest.raises(SearchError, match="once") as caught:
        search.suggest("a")
    assert isinstance(caught.value.__cause__, ValueError)
    other = OptunaSearch({"x": FloatDistribution(0, 1)}, "loss", "min", sampler="random", seed=2)
    assert search.suggest("a") == other.suggest("a")


def test_a_space_is_converted_to_optunas_own():
    found = OptunaSearch.convert_search_space({"net": {"width": qrandint(8, 64, 8)}, "epochs": 3})
    assert found == {"net/width": IntDistribution(8, 64, step=8)}
    joined = OptunaSearch.convert_search_space({"net": {"width": qrandint(8, 64, 8)}, "epochs": 3}, join=True)
    assert joined == {"epochs": 3, **found}
    with pytest.raises(SpaceError, match="grid"):
        OptunaSearch.convert_search_space({"x": grid_search([1, 2])})
