"""Does BOHB's model help: BOHB against the same HyperBand without a model, on a function with a budget.

MF-Hartmann-6: Hartmann's function of six variables, whose evaluation at fidelity z of 1 to 100 costs z and is off by
`bias` and `noise`, the less the larger z is; an evaluation that goes on where a smaller one ended pays the difference.
What counts is the regret of the best config that was evaluated at z = 100, after 8,000 units.

    python benchmarks/quality/bohb.py [--seeds 20]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import sweep as tune
from searchers.bohb_search import BOHBSearch
from sweep.engines.simulator import Point
from sweep.schedulers.hyperband import HyperBandForBOHB, HyperBandScheduler
from sweep.simulation.virtual import simulate

SEEDS = 20
UNITS = 8000.0
MAX_T, ETA = 81, 3
RUNGS = (1, 3, 9, 27, 81)  # epochs; all 81 are fidelity 100
NAMES = [f"x{number}" for number in range(6)]
MINIMUM = -3.32236801141551

_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


@dataclass(frozen=True)
class Fidelity:
    """How far an evaluation at a low fidelity is off."""

    name: str
    bias: float
    noise: float


TASKS = (Fidelity("MF-Hartmann-6, good", 2.5, 2.0), Fidelity("MF-Hartmann-6, moderate", 3.0, 3.0))


def value(config: Mapping[str, Any], z: float, task: Fidelity, seed: int) -> float:
    """Return the function at fidelity `z`; its noise depends on seed, config and fidelity, not on when it is asked."""
    x = np.array([config[name] for name in NAMES])
    missing = 1 - math.log(z) / math.log(100)
    inner = (_A * (x - _P) ** 2).sum(axis=1)
    clean = -float(((_ALPHA - task.bias * missing) * np.exp(-inner)).sum())
    key = np.random.SeedSequence([seed, round(z * 1000), *(int(one * 2**32) for one in x)])
    return clean + task.noise * abs(float(np.random.default_rng(key).normal())) * missing


def curve_of(task: Fidelity, seed: int) -> Callable[[Mapping[str, Any], int], Iterator[Point]]:
    """Return the curve of a trial, with a report at each rung; a second is a unit of cost."""

    def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
        for number, rung in enumerate(RUNGS[count:], count):
            before = RUNGS[number - 1] if number else 0
            loss = value(config, rung * 100 / MAX_T, task, seed)
            yield Point((rung - before) * 100 / MAX_T, {"loss": loss, "training_iteration": rung}, has_checkpoint=True)

    return curve


METHODS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "random + HyperBand": lambda: (None, HyperBandScheduler(max_t=MAX_T, reduction_factor=ETA)),
    "BOHB without a model + HyperBandForBOHB": lambda: (
        BOHBSearch(bohb_config={"random_fraction": 1}),
        HyperBandForBOHB(max_t=MAX_T, reduction_factor=ETA),
    ),
    "BOHB + HyperBandForBOHB": lambda: (BOHBSearch(), HyperBandForBOHB(max_t=MAX_T, reduction_factor=ETA)),
}


def regret(task: Fidelity, method: str, seed: int) -> float:
    """Return the regret of the best config that one sweep evaluated in full."""
    search_alg, scheduler = METHODS[method]()
    done = simulate(
        curve_of(task, seed),
        config={name: tune.uniform(0, 1) for name in NAMES},
        metric="loss",
        mode="min",
        num_samples=-1,
        search_alg=search_alg,
        scheduler=scheduler,
        time_budget_s=UNITS,
        seed=seed,
    )
    full = [arrival.metrics["loss"] for arrival in done.arrivals if arrival.metrics["training_iteration"] == MAX_T]
    return min(full) - MINIMUM


def sign_test(wins: int, losses: int) -> float:
    """Return how likely as many wins or more would be if neither were better."""
    number = wins + losses
    return sum(math.comb(number, k) for k in range(wins, number + 1)) / 2**number


def main(seeds: int | None = None) -> list[str]:
    """Return the lines of a Markdown table."""
    number = SEEDS if seeds is None else seeds
    lines = [
        f"Median regret (quartiles) after {UNITS:g} units, {number} seeds.",
        "",
        "| task | method | ours | published reference | verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    for task in TASKS:
        found = {method: [regret(task, method, seed) for seed in range(number)] for method in METHODS}
        best = found["BOHB + HyperBandForBOHB"]
        for method, values in found.items():
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
            verdict = "-"
            if values is not best:
                wins = sum(b < v for b, v in zip(best, values, strict=True))
                losses = sum(b > v for b, v in zip(best, values, strict=True))
                verdict = (
                    f"BOHB wins {wins} of {number} pairs, p={sign_test(wins, losses):.2g}; its median is "
                    f"{statistics.median(best) / middle:.2f} of this"
                )
            lines.append(f"| {task.name} | {method} | {middle:.3f} ({low:.3f}-{high:.3f}) | - | {verdict} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=None, help=f"how many seeds; {SEEDS} by default")
    print("\n".join(main(parser.parse_args().seeds)))
