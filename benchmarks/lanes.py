"""What trials gain as lanes of one process: digits-MLPs under ASHA and a population under PBT, beside processes.

The ways to run them stand beside each other in one run, with fewer trials where each has a process. The best trial of
the sweep is trained again alone.

Run: python benchmarks/lanes.py [--short]
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import sweep
from sweep.worker.environment import trial_seed

Row = tuple[str, str, str, str]
EXAMPLE = Path(__file__).parents[1] / "examples" / "vectorized_digits.py"
SPACE = {"lr": sweep.loguniform(1e-4, 1.0), "momentum": sweep.uniform(0.0, 0.99)}
MUTATED = {"lr": sweep.uniform(1e-4, 0.02)}
EPOCHS, ITERATIONS = 10, 30


class Climb(sweep.VectorTrainable):
    """The problem of Tune's PBT example: the best learning rate rises up to half of the way, and falls again."""

    num_lanes = 256

    def init(self) -> dict[str, Any]:
        return {"accuracy": jnp.zeros(())}

    def step(self, accuracy: Any, lr: Any, key: Any) -> tuple[Any, dict[str, Any]]:
        best = jnp.clip(0.01 - 0.01 * jnp.abs(accuracy - 100) / 100, 0.001, 0.01)
        error = jnp.maximum(lr, best) / jnp.minimum(lr, best)
        one, two = jax.random.split(key)
        change = jnp.where(error < 3, 1 / error, jnp.where(lr > best, 3 - error, 0.0))
        accuracy = jnp.maximum(0.0, accuracy + change * jax.random.uniform(one) + 2 * jax.random.normal(two))
        return accuracy, {"mean_accuracy": accuracy, "optimal_lr": best}


def per_s(number: int, count: int, directory: Path, what: str, **how: Any) -> tuple[float, float, Any]:
    """Return how many of `count` were done per second, in how many seconds, and the analysis."""
    began = time.perf_counter()
    analysis = sweep.run(num_samples=number, mode="max", seed=0, verbose=0, storage_path=directory, name=what, **how)
    took = time.perf_counter() - began
    assert len(analysis.trials) == number, what
    return count / took, took, analysis


def digits(directory: Path, number: int, few: int, kept: int) -> list[Row]:
    """`number` MLPs as lanes, `few` in fresh processes and `kept` in reused ones, each under ASHA."""
    vector = runpy.run_path(str(EXAMPLE))["Digits"]
    common: dict[str, Any] = {"config": SPACE, "metric": "accuracy"}

    def asha() -> sweep.ASHAScheduler:
        return sweep.ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3)

    lanes, took, analysis = per_s(
        number, number, directory, "lanes", run_or_experiment=vector, scheduler=asha(), **common
    )
    best = analysis.best_trial
    reports = vector.run_one(best.config, best.last_result["training_iteration"], seed=trial_seed(0, best.trial_id))
    alone = reports[-1]["accuracy"]
    fresh, reused = (
        per_s(n, n, directory, what, run_or_experiment=vector, scheduler=asha(), engine="local", **more, **common)[0]
        for what, n, more in (("fresh", few, {}), ("reused", kept, {"reuse_actors": True}))
    )
    name = f"{number} digits-MLPs of {EPOCHS} epochs, ASHA"
    return [
        (name, f"{took:.1f} s", "<= 60 s", f"{lanes:.1f} trials/s"),
        ("the same as fresh processes", f"{fresh:.2f} trials/s", ">= 50x", f"ratio {lanes / fresh:.0f}; {few} trials"),
        (
            "the same as reused processes",
            f"{reused:.2f} trials/s",
            ">= 10x",
            f"ratio {lanes / reused:.0f}; {kept} trials",
        ),
        (
            "the winner alone",
            f"{alone:.4f}",
            "within 0.5 %",
            f"in the sweep {best.last_result['accuracy']:.4f}",
        ),
    ]


def population(directory: Path, members: int, few: int) -> list[Row]:
    """Iterations of a population of `members` as lanes, and of one of `few` as reused processes."""

    def pbt() -> sweep.PopulationBasedTraining:
        return sweep.PopulationBasedTraining(perturbation_interval=4, hyperparam_mutations=MUTATED)

    common: dict[str, Any] = {"config": MUTATED, "metric": "mean_accuracy", "stop": {"training_iteration": ITERATIONS}}
    lanes, took, _ = per_s(
        members, members * ITERATIONS, directory, "pbt", run_or_experiment=Climb, scheduler=pbt(), **common
    )
    beside, _, _ = per_s(
        few,
        few * ITERATIONS,
        directory,
        "pbt_processes",
        run_or_experiment=Climb,
        scheduler=pbt(),
        engine="local",
        reuse_actors=True,
        **common,
    )
    what = f"PBT, {members} members x {ITERATIONS} iterations"
    return [
        (
            what,
            f"{lanes:.0f} iterations/s",
            ">= 20x",
            f"{took:.1f} s; processes {beside:.0f}/s: ratio {lanes / beside:.0f}",
        )
    ]


def rows(directory: Path, is_short: bool = False) -> list[Row]:
    """Return what was measured, what is promised and what stands beside it, a line for each figure."""
    if is_short:
        return [*digits(directory, 64, 2, 4), *population(directory, 32, 2)]
    return [*digits(directory, 1000, 8, 16), *population(directory, 256, 8)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="fewer trials")
    with tempfile.TemporaryDirectory() as name:
        os.environ.setdefault("SWEEP_CLAIMS", str(Path(name) / "claims"))
        print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        for what, measured, promised, beside in rows(Path(name), parser.parse_args().short):
            print(f"{what:42s} {measured:>24s}   {promised:18s} {beside}", flush=True)
