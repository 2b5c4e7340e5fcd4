"""Tests of the searcher that asks Hyperopt: with a stand-in for the library, and (slow) with the library itself."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conformance.searchers import SearcherContract

from searchers import (
    ConcurrencyLimiter,
    HyperOptSearch,
    SpaceError,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

# --- a stand-in for the library: the same calls, random answers, and a memory of what it was asked ---


class Node:
    """What `hp.uniform("x", 0, 1)` makes."""

    def __init__(self, kind, label, *arguments):
        self.kind, self.label, self.arguments = kind, label, arguments

    @property
    def said(self):
        return (self.kind, *self.arguments)


def nodes_of(expression, active=None, rng=None):
    """Yield the nodes with a value; all of them without a generator."""
    if isinstance(expression, Node):
        is_choice = expression.kind == "choice"
        if is_choice:
            value = int(rng.integers(len(expression.arguments[0]))) if rng else None
        else:
            value = float(rng.normal()) if rng else None
        yield expression, value
        if is_choice:
            yield from nodes_of(expression.arguments[0] if value is None else expression.arguments[0][value], rng=rng)
    elif isinstance(expression, (list, dict)):
        for one in expression.values() if isinstance(expression, dict) else expression:
            yield from nodes_of(one, rng=rng)


class FakeDomain:
    cmd = ("domain_attachment", "FMinIter_Domain")

    def __init__(self, function, expression):
        self.expression = expression
        self.params = {node.label: node for node, _ in nodes_of(expression)}


class FakeTrials:
    documents = ()

    def new_trial_docs(self, tids, specs, results, miscs):
        return [
            {"tid": tid, "result": result, "misc": misc, "state": 0}
            for tid, _, result, misc in zip(tids, specs, results, miscs, strict=True)
        ]


class FakeHyperopt:
    """The module: `asked` holds the arguments of every call of `tpe.suggest`."""

    JOB_STATE_DONE = 2
    Domain = FakeDomain
    Trials = FakeTrials

    def __init__(self):
        self.asked = []
        kinds = ["uniform", "loguniform", "quniform", "qloguniform", "normal", "qnormal", "choice"]
        self.hp = SimpleNamespace(**{kind: lambda *a, kind=kind: Node(kind, *a) for kind in kinds})
        self.tpe = SimpleNamespace(suggest=self._suggest)

    def trials_from_docs(self, documents):
        trials = FakeTrials()
        trials.documents = documents
        return trials

    def _suggest(self, new_ids, domain, trials, seed, **options):
        self.asked.append({"ids": new_ids, "documents": trials.documents, "seed": seed, **options})
        rng = np.random.default_rng([seed, *json.dumps(trials.documents).encode()])
        vals = {label: [] for label in domain.params}
        vals.update({node.label: [np.float64(value)] for node, value in nodes_of(domain.expression, rng=rng)})
        return [{"misc": {"vals": vals}}]


@pytest.fixture
def library(monkeypatch):
    fake = FakeHyperopt()
    monkeypatch.setitem(sys.modules, "hyperopt", fake)
    return fake


def ready(space, **arguments):
    search = HyperOptSearch(**arguments)
    assert search.set_search_properties("loss", "min", space, seed=7)
    return search


# --- the space -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "said"),
    [
        (uniform(0, 2), ("uniform", 0, 2)),
        (quniform(0, 1, 0.25), ("quniform", 0, 1, 0.25)),
        (loguniform(1e-3, 1), ("loguniform", math.log(1e-3), 0)),
        (qloguniform(0.5, 8, 0.5), ("qloguniform", math.log(0.5), math.log(8), 0.5)),
        (randn(1, 2), ("normal", 1, 2)),
        (qrandn(1, 2, 0.5), ("qnormal", 1, 2, 0.5)),
        (randint(1, 5), ("quniform", 0.5, 4.5, 1)),
        (qrandint(1, 10, 3), ("quniform", 1.5, 10.5, 3)),
        (lograndint(1, 5), ("qloguniform", math.log(0.5), math.log(4.5), 1)),
        (qlograndint(2, 10, 2), ("qloguniform", 0, math.log(11), 2)),
        (choice(["a", None, 3]), ("choice", [[], [], []])),
    ],
)
def test_domains_become_expressions(library, domain, said):
    search = ready({"x": domain})
    assert search._domain.params["x"].said == said
    assert domain.is_valid(search.suggest("t")["x"])


def test_a_choice_among_dicts_is_a_conditional_space(library):
    model = choice([{"lr": uniform(0, 1)}, {"lr": uniform(0, 9), "deep": [choice([1, 2])]}, "none"])
    search = ready({"model": model, "seed": 3, "twice": sample_from(lambda config: config["seed"] * 2)})
    assert list(search._domain.params) == ["model", "model/0/lr", "model/1/lr", "model/1/deep/0"]
    configs = [search.suggest(f"t{n}") for n in range(30)]
    assert {str(config["model"])[:6] for config in configs} == {"{'lr':", "none"}
    assert all(config["seed"] == 3 and config["twice"] == 6 for config in configs)
    for number, config in enumerate(configs):
        index = 2 if config["model"] == "none" else len(config["model"]) - 1
        names = [["model/0/lr"], ["model/1/lr", "model/1/deep/0"], []][index]
        assert search.suggestion_state(f"t{number}")["values"].keys() == {"model", *names}


# --- points ----------------------------------------------------------------------------------------------------------


def test_points_come_first_and_what_they_leave_open_is_drawn(library):
    space = {
        "net": {"width": randint(1, 9), "act": choice(["relu", {"slope": uniform(0, 1), "kind": "leaky"}])},
        "n": 1,
    }
    points = [{"net/width": 8, "n": 5}, {"net": {"width": 2, "act": {"slope": 0.5}}}, {"net/act": "relu"}]
    search = ready(space, points_to_evaluate=points)
    first, second, third = (search.suggest(trial) for trial in "abc")
    assert (first["net"]["width"], first["n"]) == (8, 5)
    assert second == {"net": {"width": 2, "act": {"slope": 0.5, "kind": "leaky"}}, "n": 1}
    assert search.suggestion_state("b") == {"values": {"net/width": 2, "net/act": 1, "net/act/1/slope": 0.5}}
    assert third["net"]["act"] == "relu"
    assert 1 <= third["net"]["width"] < 9
    assert library.asked == []
    search.suggest("d")
    assert len(library.asked) == 1


def test_a_point_keeps_its_value_where_draws_are_rounded(library):
    assert ready({"x": quniform(0, 1, 0.25)}, points_to_evaluate=[{"x": 0.3}]).suggest("t") == {"x": 0.3}


# --- what the library is told ----------------------------------------------------------------------------------------


def test_the_library_hears_every_point_in_the_order_of_its_number(library):
    search = HyperOptSearch({"x": uniform(0, 1)}, "score", "max", gamma=0.5, n_initial_points=2)
    search.set_search_properties(None, None, {}, seed=1)
    configs = [search.suggest(trial) for trial in "abcde"]
    search.on_trial_complete("d", {"score": 4.0})
    search.on_trial_complete("b", {"score": math.nan})
    search.on_trial_complete("a", {"score": 1.0})
    search.on_trial_complete("c", error=True)
    search.on_trial_complete("a", {"score": 9.0})  # heard before
    search.suggest("f")
    asked = library.asked[-1]
    assert (asked["gamma"], asked["n_startup_jobs"], asked["verbose"], asked["ids"]) == (0.5, 2, False, [4])
    fail = {"status": "fail"}
    losses = [{"status": "ok", "loss": -1.0}, fail, {"status": "ok", "loss": -4.0}, fail]
    assert [document["result"] for document in asked["documents"]] == losses
    values = [document["misc"]["vals"]["x"] for document in asked["documents"]]
    assert values == [[configs[n]["x"]] for n in (0, 1, 3, 4)]
    assert [document["misc"]["idxs"]["x"] for document in asked["documents"]] == [[0], [1], [2], [3]]
    assert {document["state"] for document in asked["documents"]} == {2}


def test_the_model_does_not_begin_with_nothing(library):
    ready({"x": uniform(0, 1)}, n_initial_points=0).suggest("t")
    assert library.asked[0]["n_startup_jobs"] == 1


def test_points_from_elsewhere_are_learned_from(library):
    search = ready({"x": uniform(0, 1), "k": choice(["a", "b"]), "c": 3})
    search.add_evaluated_point({"x": 0.5, "k": "b", "c": 3}, 0.25)
    search.suggest("t")
    (document,) = library.asked[0]["documents"]
    assert document["result"] == {"status": "ok", "loss": 0.25}
    assert document["misc"]["vals"] == {"k": [1], "x": [0.5]}
    with pytest.raises(SpaceError, match="leaves out 'k'"):
        search.observe({"x": 0.5}, {"loss": 1.0})


def test_a_record_without_states_is_read_from_its_configs(library):
    space = {"x": uniform(0, 1), "k": choice(["a", {"y": randint(0, 4)}])}
    search, again = ready(space), ready(space)
    for n in range(6):
        config = search.suggest(f"t{n}")
        again.retell(f"t{n}", config, None)
    assert [again.suggestion_state(f"t{n}") for n in range(6)] == [search.suggestion_state(f"t{n}") for n in range(6)]
    assert again.suggest("next") == search.suggest("next")


class TestTheContractWithTheStandIn(SearcherContract):
    @pytest.fixture(autouse=True)
    def _library(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "hyperopt", FakeHyperopt())

    def make(self):
        return HyperOptSearch()


# --- the library itself ----------------------------------------------------------------------------------------------


@pytest.mark.slow
class TestTheContractWithHyperopt(SearcherContract):
    @pytest.fixture(autouse=True)
    def _library(self):
        pytest.importorskip("hyperopt")

    def make(self):
        return ConcurrencyLimiter(HyperOptSearch(n_initial_points=5), max_concurrent=3)


@pytest.mark.slow
def test_a_space_in_expressions_of_hyperopt():
    hp = pytest.importorskip("hyperopt").hp
    marker = {"plain": [1, 2]}
    model = hp.choice("model", [{"kind": "linear"}, {"kind": "mlp", "layers": hp.randint("layers", 1, 5)}])
    space = {"lr": hp.loguniform("lr", -5, 0), "net": {"model": model}, "keep": marker}
    points = [{"lr": 0.5, "model": 1, "layers": 3}, {"model": 0}]
    search = HyperOptSearch(space, "loss", "min", points, n_initial_points=5)
    assert search.set_search_properties(None, None, {"epochs": 2}, seed=3)
    first = search.suggest("t0")
    assert (first["lr"], first["net"], first["epochs"]) == (0.5, {"model": {"kind": "mlp", "layers": 3}}, 2)
    assert search.suggest("t1")["net"] == {"model": {"kind": "linear"}}
    again = HyperOptSearch(space, "loss", "min", points, n_initial_points=5)
    assert again.set_search_properties(None, None, {"epochs": 2}, seed=3)
    for n in range(12):
        config = search.suggest(f"t{n}")
        again.retell(f"t{n}", config, json.loads(json.dumps(search.suggestion_state(f"t{n}"))))
        if n >= 2:
            for one in (search, again):
                one.on_trial_complete(f"t{n}", {"loss": config["lr"]})
    assert again.suggest("next") == search.suggest("next")
    assert type(config["lr"]) is float


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "message"),
    [({"lrr": 1.0}, "no label of the space. Did you mean 'lr'"), ({"lr": "a"}, "sets lr to 'a'; expected a number")],
)
def test_points_of_expressions_are_checked(point, message):
    hp = pytest.importorskip("hyperopt").hp
    search = HyperOptSearch({"lr": hp.uniform("lr", 0, 1)}, points_to_evaluate=[point])
    with pytest.raises(SpaceError, match=message):
        search.set_search_properties("loss", "min", {})


@pytest.mark.slow
def test_expressions_and_domains_do_not_mix():
    hp = pytest.importorskip("hyperopt").hp
    with pytest.raises(SpaceError, match="write all in one way"):
        ready({"a": hp.uniform("a", 0, 1), "b": uniform(0, 1)})
    with pytest.raises(SpaceError, match="is one hp expression"):
        HyperOptSearch(hp.uniform("a", 0, 1)).set_search_properties("loss", "min", {})


@pytest.mark.slow
def test_a_space_is_converted_to_expressions_of_hyperopt():
    hyperopt = pytest.importorskip("hyperopt")
    space = {"net": {"width": randint(1, 4), "act": choice(["relu", {"leaky": uniform(0, 1)}])}, "epochs": 3}
    found = HyperOptSearch.convert_search_space(space, prefix="p")
    rng = np.random.default_rng(0)
    drawn = [hyperopt.pyll.stochastic.sample(found, rng=rng) for _ in range(200)]
    assert {(type(one["net"]["width"]), one["net"]["width"], one["epochs"]) for one in drawn} == {
        (int, width, 3) for width in (1, 2, 3)
    }
    assert {one["net"]["act"] if isinstance(one["net"]["act"], str) else "leaky" for one in drawn} == {"relu", "leaky"}
    assert set(hyperopt.Domain(len, found).params) == {"p/net/width", "p/net/act", "p/net/act/1/leaky"}
    assert HyperOptSearch(found, metric="loss", mode="min").suggest("a").keys() == space.keys()
    for wrong, why in ({"x": grid_search([1])}, "grid"), ({"x": sample_from(lambda config: 1)}, "no expression"):
        with pytest.raises(SpaceError, match=why):
            HyperOptSearch.convert_search_space(wrong)
