"""`warm_start=`: the searcher of a run learns from a former experiment, also when it is continued or replayed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import sweep
from searchers import OptunaSearch
from sweep import ExperimentAnalysis, RunConfig, TuneConfig, Tuner
from sweep.errors import ConfigError, ExperimentError, SpaceError

SPACE = {"x": sweep.uniform(0, 10), "n": 3}


def valley(config: dict[str, Any]) -> None:
    sweep.report(loss=(config["x"] - 7) ** 2, nested={"x": config["x"]})


def valley_or_failure(config: dict[str, Any]) -> None:
    if config["x"] > 9:
        raise ValueError("too far")
    valley(config)


def run(tmp_path: Path, name: str, **more: Any) -> ExperimentAnalysis:
    given = {"config": SPACE, "metric": "loss", "mode": "min", "seed": 3, "search_alg": "tpe", "verbose": 0}
    given |= {"max_concurrent_trials": 1, **more}
    trainable = given.pop("trainable", valley)
    return sweep.run(trainable, name=name, storage_path=tmp_path, engine="inline", **given)


def xs(analysis: Any) -> list[float]:
    return [trial.config["x"] for trial in analysis.trials]


@pytest.fixture
def former(tmp_path: Path) -> ExperimentAnalysis:
    return run(tmp_path, "former", num_samples=20, search_alg=None)


def test_a_searcher_learns_from_a_former_experiment_before_its_first_suggestion(
    tmp_path: Path, former: ExperimentAnalysis, capfd: pytest.CaptureFixture[str]
) -> None:
    root = former.experiment_path
    cold = run(tmp_path, "cold", num_samples=3)
    warm = run(tmp_path, "warm", num_samples=3, warm_start=root, verbose=1)
    assert "tpe (limit 1) has learned from 20 of 20 former results (warm_start)" in "".join(capfd.readouterr())
    assert xs(warm) != xs(cold)
    best = OptunaSearch(seed=3)
    assert best.set_search_properties("loss", "min", SPACE)
    assert best.add_evaluated_trials(former) == 20
    assert xs(warm)[0] == best.suggest("a")["x"]  # type: ignore[index]
    grid = sweep.ResultGrid(former)
    pairs = [(trial.config, trial.last_result) for trial in former.trials]
    for number, same in enumerate((former, Path(root), grid, list(grid), former.trials, pairs)):
        assert xs(run(tmp_path, f"same{number}", num_samples=3, warm_start=same)) == xs(warm)
    once = {"seed": 3, "search_alg": "tpe", "num_samples": 3, "max_concurrent_trials": 1}
    config = TuneConfig(metric="loss", mode="min", warm_start=root, **once)
    tuner = Tuner(valley, param_space=SPACE, tune_config=config, run_config=RunConfig(storage_path=tmp_path, verbose=0))
    assert [result.config["x"] for result in tuner.fit()] == xs(warm)


def test_a_continued_or_replayed_run_has_learned_the_same_though_the_former_one_is_gone(
    tmp_path: Path, former: ExperimentAnalysis, capfd: pytest.CaptureFixture[str]
) -> None:
    points = [(trial.config, trial.last_result) for trial in former.trials]
    whole = run(tmp_path, "whole", num_samples=8, warm_start=former)
    run(tmp_path, "parts", num_samples=4, warm_start=former)
    shutil.rmtree(former.experiment_path)
    assert xs(run(tmp_path, "parts", num_samples=6, resume=True)) == xs(whole)[:6]
    tuner = Tuner.restore(tmp_path / "parts", valley, tune_config=TuneConfig(num_samples=8))
    assert [result.config["x"] for result in tuner.fit()] == xs(whole)
    assert sweep.replay(tmp_path / "parts").is_same
    capfd.readouterr()
    run(tmp_path, "parts", num_samples=8, resume=True, warm_start=points, verbose=1)
    assert "warm_start is left out" not in "".join(capfd.readouterr())
    run(tmp_path, "parts", num_samples=8, resume=True, warm_start=points[:3], verbose=1)
    said = "".join(capfd.readouterr())
    assert "warm_start is left out: the searcher goes on from what the first run was given" in said


def test_failed_trials_teach_nothing(tmp_path: Path) -> None:
    options = {"config": {"x": sweep.grid_search([1.0, 9.5, 5.0]), "n": 3}, "search_alg": None}
    made = run(tmp_path, "former", trainable=valley_or_failure, raise_on_failed_trial=False, **options)
    seen: list[Any] = []

    class Hears(OptunaSearch):
        def observe(self, config: Any, result: Any) -> None:
            seen.append((config["x"], result["loss"], result["nested/x"], "trial_id" in result))
            super().observe(config, result)

    run(tmp_path, "warm", search_alg=Hears(), warm_start=made.experiment_path)
    assert seen == [(1.0, 36.0, 1.0, False), (5.0, 4.0, 5.0, False)]


def test_what_cannot_be_learned_from_is_refused_before_anything_starts(
    tmp_path: Path, former: ExperimentAnalysis
) -> None:
    refused: list[tuple[Any, type[Exception], str]] = [
        ({"warm_start": tmp_path / "nowhere"}, ExperimentError, "nowhere"),
        ({"warm_start": 3}, ConfigError, "warm_start is 3"),
        ({"warm_start": [3]}, ConfigError, "expected the directory of an experiment"),
        ({"warm_start": []}, ConfigError, "of 0 trials none has a result"),
        ({"warm_start": former, "metric": "los"}, ConfigError, r"has a number under 'los'\. Did you mean 'loss'"),
        ({"warm_start": former, "search_alg": "random"}, ConfigError, "Pass a search_alg that learns, such as 'tpe'"),
        ({"warm_start": former, "config": {"y": sweep.uniform(0, 1)}}, SpaceError, "none of the 20 evaluated points"),
    ]
    for given, error, words in refused:
        with pytest.raises(error, match=words):
            run(tmp_path, "refused", **given)
        assert not (tmp_path / "refused").exists()
