"""Do schedulers that look at cheap evaluations first find better configs for the same cost than random search does.

Two tasks, both in virtual time with one worker, where a new config is drawn when nothing else is to do:

- MF-Hartmann-6: Hartmann's function of six variables, to be had at fidelities z of 4, 11, 33 and 100. An evaluation at
  z costs z, and going on from a lower one costs the difference; below 100 it is off by a bias and by noise. What counts
  is the regret of the best config that was evaluated at z = 100, after 4,000 units. On "terrible" the low fidelities
  mislead; a scheduler must not be worse than random search there.
- Digits: the learning curves of `digits_curves.csv`, 300 small networks for 27 epochs each. What counts is the best
  validation error after 135 epochs, a quarter of what it costs to train 20 of them to the end.

    python benchmarks/quality/fidelity.py [--seeds N]
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest, wilcoxon

from searchers.base import EXHAUSTED, Config, Searcher, Signal
from sweep.engines.simulator import Point
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.hyperband import HyperBandScheduler
from sweep.schedulers.pasha import PASHAScheduler
from sweep.simulation.virtual import Simulation, simulate

HARTMANN_SEEDS, DIGITS_SEEDS = 100, 20
UNITS = 4000
RUNGS = (4, 11, 33, 100)
MINIMUM = -3.32237
EPOCHS, WANTED = 27, 0.0215
QUARTER = 20 * EPOCHS // 4

_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_P = np.array(
    [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ]
)


class Drawn(Searcher):
    """Answers config 0, 1, 2 ... of a function, one whenever a worker is free, until it returns None."""

    def __init__(self, draw: Callable[[int], Config | None]) -> None:
        super().__init__()
        self._draw = draw
        self._count = 0

    def suggest(self, trial_id: str) -> Config | Signal:
        config = self._draw(self._count)
        self._count += 1
        return EXHAUSTED if config is None else config


# --- MF-Hartmann-6 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hartmann:
    """How far evaluations below the full fidelity are off, and the medians of regret that were published for it."""

    name: str
    bias: float
    noise: float
    published: float


HARTMANN = (Hartmann("good", 2.5, 2.0, 1.090), Hartmann("terrible", 4.0, 5.0, 1.613))
PUBLISHED_RANDOM = 1.741


def drawn_point(seed: int, number: int) -> Config:
    """Return config `number`; the same for every method."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    return {"number": number, "x": tuple(rng.random(6).tolist())}


def hartmann(task: Hartmann, config: Mapping[str, Any], z: int, seed: int) -> float:
    """Return the function at fidelity `z`; its noise depends on seed, config and z, not on when it is asked."""
    missing = 1 - math.log(z) / math.log(100)
    inner = (_A * (np.array(config["x"]) - _P) ** 2).sum(axis=1)
    value = -float(((_ALPHA - task.bias * missing) * np.exp(-inner)).sum())
    if not missing:
        return value
    rng = np.random.default_rng(np.random.SeedSequence([seed, config["number"], RUNGS.index(z), 1]))
    return value + task.noise * abs(float(rng.standard_normal())) * missing


def run_hartmann(task: Hartmann, scheduler: Any, seed: int, units: int, rungs: Sequence[int] = RUNGS) -> Simulation:
    def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
        for index in range(count, len(rungs)):
            z = rungs[index]
            cost = z - (rungs[index - 1] if index else 0)
            metrics = {"loss": hartmann(task, config, z, seed), "z": z, "step": 3**index}
            yield Point(float(cost), metrics, has_checkpoint=True)

    return simulate(
        curve,
        metric="loss",
        mode="min",
        num_samples=-1,
        search_alg=Drawn(lambda number: drawn_point(seed, number)),
        scheduler=scheduler,
        time_budget_s=units + 0.5,  # what ends exactly with the budget counts
        seed=seed,
    )


def hartmann_regret(task: Hartmann, method: str, seed: int) -> float:
    """Return the regret of the best config that was evaluated in full."""
    if method == "random":
        run = run_hartmann(task, FIFOScheduler(), seed, UNITS, RUNGS[-1:])
    elif method == "PASHA, winner then trained to the end":
        run = run_hartmann(task, PASHAScheduler("z", rungs=RUNGS, reduction_factor=3), seed, UNITS - RUNGS[-1])
        furthest = max(a.metrics["z"] for a in run.arrivals)
        winner = min((a.metrics["loss"], a.trial_id) for a in run.arrivals if a.metrics["z"] == furthest)[1]
        config = next(trial.config for trial in run.trials if trial.id == winner)
        return hartmann(task, config, RUNGS[-1], seed) - MINIMUM
    elif method == "HyperBand":  # its milestones are 1, 3, 9, 27
        run = run_hartmann(task, HyperBandScheduler("step", max_t=27, reduction_factor=3), seed, UNITS)
    else:
        kind = method.removeprefix("ASHA, ")
        run = run_hartmann(task, ASHAScheduler("z", rungs=RUNGS, reduction_factor=3, type=kind), seed, UNITS)
    full = [a.metrics["loss"] for a in run.arrivals if a.metrics["z"] == RUNGS[-1]]
    return min(full, default=math.inf) - MINIMUM


HARTMANN_METHODS = (
    "random",
    "ASHA, promotion",
    "ASHA, stopping",
    "HyperBand",
    "PASHA, winner then trained to the end",
)


