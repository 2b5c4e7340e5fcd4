"""Every scheduler and every searcher, as made for trials of nine steps that report `loss` and `size`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sweep

__all__ = ["SCHEDULERS", "SEARCHERS", "world_of"]

NUM_TRIALS = 14
SPACE = {
    "x": sweep.uniform(0, 1),
    "lr": sweep.loguniform(1e-4, 1e-1),
    "layers": sweep.randint(1, 5),
    "kind": sweep.choice(["a", "b"]),
}
NUMBERS = {"x": sweep.uniform(0, 1), "lr": sweep.uniform(1e-4, 1e-1), "layers": sweep.uniform(1, 4)}
GRID = {**SPACE, "lr": sweep.grid_search([1e-3, 1e-2]), "layers": sweep.grid_search([1, 2, 3])}
BOUNDS = {"x": [0.0, 1.0], "lr": [1e-4, 1e-1]}

SCHEDULERS: dict[str, Callable[[], Any]] = {
    "fifo": lambda: None,
    "asha": lambda: sweep.ASHAScheduler(max_t=9, reduction_factor=3),
    "asha, brackets": lambda: sweep.ASHAScheduler(max_t=9, reduction_factor=3, brackets=2),
    "asha, promotion": lambda: sweep.ASHAScheduler(max_t=9, reduction_factor=3, type="promotion"),
    "moasha": lambda: sweep.MOASHAScheduler(max_t=9, reduction_factor=3, metric=["loss", "size"], mode="min"),
    "pasha": lambda: sweep.PASHAScheduler(max_t=9, reduction_factor=3),
    "bohb": lambda: sweep.HyperBandForBOHB(max_t=9, reduction_factor=3),
    "pb2": lambda: _pb2(),
    "pb2, synchronous": lambda: _pb2(synch=True),
    "hyperband": lambda: sweep.HyperBandScheduler(max_t=9, reduction_factor=3),
    "median": lambda: sweep.MedianStoppingRule(time_attr="training_iteration", grace_period=2),
    "resources": lambda: sweep.ResourceChangingScheduler(sweep.ASHAScheduler(max_t=9, reduction_factor=3)),
    "pbt": lambda: _pbt(),
    "pbt, synchronous": lambda: _pbt(synch=True),
}
SEARCHERS: dict[str, Callable[[], Any]] = {
    "variants": lambda: None,
    "random": lambda: "random",
    "tpe": lambda: "tpe",
    "qmc": lambda: "qmc",
    "nsgaii": lambda: "nsgaii",
    "nsgaiii": lambda: "nsgaiii",
    "cmaes": lambda: "cmaes",
    "gp": lambda: sweep.OptunaSearch(sampler="gp"),
    "grid": lambda: None,
    "hyperopt": lambda: _if_installed("hyperopt") and sweep.HyperOptSearch(n_initial_points=5),
    "bayesopt": lambda: _if_installed("bayes_opt") and sweep.BayesOptSearch(random_search_steps=5),
    "bohb": lambda: sweep.BOHBSearch(max_t=9),
    "limited": lambda: sweep.ConcurrencyLimiter(sweep.OptunaSearch(), max_concurrent=2),
    "batches": lambda: sweep.ConcurrencyLimiter(sweep.OptunaSearch(), max_concurrent=3, batch=True),
    "repeated": lambda: sweep.Repeater(sweep.OptunaSearch(), repeat=2),
}


def _pbt(**more: Any) -> Any:
    mutations = {"x": sweep.uniform(0, 1), "lr": [1e-4, 1e-3, 1e-2]}
    return sweep.PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations=mutations, **more
    )


def _pb2(**more: Any) -> Any:
    return sweep.PB2(time_attr="training_iteration", perturbation_interval=2, hyperparam_bounds=BOUNDS, **more)


def _if_installed(package: str) -> bool:
    pytest.importorskip(package)
    return True


def world_of(searcher: str) -> tuple[dict[str, Any], int]:
    """Return the space and the number of samples for a searcher."""
    return {"grid": (GRID, 2), "bayesopt": (NUMBERS, NUM_TRIALS)}.get(searcher, (SPACE, NUM_TRIALS))
