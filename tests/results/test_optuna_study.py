"""An experiment as a study of Optuna and back: every kind of domain, every state, what Optuna has no word for."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from made_experiment import T0, MadeExperiment
from odd_values import ODD
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

import sweep
from searchers.space import from_json, to_json
from sweep.core.values import shown
from sweep.errors import ConfigError
from sweep.record.encoding import Opaque

SPACE: dict[str, Any] = {
    "x": sweep.uniform(0, 1),
    "q": sweep.quniform(0, 1, 0.1),
    "lr": sweep.loguniform(1e-4, 1),
    "width": sweep.randint(1, 9),
    "batch": sweep.qrandint(8, 64, 8),
    "depth": sweep.lograndint(1, 100),
    "act": sweep.choice(["relu", "gelu", None]),
    "mixed": sweep.choice([1, True, (1, 2)]),
    "opt": sweep.choice([{"name": "sgd", "momentum": sweep.uniform(0, 1)}, {"name": "adam"}]),
    "fold": sweep.grid_search([0, 1]),
    "noise": sweep.randn(0, 1),
    "double": sweep.sample_from(lambda config: 2 * config["x"]),
    "net": {"drop": sweep.uniform(0, 0.5), "layers": [sweep.randint(1, 4), 7]},
    "seed": 3,
}
CONFIG: dict[str, Any] = {
    "x": 0.25,
    "q": 0.3,
    "lr": 0.01,
    "width": 8,
    "batch": 16,
    "depth": 99,
    "act": "gelu",
    "mixed": (1, 2),
    "opt": {"name": "sgd", "momentum": 0.5},
    "fold": 1,
    "noise": -1.5,
    "double": 0.5,
    "net": {"drop": 0.1, "layers": [2, 7]},
    "seed": 3,
}


def made(tmp_path: Path, space: dict[str, Any] | None = None, **meta: Any) -> MadeExperiment:
    space = {"x": sweep.uniform(0, 1)} if space is None else space
    return MadeExperiment(tmp_path, domains=to_json(space, shown), **meta)


def finished(experiment: MadeExperiment, config: dict[str, Any], *losses: Any, at: float = 1.0, **end: Any) -> str:
    trial = experiment.trial(config)
    experiment.start(trial, at=at)
    for number, loss in enumerate(losses):
        experiment.report(trial, {"loss": loss, "acc": 0.5}, at=at + 0.5 + number)
    experiment.end(trial, at=at + 10, **end)
    return trial


def study_of(experiment: MadeExperiment, *args: Any, **kwargs: Any) -> optuna.Study:
    experiment.commit()
    return sweep.ExperimentAnalysis(experiment.root).to_optuna(*args, **kwargs)


# --- spaces ---


@pytest.mark.parametrize("name", sorted(SPACE))
def test_a_space_that_was_written_as_json_reads_back_as_it_was(name):
    written = json.loads(json.dumps(to_json(SPACE[name], shown)))
    assert repr(from_json(written, Opaque, "computed")) == repr("computed" if name == "double" else SPACE[name])


def test_options_that_are_no_json_values_are_told_apart_by_their_texts():
    options = [Relu, (1, 2), "it's, ok]", {"a": [one_function, 1], 3: math.inf}]
    read = from_json(to_json(sweep.grid_search(options), shown), Opaque, None)["grid_search"]
    assert read == [Opaque(shown(Relu)), (1, 2), "it's, ok]", {"a": [Opaque(shown(one_function)), 1], 3: math.inf}]


def test_every_kind_of_domain_becomes_its_distribution_and_the_rest_an_attribute(tmp_path):
    experiment = made(tmp_path, SPACE)
    finished(experiment, CONFIG, 2.0, at=7.0)
    finished(experiment, CONFIG | {"opt": {"name": "adam"}}, 2.0)
    trial, other = study_of(experiment).trials
    assert trial.distributions == {
        "x": FloatDistribution(0, 1),
        "q": FloatDistribution(0, 1, step=0.1),
        "lr": FloatDistribution(1e-4, 1, log=True),
        "width": IntDistribution(1, 8),
        "batch": IntDistribution(8, 64, step=8),
        "depth": IntDistribution(1, 99, log=True),
        "act": CategoricalDistribution(["relu", "gelu", None]),
        "mixed": CategoricalDistribution(["1", "true", "[1, 2]"]),
        "opt": CategoricalDistribution(["option 0", '{"name": "adam"}']),
        "opt/0/momentum": FloatDistribution(0, 1),
        "fold": CategoricalDistribution([0, 1]),
        "net/drop": FloatDistribution(0, 0.5),
        "net/layers/0": IntDistribution(1, 3),
    }
    assert trial.params["mixed"] == "[1, 2]"
    assert trial.params["opt/0/momentum"] == 0.5
    assert {key: value for key, value in trial.user_attrs.items() if key.startswith("config")} == {
        "config/noise": -1.5,
        "config/double": 0.5,
    }
    assert trial.user_attrs["acc"] == 0.5
    assert "loss" not in trial.user_attrs
    assert (trial.datetime_start, trial.duration) == (dt.datetime.fromtimestamp(T0 + 7), dt.timedelta(seconds=10))
    assert "opt/0/momentum" not in other.params  # of an option that was not chosen
    assert other.params["opt"] == '{"name": "adam"}'
    without_space = made(tmp_path / "without", {})
    finished(without_space, CONFIG, 2.0)
    (trial,) = study_of(without_space).trials
    assert (trial.params, trial.user_attrs["config/net/drop"]) == ({}, 0.1)


class Relu:
    pass


def one_function() -> None:
    pass


def test_objects_go_by_how_they_print_also_when_the_run_that_goes_on_prints_them_with_another_address(tmp_path):
    space = {"act": sweep.choice([Relu, one_function, 3])}
    experiment = made(tmp_path, space)
    for option in (Relu, one_function, 3):
        finished(experiment, {"act": option}, 1.0)
    first = json.dumps(to_json(space, shown))
    functions = [lambda: 1, lambda: 2]  # which print alike
    alike = made(tmp_path / "alike", {"act": sweep.choice(functions)})
    for function in functions:
        finished(alike, {"act": function}, 1.0)
    assert [trial.params["act"] for trial in study_of(alike).trials] == ["option 0", "option 1"]
    later = first.replace(" at 0x", " at 0xa")
    assert later != first
    for text in (first, later):
        experiment.meta["domains"] = json.loads(text)
        experiment.commit()
        study = study_of(experiment, tmp_path / "journal.log")
        names = [f"<class '{__name__}.Relu'>", "<function one_function>", "3"]
        assert [trial.params["act"] for trial in study_of(experiment).trials] == names
        assert [trial.params["act"] for trial in study.trials] == names


@pytest.mark.parametrize(
    "changed",
    [
        *({"x": 1.5}, {"x": True}, {"x": "0.5"}, {"x": None}, {"width": 10**300}),
        *({"act": "tanh"}, {"width": 2.5}, {"q": 0.35}, {"new": [1, {"a": 2}]}),
    ],
    ids=lambda one: str(one)[:20],
)
def test_a_value_outside_of_its_distribution_is_an_attribute(tmp_path, changed):
    experiment = made(tmp_path, SPACE)
    finished(experiment, CONFIG | changed, 2.0)
    (trial,) = study_of(experiment).trials
    ((name, value),) = changed.items()
    assert name not in trial.params
    assert trial.user_attrs[f"config/{name}"] == value


def test_what_a_searcher_was_told_of_or_its_define_by_run_function_asked_for_are_parameters(tmp_path):
    def space(trial: optuna.Trial) -> dict[str, Any]:
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            trial.suggest_float("x", 0, 1)
        return {"fixed": 7}

    search = sweep.OptunaSearch(space, "loss", "min", seed=0)
    study = run(tmp_path, None, search_alg=search, num_samples=4).to_optuna()
    assert {trial.params["kind"] for trial in study.trials} == {"a", "b"}
    for trial in study.trials:
        assert ("x" in trial.params) == (trial.params["kind"] == "a")
        assert trial.user_attrs["config/fixed"] == 7
    search = sweep.OptunaSearch({"net": {"x": sweep.uniform(0, 1)}}, "loss", "min", seed=0)
    study = run(tmp_path / "b", None, search_alg=search, num_samples=2).to_optuna()
    assert study.trials[0].distributions == {"net/x": FloatDistribution(0, 1)}


# --- states, values, times ---


def loss_of(config: dict[str, Any]) -> None:
    x = config.get("x", config.get("net", {}).get("x", 0.5))
    for step in range(2):
        sweep.report(loss=x + 1 - step, size=-x)


def run(tmp_path: Path, config: Any, **kwargs: Any) -> sweep.ExperimentAnalysis:
    fields = {"metric": "loss", "mode": "min", "verbose": 0, "storage_path": str(tmp_path), "engine": "inline"} | kwargs
    return sweep.run(loss_of, config=config, **fields)


def test_every_state(tmp_path):
    experiment = made(tmp_path)
    finished(experiment, {"x": 0.1}, 3.0, 2.0)
    finished(experiment, {"x": 0.2}, 3.0, reason="stopped early: loss 3 at 1, cutoff 2")
    finished(experiment, {"x": 0.3}, 3.0, kind="FAILED", error="boom", reason="boom")
    finished(experiment, {"x": 0.4}, 3.0, math.nan)
    finished(experiment, {"x": 0.5})
    running = experiment.trial({"x": 0.6})
    experiment.start(running)
    experiment.report(running, {"loss": 5.0})
    paused = experiment.trial({"x": 0.7})
    experiment.start(paused)
    experiment.set(paused, status="PAUSED", reason="paused by a person")
    experiment.trial({"x": 0.8}, reason="needs gpu=1")
    trials = study_of(experiment).trials
    states = ["COMPLETE", "PRUNED", "FAIL", "FAIL", "FAIL", "RUNNING", "RUNNING", "WAITING"]
    assert [trial.state.name for trial in trials] == states
    assert sweep.ExperimentAnalysis(experiment.root).dataframe(style="optuna")["state"].tolist() == states
    assert [trial.values for trial in trials] == [[2.0], [3.0], None, None, None, None, None, None]
    assert [trial.user_attrs["trial_id"] for trial in trials] == [f"abcde_{number:05d}" for number in range(8)]
    assert [trial.user_attrs["reason"] for trial in trials][1:3] == ["stopped early: loss 3 at 1, cutoff 2", "boom"]
    assert [trial.user_attrs["attempts"] for trial in trials] == [1] * 7 + [0]
    assert trials[0].intermediate_values == {1: 3.0, 2: 2.0}
    assert math.isnan(trials[3].intermediate_values[2])
    assert trials[5].intermediate_values == {1: 5.0}
    assert [number for number, trial in enumerate(trials) if trial.datetime_start is None] == [7]


@pytest.mark.parametrize("value", [math.inf, -math.inf, True, "3", None, [1.0], 2**1024], ids=str)
def test_values_that_are_hardly_numbers_count_and_those_that_are_none_are_failures(tmp_path, value):
    experiment = made(tmp_path)
    finished(experiment, {"x": 0.1}, value)
    (trial,) = study_of(experiment).trials
    is_number = value in (math.inf, -math.inf, True)
    assert (trial.state.name, trial.value) == (("COMPLETE", float(value)) if is_number else ("FAIL", None))
    assert ("loss" in trial.user_attrs) != is_number


def test_a_nested_metric_and_steps_that_optuna_cannot_hold(tmp_path):
    experiment = made(tmp_path, metric="eval/loss")
    trial = experiment.trial({"x": 0.1})
    experiment.start(trial)
    for step, loss in [(3, 1.0), (3, 0.5), (-1, 9.0), (2**40, 9.0), (4.5, 9.0), (4, 0.25)]:
        experiment.report(trial, {"eval": {"loss": loss}, "training_iteration": step})
    experiment.end(trial)
    (shown_trial,) = study_of(experiment).trials
    assert shown_trial.value == 0.25
    assert shown_trial.intermediate_values == {3: 0.5, 4: 0.25}


def test_several_objectives_are_directions_and_a_stopped_trial_keeps_its_values_as_attributes(tmp_path):
    names = {"metric": "loss", "metrics": ["loss", "acc", "time"], "modes": ["min", "max", "obs"]}
    experiment = made(tmp_path, **names)
    finished(experiment, {"x": 0.1}, 3.0)
    finished(experiment, {"x": 0.1}, 4.0, reason="stopped early: dominated")
    study = study_of(experiment)
    assert [direction.name for direction in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert study.metric_names == ["loss", "acc"]
    assert [trial.values for trial in study.trials] == [[3.0, 0.5], None]
    assert study.trials[1].state == TrialState.PRUNED
    assert study.trials[1].user_attrs["loss"] == 4.0
    assert [trial.number for trial in study.best_trials] == [0]


def test_constraints_of_the_searcher_are_constraints_of_the_study(tmp_path):
    search = sweep.OptunaSearch(constraints={"size": -0.5}, seed=0)
    analysis = run(tmp_path, {"x": sweep.uniform(0, 1)}, search_alg=search, num_samples=8)
    study = analysis.to_optuna()
    feasible = [trial for trial in study.trials if trial.params["x"] >= 0.5]
    assert 0 < len(feasible) < 8
    assert study.best_trial.number == min(feasible, key=lambda trial: trial.value).number
    assert analysis.best_config != study.best_trial.user_attrs  # the record's own best knows no constraints


def test_a_config_that_was_changed_on_the_way_is_the_last_one_and_the_first_is_told(tmp_path):
    experiment = made(tmp_path)
    trial = finished(experiment, {"x": 0.75, "fixed": 1}, 2.0)
    first = experiment.trials[trial]["place"]
    experiment.set(trial, place=experiment.event("Suggested", trial, {"config": {"x": 0.75, "fixed": 1}}))
    experiment.change(first, config={"x": 0.25, "fixed": 1})
    (shown_trial,) = study_of(experiment).trials
    assert shown_trial.params["x"] == 0.75
    assert shown_trial.user_attrs["config_at_start/x"] == 0.25
    assert [name for name in shown_trial.user_attrs if name.startswith("config_at_start")] == ["config_at_start/x"]


# --- storages ---


def storages(tmp_path: Path) -> list[Any]:
    journal = JournalStorage(JournalFileBackend(str(tmp_path / "object.log")))
    return [f"sqlite:///{tmp_path}/study.db", tmp_path / "journal.log", str(tmp_path / "text.log"), journal]


@pytest.mark.parametrize("index", range(4), ids=["sqlite", "path", "text", "object"])
def test_publishing_again_adds_what_has_ended_since(tmp_path, index):
    storage = storages(tmp_path)[index]
    experiment = made(tmp_path, SPACE)
    finished(experiment, CONFIG, 2.0, math.nan, 1.0)
    late = experiment.trial(CONFIG | {"opt": {"name": "adam"}})
    experiment.start(late)
    experiment.report(late, {"loss": 1.5})
    first = study_of(experiment, storage)
    assert [trial.state.name for trial in first.trials] == ["COMPLETE"]
    assert len(study_of(experiment, storage).trials) == 1
    finished(experiment, CONFIG, kind="FAILED")
    experiment.end(late)
    again = study_of(experiment, storage)
    assert [trial.user_attrs["trial_id"][-1] for trial in again.trials] == ["0", "1", "2"]
    loaded = optuna.load_study(study_name="made", storage=again._storage)
    memory = study_of(experiment)
    for theirs, ours in zip(loaded.trials, memory.trials, strict=True):
        assert theirs.params == ours.params
        assert theirs.distributions == ours.distributions
        assert theirs.user_attrs == ours.user_attrs
        assert (theirs.state, theirs.values) == (ours.state, ours.values)
        assert (theirs.datetime_start, theirs.datetime_complete) == (ours.datetime_start, ours.datetime_complete)
        assert str(theirs.intermediate_values) == str(ours.intermediate_values)
    assert loaded.user_attrs == memory.user_attrs


def test_a_study_of_something_else_is_not_touched(tmp_path):
    storage = tmp_path / "journal.log"
    experiment, other = made(tmp_path), made(tmp_path / "b", prefix="other")
    for one in (experiment, other):
        finished(one, {"x": 0.5}, 1.0)
    study_of(experiment, storage)
    with pytest.raises(ConfigError, match=r"'made' of 'made abcde' .* Give another study_name"):
        study_of(other, storage)
    with pytest.raises(ConfigError, match="is to minimize; expected"):
        study_of(experiment, storage, mode="max")
    assert len(study_of(other, storage, "second").trials) == 1


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        (3, "storage is 3; expected a URL such as 'sqlite:///study.db', the path of a journal"),
        ("study.db", "a journal is no database.* write sqlite:///study.db"),
        ("nonsense://x", "cannot be opened: .*; expected a URL"),
        ("sqlite:////no/such/place/x.db", "unable to open database file; expected a URL"),
        ("/no/such/place/x.log", "cannot be opened"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_one_error_and_leaves_nothing(tmp_path, monkeypatch, storage, message):
    experiment = made(tmp_path)
    finished(experiment, {"x": 0.5}, 1.0)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ConfigError, match=message):
        study_of(experiment, storage)
    assert list((tmp_path / "here").iterdir()) == []


def test_without_a_metric_one_is_asked_for(tmp_path):
    experiment = made(tmp_path, metric=None, mode=None)
    finished(experiment, {"x": 0.5}, 1.0)
    with pytest.raises(ConfigError, match="give metric='loss', mode='min'"):
        study_of(experiment)
    assert study_of(experiment, metric="loss", mode="max").direction.name == "MAXIMIZE"
    both = study_of(experiment, metric=["loss", "acc"], mode=["min", "max"])
    assert both.trials[0].values == [1.0, 0.5]
    grid = sweep.ResultGrid(sweep.ExperimentAnalysis(experiment.root, default_metric="acc", default_mode="max"))
    assert grid.to_optuna().best_value == 0.5


# --- what users write ---


@pytest.mark.slow
def test_whatever_a_config_holds_it_can_be_published(tmp_path):
    experiment = made(tmp_path, {"x": sweep.uniform(0, 1), "odd": sweep.choice([1, 2])})
    kinds = {name: make for name, make in ODD.items() if not name.endswith("of one list")}
    for name, make in kinds.items():
        trial = experiment.trial({"x": 0.5})
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            from sweep.record.encoding import encode

            experiment.set(trial, config=encode({"x": 0.5, "odd": make(), name: make()}))
        experiment.start(trial)
        experiment.report(trial, {"loss": 1.0})
        experiment.end(trial)
    study = study_of(experiment, tmp_path / "journal.log")
    assert len(study.trials) == len(kinds) > 50
    assert {trial.params["x"] for trial in study.trials} == {0.5}
    json.dumps([trial.user_attrs for trial in study.trials], allow_nan=False)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
names = st.text(max_size=6) | st.sampled_from(list(SPACE))
choices = st.lists(values, min_size=1, max_size=3).map(sweep.choice)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.dictionaries(names, values, max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=6), choices, max_size=3),
)
def test_odd_configs_are_published_and_come_back(tmp_path, configs, space):
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    experiment = made(folder, SPACE | space)
    for config in configs:
        finished(experiment, CONFIG | config, 1.0)
    study = study_of(experiment)
    study._storage.get_all_trials(study._study_id)
    if configs:
        recorded = [trial.config for trial in sweep.ExperimentAnalysis(experiment.root).trials]
        assert str(sweep.from_optuna(study).points_to_evaluate) == str(recorded)
    experiment.close()


# --- the way back ---


def test_what_was_published_comes_back_as_it_was_recorded(tmp_path):
    experiment = made(tmp_path, SPACE)
    finished(experiment, CONFIG, 2.0)
    finished(experiment, CONFIG | {"opt": {"name": "adam"}, "mixed": True}, 1.0)
    finished(experiment, CONFIG, 9.0, reason="stopped early: worse")
    finished(experiment, CONFIG, 9.0, kind="FAILED")
    for storage in (None, tmp_path / "journal.log"):
        points = sweep.from_optuna(study_of(experiment, storage))
        assert points.points_to_evaluate == [CONFIG, CONFIG | {"opt": {"name": "adam"}, "mixed": True}]
        assert points.points_to_evaluate[1]["mixed"] is True
        assert points.evaluated_rewards == [2.0, 1.0]
        assert list(points)[1][1] == {"loss": 1.0}
    pruned = sweep.from_optuna(study_of(experiment), include_pruned=True)
    assert pruned.evaluated_rewards == [2.0, 1.0, 9.0]


def optuna_study(**kwargs: Any) -> optuna.Study:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), **kwargs)

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("net/x", 0, 1)
        trial.report(5.0, 1)
        if trial.number == 2:
            raise optuna.TrialPruned
        if trial.number == 3:
            return math.nan
        return x

    study.optimize(objective, n_trials=6)
    study.ask()
    return study


def test_a_study_of_optuna_teaches_a_searcher(tmp_path):
    study = optuna_study()
    points = sweep.from_optuna(study, metric="loss")
    assert len(points) == 4
    assert points[0][0] == {"net": {"x": points.evaluated_rewards[0]}}
    assert len(sweep.from_optuna(study, "loss", include_pruned=True)) == 5
    space = {"net": {"x": sweep.uniform(0, 1)}}
    search = sweep.OptunaSearch(
        space, "loss", "min", points_to_evaluate=points.points_to_evaluate, evaluated_rewards=points.evaluated_rewards
    )
    assert search.study.best_value == study.best_value


@pytest.mark.parametrize("named", [True, False])
def test_a_study_of_the_same_direction_can_be_given_as_warm_start(tmp_path, named, capsys):
    study, options = optuna_study(), {"search_alg": "tpe", "num_samples": 1, "verbose": 1}
    if named:
        with pytest.warns(optuna.exceptions.ExperimentalWarning):
            study.set_metric_names(["loss"])
    for number, warm_start in enumerate((study, sweep.from_optuna(study, "loss"))):
        run(tmp_path / str(number), {"net": {"x": sweep.uniform(0, 1)}}, warm_start=warm_start, **options)
        assert "has learned from 4 of 4 former results (warm_start)" in "".join(capsys.readouterr())
    other = optuna.create_study(direction="maximize")
    other.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    with pytest.raises(ConfigError, match=r"directions \['max'\], and mode is \['min'\]; expected the same"):
        run(tmp_path, {"x": sweep.uniform(0, 1)}, warm_start=other, **options)


def test_a_study_is_loaded_by_its_name_and_one_that_cannot_be_used_is_one_error(tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    study, empty = optuna_study(storage=url, study_name="mine"), optuna.create_study()
    assert len(sweep.from_optuna("mine", "loss", storage=url)) == 4
    for one, metric, options, said in (
        ("yours", "loss", {"storage": url}, r"'yours' cannot be loaded from 'sqlite:.*KeyError"),
        ("mine", "loss", {}, "expected a study of Optuna, or a name together with storage="),
        (3, None, {}, "was given 3; expected a study"),
        (study, None, {}, r"has 1 objective and no names for them; expected .* metric='loss'"),
        (study, ["a", "b"], {}, r"metric=.'a', 'b'."),
        (empty, "loss", {}, r"no completed trial to learn from \(it has none\)"),
    ):
        with pytest.raises(ConfigError, match=said):
            sweep.from_optuna(one, metric, **options)
    several = optuna.create_study(directions=["minimize", "maximize"])
    several.optimize(lambda trial: (trial.suggest_int("n", 1, 3), 2.0), n_trials=2)
    points = sweep.from_optuna(several, ["loss", "acc"])
    assert points.evaluated_rewards == [[points[0][0]["n"], 2.0], [points[1][0]["n"], 2.0]]
    assert points[0][1]["acc"] == 2.0
