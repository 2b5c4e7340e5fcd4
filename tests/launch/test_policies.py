"""Searcher and scheduler of a sweep: what they are called, and what is said when nothing is searched."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest

import searchers
import sweep
from searchers import SEARCHERS, BasicVariantGenerator
from sweep.errors import ConfigError
from sweep.launch.build import describe, refuse_foreign_domains, unsearched_lists
from sweep.record.reader import ExperimentReader
from sweep.schedulers import SCHEDULERS

NOTICE = (
    "config['lr'] is a list of 3 values and nothing is searched; each trial gets the whole list. To try each, write "
    "sweep.grid_search([...]); to draw one, sweep.choice([...])."
)


def half(config: dict[str, Any]) -> None:
    sweep.report(loss=0.5)


def said(config: Any, search_alg: Any = None, scheduler: sweep.Scheduler | None = None) -> str:
    return unsearched_lists(search_alg, scheduler or sweep.FIFOScheduler(), config)


@pytest.mark.parametrize("num_samples", [1, 2])
def test_a_list_in_a_config_with_nothing_searched_is_said_once(tmp_path, capfd, num_samples):
    sweep.run(half, config={"lr": [0.1, 0.01, 0.001]}, num_samples=num_samples, storage_path=tmp_path, engine="inline")
    assert capfd.readouterr().err.count(f"sweep: {NOTICE}") == 1


def test_lists_are_found_wherever_they_lie():
    for search_alg in (None, "tpe"):
        assert said({"lr": [0.1, 0.01, 0.001]}, search_alg) == NOTICE
    assert said({"opt": {"name": ("adam", "sgd")}}).startswith(
        "config['opt']['name'] is a list of 2 values and nothing"
    )


@pytest.mark.parametrize(
    ("config", "given"),
    [
        ({"layers": [64, 32], "lr": sweep.uniform(0, 1)}, ()),
        ({"layers": [64, 32], "lr": sweep.grid_search([1, 2])}, ()),
        *(({"layers": layers}, ()) for layers in ([64, 64], [64], [], [{"size": 1}, {"size": 2}], 0.1)),
        (None, ()),
        ({"lr": [0.1, 0.2]}, (sweep.RandomSearch({"x": sweep.uniform(0, 1)}, "loss", "min"),)),
        ({"lr": [0.1, 0.2]}, (None, sweep.PopulationBasedTraining(hyperparam_mutations={"x": sweep.uniform(0, 1)}))),
    ],
)
def test_a_list_beside_something_searched_and_a_list_of_no_choices_stay_silent(config, given):
    assert said(config, *given) == ""


class Mine(sweep.GridSearch):
    """A searcher of a user's own."""


class MyScheduler(sweep.schedulers.FIFOScheduler):
    """A scheduler of a user's own."""


class Foreign:
    """A searcher that knows nothing of this package."""

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"x": 1}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        pass


def test_every_name_that_is_shown_can_be_typed():
    schedulers = (sweep.create_scheduler(name) for name in SCHEDULERS.keys() - {"pbt", "pb2", "pbt_replay"})
    assert {describe(scheduler) for scheduler in schedulers} <= {*SCHEDULERS, "resource_changing(fifo)"}
    assert {describe(make()) for make in SEARCHERS.values()} <= SEARCHERS.keys()
    grid, uniform = sweep.grid_search([1, 2]), sweep.uniform(0, 1)
    spaces = {"grid": {"x": grid}, "random": {"x": grid, "y": uniform}}
    assert [describe(BasicVariantGenerator(), space) for space in spaces.values()] == list(spaces)


@pytest.mark.parametrize(
    ("thing", "called"),
    [
        (sweep.OptunaSearch(), "tpe"),
        (sweep.OptunaSearch(sampler="cmaes"), "cmaes"),
        (sweep.create_searcher("gp"), "gp"),
        (sweep.create_searcher("optuna"), "tpe"),
        (BasicVariantGenerator(), "random"),
        (sweep.RandomSearch(), "random"),
        (sweep.GridSearch(), "grid"),
        (sweep.ConcurrencyLimiter(sweep.OptunaSearch(), 4), "tpe (limit 4)"),
        (sweep.Repeater(sweep.OptunaSearch(), 3), "tpe (3 times each)"),
        (searchers.ForeignSearcher(Foreign()), "Foreign"),
        (Mine(), "Mine"),
        (MyScheduler(), "MyScheduler"),
        (sweep.PopulationBasedTraining(hyperparam_mutations={"x": [1, 2]}), "pbt"),
        (sweep.ResourceChangingScheduler(sweep.ASHAScheduler()), "resource_changing(asha)"),
    ],
)
def test_what_is_shown_is_the_name_that_people_type_and_a_class_of_their_own_keeps_its_own(thing, called):
    assert describe(thing) == called


def test_the_header_and_the_record_have_the_names_that_people_type(tmp_path, capfd):
    given = {"config": {"x": sweep.uniform(0, 1)}, "metric": "loss", "mode": "min", "search_alg": "tpe"}
    given |= {"scheduler": sweep.ASHAScheduler(), "max_concurrent_trials": 2, "name": "named", "engine": "inline"}
    sweep.run(half, **given, storage_path=tmp_path)
    assert "searcher tpe (limit 2)   scheduler asha" in capfd.readouterr().out
    meta = ExperimentReader(tmp_path / "named").meta
    assert (meta["searcher"], meta["scheduler"]) == ("tpe (limit 2)", "asha")


@pytest.mark.parametrize(
    "make",
    [
        lambda: pytest.importorskip("scipy.stats").loguniform(1e-3, 1),
        lambda: pytest.importorskip("scipy.stats").randint(1, 9),
        lambda: optuna.distributions.FloatDistribution(0, 1),
        lambda: optuna.distributions.CategoricalDistribution(["a"]),
    ],
)
def test_a_distribution_of_another_library_is_refused_by_its_key(make):
    with pytest.raises(ConfigError, match=r"config\['model'\]\['lr'\] is a \w+ of (scipy|optuna)"):
        refuse_foreign_domains({"width": sweep.randint(1, 9), "model": {"lr": make()}})
    refuse_foreign_domains({"width": sweep.randint(1, 9), "array": np.zeros(3), "x": np.float64(1)})
