"""The best configs of an experiment are run again, and what came of it is said."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from figure_checks import check
from jsonschema import Draft202012Validator

import sweep
from sweep.cli.clients.schema import SCHEMAS
from sweep.cli.main import sweep as command_line
from sweep.confirmation.outcome import confirmation_of
from sweep.errors import ConfigError, ExperimentError, MetricError
from sweep.page.model import models_of
from sweep.page.subject import Subject
from sweep.record.reader import ExperimentReader

ROOT = Path(__file__).parents[2]


def noisy(config: dict[str, Any]) -> dict[str, float]:
    if config.get("fails_at") == config["seed"]:
        raise RuntimeError("diverged")
    noise = ((config["seed"] * 7919 + 13) % 11 - 5) / 10  # the same for all configs with this seed
    own = ((config["seed"] * 31 + int(config["lr"] * 17)) % 5 - 2) / 1000
    return {"loss": config["lr"] + noise + own, "other": 1.0}


def made(where: Path, train: Any, config: dict[str, Any], **more: Any) -> sweep.ExperimentAnalysis:
    given = {"metric": "loss", "mode": "min", "engine": "inline", "verbose": 0, "seed": 1, "name": "digits"}
    return sweep.run(train, config=config, storage_path=str(where), raise_on_failed_trial=False, **(given | more))


def test_the_best_configs_are_run_again_with_other_seeds_and_one_is_taken(tmp_path):
    made(tmp_path, noisy, {"lr": sweep.grid_search([0.1, 0.2, 3.0, 4.0]), "seed": 5, "wide": {"depth": 2}})
    found = sweep.confirm("digits", top=3, repeats=5, storage_path=str(tmp_path), verbose=0)
    assert found.best is not None
    assert (found.best["trial"], found.best["config"]["wide"]) == (0, {"depth": 2})
    assert found.best["low"] < found.best["mean"] < found.best["high"]
    assert [one["trial"] for one in found.configs] == [0, 1, 2]
    assert (found.lead["over"], found.lead["mean"] > 0, found.lead["p"] < 0.01) == (1, True, True)
    assert str(found).startswith("take trial 00000: mean loss ")
    rows = ExperimentReader(tmp_path / "digits-confirm").trials()
    assert len(rows) == sum(one["runs"] for one in found.configs) < 15
    assert [row.config["seed"] for row in rows[:6]] == [6, 6, 6, 7, 7, 7]


@pytest.mark.slow
def test_its_figure_has_a_column_for_each_config_and_is_on_the_page_of_the_experiment(tmp_path):
    made(tmp_path, noisy, {"lr": sweep.grid_search([0.1, 0.2, 3.0, 4.0]), "seed": 5})
    found = sweep.confirm("digits", top=3, storage_path=str(tmp_path), verbose=0)
    check(found.figure(), [0, 1, 2])
    (model,) = models_of([Subject(ExperimentReader(tmp_path / "digits"))])
    model.refresh()
    assert "Run again with other seeds: take trial 00000" in model.parts["winner"].text
    assert model.order[-1] == "confirmation"
    assert json.loads(model.figures["confirmation"].text)["layout"]["meta"]["figure"] == "confirmation"


def unseeded(config: dict[str, Any]) -> dict[str, float]:
    return {"loss": config["lr"] + random.random(), "seed": sweep.get_context().get_seed()}


@pytest.mark.parametrize("more", [{}, {"max_concurrent_trials": 2}])
def test_without_a_seed_among_the_parameters_the_trials_of_a_repeat_have_one_seed(tmp_path, more):
    analysis = made(tmp_path, unseeded, {"lr": sweep.grid_search([0.1, 0.11, 0.12])})
    sweep.confirm(analysis, repeats=3, verbose=0, **more)
    found = [row.last_metrics["seed"] for row in ExperimentReader(tmp_path / "digits-confirm").trials()]
    assert found == [seed for seed in found[::3] for _ in range(3)]
    assert len({*found, *analysis.dataframe()["seed"]}) == 3 + 3


def indexed(config: dict[str, Any]) -> dict[str, float]:
    return noisy(config | {"seed": config["__trial_index__"]}) | {"index": config["__trial_index__"]}


def test_what_a_repeater_has_repeated_goes_on_with_the_next_indices(tmp_path):
    searcher = sweep.search.Repeater(sweep.BasicVariantGenerator(), repeat=2)
    analysis = made(tmp_path, indexed, {"lr": sweep.grid_search([0.1, 0.2])}, num_samples=2, search_alg=searcher)
    found = sweep.confirm(analysis, repeats=3, verbose=0)
    assert [(one["failed"], one["config"]) for one in found.configs] == [(0, {"lr": 0.1}), (0, {"lr": 0.2})]
    rows = ExperimentReader(tmp_path / "digits-confirm").trials()
    assert [row.last_metrics["index"] for row in rows] == [2, 2, 3, 3, 4, 4]


def test_asked_again_it_runs_nothing_twice_and_something_else_is_refused(tmp_path):
    analysis = made(tmp_path, noisy, {"lr": sweep.grid_search([0.1, 0.2, 0.3]), "seed": 5})
    first = sweep.confirm(analysis, top=2, repeats=3, verbose=0)
    count = len(ExperimentReader(tmp_path / "digits-confirm").trials())
    assert sweep.confirm(analysis, top=2, repeats=3) == first
    assert len(ExperimentReader(tmp_path / "digits-confirm").trials()) == count == 6
    with pytest.raises(ConfigError, match=r"was begun with trials \[0, 1\], metric loss \(min\), repeats 3"):
        sweep.confirm(analysis, top=3, repeats=3)
    made(tmp_path, noisy, {"lr": 0.1, "seed": 1}, name="plain-confirm")
    plain = made(tmp_path, noisy, {"lr": 0.1, "seed": 1}, name="plain")
    with pytest.raises(ConfigError, match="is another sweep"):
        sweep.confirm(plain)


def test_in_mode_max_with_fewer_trials_than_asked_for_and_equal_configs_counted_once(tmp_path):
    space = {"lr": sweep.grid_search([0.1, 0.9, 0.9]), "seed": sweep.grid_search([3, 4])}
    made(tmp_path, noisy, space, mode="max")
    found = sweep.confirm("digits", storage_path=str(tmp_path), repeats=3, verbose=0)
    assert [one["config"]["lr"] for one in found.configs] == [0.9, 0.1]
    assert sorted({row.config["seed"] for row in ExperimentReader(tmp_path / "digits-confirm").trials()}) == [5, 6, 7]


def test_a_config_that_fails_once_is_not_taken_and_failed_trials_are_not_tried(tmp_path):
    configs = [{"lr": 0.1, "fails_at": 6}, {"lr": 0.2, "fails_at": 0}, {"lr": 0.0, "fails_at": 5}]
    space = {"lr": sweep.uniform(0, 1), "fails_at": sweep.randint(0, 9), "seed": 5}
    made(tmp_path, noisy, space, num_samples=3, search_alg=sweep.search.RandomSearch(points_to_evaluate=configs))
    found = sweep.confirm("digits", storage_path=str(tmp_path), repeats=4, verbose=0)
    assert [(one["trial"], one["failed"], one["dropped"]) for one in found.configs] == [(1, 0, None), (0, 1, 1)]
    assert "take trial 00001" in str(found)


def test_where_every_config_fails_none_is_taken(tmp_path):
    made(tmp_path, noisy, {"lr": sweep.grid_search([0.1, 0.2]), "fails_at": 6, "seed": 5})
    found = sweep.confirm("digits", storage_path=str(tmp_path), verbose=0)
    assert found.best is None
    assert "none of 2 configs came through" in str(found)


def test_a_trainable_that_does_not_vary_with_the_seed_is_said_to_be_so(tmp_path):
    made(tmp_path, lambda config: {"loss": config["lr"]}, {"lr": sweep.grid_search([0.1, 0.2])})
    found = sweep.confirm("digits", storage_path=str(tmp_path), verbose=0)
    assert found.is_constant
    assert "does not vary with the seed" in str(found)
    assert sum(one["runs"] for one in found.configs) == 6


def stepped(config: dict[str, Any]) -> None:
    for step in range(1, 100):
        sweep.report(loss=config["lr"] / step)


@pytest.mark.slow
def test_trials_run_to_the_length_that_their_scheduler_had_set_and_no_scheduler_ends_them_before(tmp_path):
    scheduler = sweep.ASHAScheduler(max_t=9, grace_period=1)
    made(tmp_path, stepped, {"lr": sweep.grid_search([1.0, 2.0, 3.0, 4.0])}, scheduler=scheduler, stop={"loss": 99})
    sweep.confirm("digits", storage_path=str(tmp_path), verbose=0)
    assert {row.count for row in ExperimentReader(tmp_path / "digits-confirm").trials()} == {9}
    stops = lambda trial_id, result: result["training_iteration"] >= 50  # noqa: E731
    made(tmp_path, stepped, {"lr": sweep.grid_search([1.0, 2.0])}, scheduler="asha", stop=stops, name="other")
    sweep.confirm("other", storage_path=str(tmp_path), verbose=0)
    assert {row.count for row in ExperimentReader(tmp_path / "other-confirm").trials()} == {50}


def test_what_has_no_best_config_is_refused(tmp_path):
    space = {"lr": sweep.uniform(0, 1), "seed": 1}
    several = made(tmp_path, noisy, space, metric=["loss", "other"], mode=["min", "max"])
    with pytest.raises(ConfigError, match=r"optimised loss \(min\), other \(max\), so no config is best"):
        sweep.confirm(several)
    assert sweep.confirm(several, metric="loss", mode="min", repeats=2, verbose=0).best is not None
    with pytest.raises(MetricError, match="'lost'"):
        sweep.confirm(several, metric="lost", mode="min")
    with pytest.raises(ExperimentError, match="no experiment 'digit'"):
        sweep.confirm("digit", storage_path=str(tmp_path))
    pbt = sweep.PopulationBasedTraining(perturbation_interval=2, hyperparam_mutations={"lr": sweep.uniform(0, 1)})
    changed = made(tmp_path, stepped, {"lr": 0.5}, scheduler=pbt, stop={"training_iteration": 3}, name="pbt")
    with pytest.raises(ConfigError, match="changes configs while trials run"):
        sweep.confirm(changed)


@pytest.mark.slow
def test_the_command_prints_the_table_and_best_says_what_was_confirmed(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    made(tmp_path, noisy, {"lr": sweep.grid_search([0.1, 0.2]), "seed": 5})
    reader = ExperimentReader(tmp_path / "digits")
    assert confirmation_of(reader) is None
    typed = CliRunner().invoke(command_line, ["confirm", "digits", "--figure", str(tmp_path / "f.html")])
    assert typed.exception is None or typed.exit_code == 0
    assert "take trial 00000" in typed.output
    assert "plotly" in (tmp_path / "f.html").read_text()
    told = json.loads(CliRunner().invoke(command_line, ["confirm", "digits", "--json"]).output)
    Draft202012Validator(SCHEMAS["confirm"]).validate(told)
    assert (told["best"]["trial"], told["is_over"], told["configs"][0]["failed"]) == (0, True, 0)
    assert "confirmed: take trial 00000" in CliRunner().invoke(command_line, ["best", "digits"]).output
    quoted = CliRunner().invoke(command_line, ["best", "digits", "--as", "args"])
    assert quoted.stdout == "lr=0.1 seed=5\n"
    assert quoted.stderr.startswith("confirmed: take trial 00000")
    rows = json.loads(CliRunner().invoke(command_line, ["best", "digits", "--top", "2", "--format", "json"]).stdout)
    assert [row["confirmed"] for row in rows] == [True, False]
    by_other = CliRunner().invoke(command_line, ["best", "digits", "--goal", "maximize"]).output
    assert "confirmed" not in by_other


TRAIN = """
import random, time, sweep

