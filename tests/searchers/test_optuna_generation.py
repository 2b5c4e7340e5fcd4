"""CMA-ES one, four and sixteen trials at a time: the same points, because nothing is asked beyond a generation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import sweep as tune
from searchers.base import NOT_NOW
from searchers.optuna_search import OptunaSearch
from sweep.engines.simulator import Point
from sweep.simulation.virtual import Simulation, simulate

SPACE = {"x": tune.uniform(0, 1), "lr": tune.loguniform(1e-4, 1), "n": tune.randint(1, 50)}


def run(cpus: int, **more: Any) -> Simulation:
    def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
        if more.get("fails") and config["x"] > 0.9:
            raise ValueError("too large")
        yield Point(1 + 7 * config["x"] % 1, {"loss": (config["x"] - 0.3) ** 2 + config["lr"] + abs(config["n"] - 9)})

    search = OptunaSearch(sampler="cmaes")
    return simulate(
        curve, config=SPACE, metric="loss", mode="min", num_samples=40, search_alg=search, cpus=cpus, seed=3
    )


@pytest.mark.parametrize("fails", [False, True])
def test_the_points_are_the_same_however_many_trials_run_at_a_time(fails: bool) -> None:
    alone = run(1, fails=fails)
    for cpus in (4, 16):
        together = run(cpus, fails=fails)
        if not fails:
            assert [trial.config for trial in together.trials] == [trial.config for trial in alone.trials]
        assert len(together.trials) == len(alone.trials) == 40
        assert together.seconds < alone.seconds / 2


def test_a_point_is_refused_while_it_would_be_thrown_away() -> None:
    search = OptunaSearch(sampler="cmaes")
    search.set_search_properties("loss", "min", SPACE, seed=1)
    first = search.suggest("0")
    assert isinstance(first, dict)
    assert search.suggest("1") is NOT_NOW  # before anything is known a second one would be drawn at random, too
    search.on_trial_complete("0", {"loss": 1.0})
    generation = [f"{i}" for i in range(1, 8)]  # 4 + 3 ln 3 points for three numbers
    assert all(isinstance(search.suggest(trial_id), dict) for trial_id in generation)
    assert search.suggest("8") is NOT_NOW
    search.on_trial_complete("1", None, error=True)  # its place is free again
    assert isinstance(search.suggest("8"), dict)
    assert search.suggest("9") is NOT_NOW
    for trial_id in (*generation[1:], "8"):
        assert search.suggest("9") is NOT_NOW
        search.on_trial_complete(trial_id, {"loss": 1.0})
    assert isinstance(search.suggest("9"), dict)