def hartmann_rows(task: Hartmann, seeds: int) -> list[str]:
    regrets = {method: [hartmann_regret(task, method, seed) for seed in range(seeds)] for method in HARTMANN_METHODS}
    rows = []
    for method, found in regrets.items():
        published = {"random": PUBLISHED_RANDOM, "ASHA, promotion": task.published}.get(method)
        low, middle, high = np.percentile(found, [25, 50, 75])
        verdict = ""
        if method != "random":
            verdict = compare(found, regrets["random"])
            if method == "ASHA, promotion" and task.name == "good":
                verdict = f"{'reached' if middle <= 1.15 else 'MISSED'}: at most 1.15; {verdict}"
        shown = f"{middle:.3f} ({low:.2f}-{high:.2f})"
        rows.append(row(f"MF-Hartmann-6, {task.name}: regret", method, shown, published, verdict))
    return rows


def compare(found: Sequence[float], random: Sequence[float]) -> str:
    """Say how one method does against random search on the same seeds: pairs won, and whether that may be chance."""
    pairs = [(one, other) for one, other in zip(found, random, strict=True) if one != other]
    if not pairs:
        return "the same as random"
    won = sum(one < other for one, other in pairs)
    differences = [min(one, 10.0) - other for one, other in pairs]  # a regret of infinity is as bad as can be
    p = float(wilcoxon(differences).pvalue) if len(pairs) >= 6 else binomtest(won, max(len(pairs), 1)).pvalue
    word = "better" if statistics.median(differences) < 0 else "worse"
    word = f"{word} than random" if p < 0.05 else "not told apart from random"
    return f"{word} ({won} of {len(pairs)} pairs won, p = {p:.2g})"


# --- digits ----------------------------------------------------------------------------------------------------------


@cache
def digits_errors() -> tuple[tuple[float, ...], ...]:
    """Return per config its validation error after each epoch."""
    with Path(__file__).with_name("digits_curves.csv").open(newline="") as file:
        return tuple(
            tuple(int(line[f"wrong_{epoch}"]) / 719 for epoch in range(1, EPOCHS + 1)) for line in csv.DictReader(file)
        )


def run_digits(scheduler: Any, seed: int, epochs: int) -> Simulation:
    """Return a run of so many epochs on configs of the table in an order that the seed decides."""
    errors = digits_errors()
    order = np.random.default_rng(np.random.SeedSequence([seed, 6])).permutation(len(errors)).tolist()

    def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
        for error in errors[config["row"]][count:]:
            yield Point(1.0, {"error": error}, has_checkpoint=True)

    return simulate(
        curve,
        metric="error",
        mode="min",
        num_samples=-1,
        search_alg=Drawn(lambda number: {"row": order[number]} if number < len(order) else None),
        scheduler=scheduler,
        time_budget_s=epochs + 0.5,
        seed=seed,
    )


DIGITS_METHODS: dict[str, Callable[[], Any]] = {
    "random": FIFOScheduler,
    "ASHA, promotion": lambda: ASHAScheduler(max_t=EPOCHS, reduction_factor=3, type="promotion"),
    "ASHA, stopping": lambda: ASHAScheduler(max_t=EPOCHS, reduction_factor=3),
    "HyperBand": lambda: HyperBandScheduler(max_t=EPOCHS, reduction_factor=3),
    "PASHA": lambda: PASHAScheduler(max_t=EPOCHS, reduction_factor=3),
}


def digits_rows(seeds: int) -> list[str]:
    rows = []
    full = [
        min(a.metrics["error"] for a in run_digits(FIFOScheduler(), seed, 20 * EPOCHS).arrivals)
        for seed in range(seeds)
    ]
    rows.append(row("digits: error after 540 epochs", "random", f"{statistics.median(full):.4f}", 0.0215, ""))
    for method, build in DIGITS_METHODS.items():
        best, needed = [], []
        for seed in range(seeds):
            run = run_digits(build(), seed, 20 * EPOCHS)
            best.append(min(a.metrics["error"] for a in run.arrivals if a.at <= QUARTER))
            needed.append(next((a.at for a in run.arrivals if a.metrics["error"] <= WANTED), math.inf))
        middle, epochs = statistics.median(best), statistics.median(needed)
        word = "no worse" if middle <= statistics.median(full) else "worse"
        verdict = f"{WANTED} after {epochs:.0f} epochs; {word} than random after {20 * EPOCHS}"
        if method == "ASHA, promotion":
            verdict = f"{'reached' if middle <= WANTED else 'MISSED'}: at most {WANTED}; {verdict}"
        rows.append(row(f"digits: error after {QUARTER} epochs", method, f"{middle:.4f}", None, verdict))
    return rows


def row(task: str, method: str, ours: str, published: float | None, verdict: str) -> str:
    return f"| {task} | {method} | {ours} | {'-' if published is None else published} | {verdict} |"


def main(seeds: int | None = None) -> list[str]:
    """Return the table, as lines of Markdown."""
    lines = ["| task | method | ours: median (quartiles) | published | verdict |", "| --- | --- | --- | --- | --- |"]
    for task in HARTMANN:
        lines += hartmann_rows(task, seeds or HARTMANN_SEEDS)
    return lines + digits_rows(seeds or DIGITS_SEEDS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=None, help="instead of 100 and 20")
    print("\n".join(main(parser.parse_args().seeds)))
