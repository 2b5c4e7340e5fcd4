"""Real sweeps in virtual time, by the scheduler that drives them: what figures of early stopping read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sweep
from sweep.engines.simulator import Point, Simulator
from sweep.results.analysis import ExperimentAnalysis

LAST = 27
MAKE: dict[str, Callable[[], Any]] = {
    "asha": lambda: sweep.ASHAScheduler(max_t=LAST, grace_period=1, reduction_factor=3),
    "promotion": lambda: sweep.ASHAScheduler(max_t=LAST, grace_period=1, reduction_factor=3, type="promotion"),
    "hyperband": lambda: sweep.schedulers.HyperBandScheduler(max_t=LAST),
    "median": lambda: sweep.schedulers.MedianStoppingRule(time_attr="training_iteration", grace_period=3),
    "pbt": lambda: sweep.PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=4, hyperparam_mutations={"x": sweep.uniform(0, 1)}
    ),
}


def curve(config: dict[str, float], done: int) -> Iterator[Point]:
    for step in range(done, LAST):
        loss = abs(config["x"] - 0.3) + 1 / (step + 1) + config["x"] * 0.01 * step
        yield Point(1.0 + config["x"] / 7, {"loss": loss}, has_checkpoint=True)


def run(root: Path, scheduler: str, curve: Any = curve) -> ExperimentAnalysis:
    """Run a sweep below `root`."""
    return sweep.run(
        lambda config: None,
        name=scheduler,
        config={"x": sweep.uniform(0, 1), "same": 3},
        num_samples=8 if scheduler == "pbt" else 24,
        metric="loss",
        mode="min",
        scheduler=MAKE[scheduler](),
        engine=Simulator(curve, [sweep.Node(cpus=8)]),
        storage_path=str(root),
        seed=1,
        verbose=0,
    )