def train(config):
    print("begun", flush=True)
    for step in range(4):
        time.sleep(0.02)
        sweep.report(loss=config["lr"] + random.gauss(0, 0.1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed_after", [1, 7, 13])
def test_killed_it_goes_on_with_the_same_command_and_runs_nothing_twice(tmp_path, killed_after):
    (tmp_path / "train.py").write_text(TRAIN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SWEEP_STORAGE": str(tmp_path / "sweeps")}

    def start(*words: str) -> subprocess.Popen[str]:
        typed = [sys.executable, "-c", "from sweep.cli.main import main; main()", *words]
        return subprocess.Popen(typed, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)

    given = ["train.py:train", "lr=uniform(0,0.3)", "--minimize", "loss", "--trials", "6", "--name", "digits", "-q"]
    with start("run", *given) as first:
        assert first.wait(60) == 0
    confirm = ["confirm", "digits", "--repeats", "6", "--concurrency", "2", "--json"]
    root = tmp_path / "sweeps" / "digits-confirm"
    with start(*confirm) as driver:
        while driver.poll() is None and not _has_ended(root, killed_after):
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    with start(*confirm) as again:
        told = json.loads(again.communicate(timeout=90)[0])
    assert again.returncode == 0
    rows = ExperimentReader(root).trials()
    assert len(rows) == sum(one["runs"] for one in told["configs"])
    pairs = [(row.config["lr"], row.status) for row in rows]
    assert {status for _, status in pairs} == {"TERMINATED"}
    assert all(sum(lr == one["config"]["lr"] for lr, _ in pairs) == one["runs"] <= 6 for one in told["configs"])
    with start("replay", "digits-confirm", "--verify") as replayed:
        assert "all as recorded" in replayed.communicate(timeout=60)[0]


def _has_ended(root: Path, number: int) -> bool:
    try:
        return sum(row.is_ended for row in ExperimentReader(root).trials()) >= number
    except ExperimentError:
        return False
