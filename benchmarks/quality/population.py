"""Whether population methods follow a moving optimum: `python benchmarks/quality/population.py [--seeds N]`.

Training is a sum of gains that is part of every checkpoint, so what was lost early stays lost, and no single setting is
good throughout. Every method has the same number of trials, the same first configs, one machine for each trial, and
ends at the same time: the steps that a clone repeats are not given to it in addition. A perfect schedule gains the
number of steps.

Rate: one learning rate in [0.001, 1]. A step gains exp(-4 (log10(lr) - log10(lr*))^2), and lr* falls from 1 to 0.001
in 48 steps. Population based training judges every 2 steps and multiplies by 0.5 or 1.5: by its default factors a rate
could not fall so far. Random search is the reference.

Square: two values in [0, 1]. A step gains exp(-d^2 / (2 * 0.15^2)), d being the distance to an optimum that drifts from
(0.2, 0.8) to (0.8, 0.3) in 100 steps; judged every 5 steps. Population based training with its defaults is the
reference of population based bandits.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

import sweep as tune
from sweep.engines.simulator import Point
from sweep.schedulers.pb2 import PB2
from sweep.simulation.virtual import simulate

SEEDS = 20
RATE_STEPS, SQUARE_STEPS = 48, 100


def rate(config: Mapping[str, Any], count: int, state: float | None) -> Iterator[Point]:
    """Train with one learning rate."""
    total = state or 0.0
    for step in range(count + 1, RATE_STEPS + 1):
        best = -3 * step / RATE_STEPS
        total += math.exp(-4 * (math.log10(config["lr"]) - best) ** 2)
        yield Point(1.0, {"gained": total}, has_checkpoint=True, state=total)


def square(config: Mapping[str, Any], count: int, state: float | None) -> Iterator[Point]:
    """Train with two values."""
    total = state or 0.0
    for step in range(count + 1, SQUARE_STEPS + 1):
        share = step / SQUARE_STEPS
        distance = (config["x"] - 0.2 - 0.6 * share) ** 2 + (config["y"] - 0.8 + 0.5 * share) ** 2
        total += math.exp(-distance / (2 * 0.15**2))
        yield Point(1.0, {"gained": total}, has_checkpoint=True, state=total)


RATE_SPACE = {"lr": tune.loguniform(0.001, 1.0)}
SQUARE_SPACE = {"x": tune.uniform(0.0, 1.0), "y": tune.uniform(0.0, 1.0)}


def best_of(curve: Any, scheduler: Any, *, size: int, seed: int) -> float:
    """Return what the best trial of a population has gained."""
    space, steps = (RATE_SPACE, RATE_STEPS) if curve is rate else (SQUARE_SPACE, SQUARE_STEPS)
    found = simulate(
        curve,
        config=space,
        metric="gained",
        mode="max",
        num_samples=size,
        scheduler=scheduler,
        cpus=size,
        time_budget_s=steps + 0.5,
        seed=seed,
    )
    assert found.best_result is not None
    return float(found.best_result["gained"])


def pbt_of_rate(*, synch: bool) -> tune.PopulationBasedTraining:
    """Return population based training with steps that are wide enough for the learning rate."""
    return tune.PopulationBasedTraining(
        "training_iteration",
        perturbation_interval=2,
        hyperparam_mutations=RATE_SPACE,
        resample_probability=0.1,
        perturbation_factors=(0.5, 1.5),
        synch=synch,
    )


def pbt_of_square(*, synch: bool) -> tune.PopulationBasedTraining:
    """Return population based training with its default probabilities and factors."""
    return tune.PopulationBasedTraining(
        "training_iteration", perturbation_interval=5, hyperparam_mutations=SQUARE_SPACE, synch=synch
    )


def pb2_of_square(*, synch: bool) -> PB2:
    """Return population based bandits with their defaults."""
    bounds = {"x": [0.0, 1.0], "y": [0.0, 1.0]}
    return PB2("training_iteration", perturbation_interval=5, hyperparam_bounds=bounds, synch=synch)


def must_win_all(pairs: list[tuple[float, float]]) -> bool:
    """Whether ours gained more in every run."""
    return all(a > b for a, b in pairs)


def must_not_lose(pairs: list[tuple[float, float]]) -> bool:
    """Whether ours gained at least as much in the median."""
    return median(a for a, _ in pairs) >= median(b for _, b in pairs)


def row(task: str, method: str, reference: str, pairs: list[tuple[float, float]], rule: Callable[..., bool]) -> str:
    """Return one line of the table of paired results, ours first."""
    ours, theirs = median(a for a, _ in pairs), median(b for _, b in pairs)
    wins = f"wins {sum(a > b for a, b in pairs)} of {len(pairs)}"
    verdict = "holds" if rule(pairs) else "FAILS"
    return f"| {task} | {method} | median {ours:.1f}, {wins} | {reference}: median {theirs:.1f} | {verdict} |"


def main(seeds: int | None = None) -> list[str]:
    """Return the table as lines of Markdown.

    Args:
        seeds: how many runs per row; 20 unless given.
    """
    number = SEEDS if seeds is None else seeds
    lines = ["| task | method | ours | reference | verdict |", "| --- | --- | --- | --- | --- |"]
    plain = [best_of(rate, None, size=8, seed=seed) for seed in range(number)]
    for synch, step in ((False, ""), (True, ", in step")):
        ours = [best_of(rate, pbt_of_rate(synch=synch), size=8, seed=seed) for seed in range(number)]
        pairs = list(zip(ours, plain, strict=True))
        lines.append(row("moving rate, 8 trials", f"PBT{step}", "random search", pairs, must_win_all))
    for size in (4, 8):
        for synch, step in ((False, ""), (True, ", in step")):
            pairs = []
            for seed in range(number):
                one = best_of(square, pb2_of_square(synch=synch), size=size, seed=seed)
                other = best_of(square, pbt_of_square(synch=synch), size=size, seed=seed)
                pairs.append((one, other))
            lines.append(row(f"moving point, {size} trials", f"PB2{step}", f"PBT{step}", pairs, must_not_lose))
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=None, help=f"runs per row (default {SEEDS})")
    print("\n".join(main(parser.parse_args().seeds)))
