"""How often `sweep confirm` picks the truly best of five close configs, and with how many runs.

A task is five configs with true values, of which the first is best, and runs with noise. A run is the config's value,
plus a part that all configs have in common in a repeat, plus noise of its own; the two have the variance 1 together.
The gap from the best to the next is 1 (`steps`: 1, 2, 3, 4; `level`: 1 each; `random`: sums of uniform(0.5, 1.5)).

The race has at most so many repeats of each config. Plain repeats are the fewest, of all configs and with the same
seeds for all, with which the best mean is right as often as the race is, over the same tasks.

Run: python benchmarks/confirm.py [--tasks 4000] [--repeats 20]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from sweep.confirmation.race import standing

CONFIGS, MOST = 5, 60  # MOST: plain repeats that are tried
FAMILIES: dict[str, dict[str, Any]] = {
    "steps": {},
    "steps, half of the noise in common": {"common": 0.5},
    "random": {"gaps": "random"},
    "random, half of the noise in common": {"gaps": "random", "common": 0.5},
    "random, noise unequal (lognormal, 0.5)": {"gaps": "random", "unequal": 0.5},
    "level": {"gaps": "level"},
    "level, half of the noise in common": {"gaps": "level", "common": 0.5},
    "level, heavy tails (t, 3 df)": {"gaps": "level", "is_heavy": True},
}


def tasks(
    number: int, seed: int, gaps: str = "steps", common: float = 0.0, unequal: float = 0.0, is_heavy: bool = False
) -> Iterator[Any]:
    """Yield the runs of each task, configs x repeats; less is better and the first config is best."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        steps = rng.uniform(0.5, 1.5, CONFIGS - 1) if gaps == "random" else np.ones(CONFIGS - 1)
        values = np.concatenate([[0.0], steps if gaps == "level" else steps.cumsum()])
        noise = rng.standard_normal((CONFIGS, MOST))
        if is_heavy:
            noise = rng.standard_t(3, (CONFIGS, MOST)) / 3**0.5
        noise *= np.exp(rng.normal(0, unequal, (CONFIGS, 1)))
        shared = rng.standard_normal(MOST)
        yield values[:, None] + common**0.5 * shared + (1 - common) ** 0.5 * noise


def raced(runs: Any, repeats: int) -> tuple[bool, int]:
    """Return whether the race picks the first config, and how many runs it has made."""
    order = np.random.default_rng(int(abs(runs[0, 0]) * 1e9)).permutation(len(runs))  # so that no tie helps
    now = standing([dict(enumerate(runs[one, :repeats])) for one in order], repeats)
    best = min(now.alive, key=lambda one: runs[order[one], : now.rounds].mean())
    return order[best] == 0, sum(now.dropped.get(one, now.rounds) for one in range(len(runs)))


def compared(number: int, repeats: int, seed: int, **family: Any) -> tuple[float, float, int, float]:
    """Return how often the race is right, its mean number of runs, the plain repeats that are right as often, and how
    often those are."""
    right, cost, plain = 0, 0, np.zeros(MOST)
    for runs in tasks(number, seed, **family):
        is_right, made = raced(runs, repeats)
        right, cost = right + is_right, cost + made
        plain += runs.cumsum(1).argmin(0) == 0
    enough = np.flatnonzero(plain >= right)
    fewest = int(enough[0]) + 1 if len(enough) else MOST
    return right / number, cost / number, fewest, plain[fewest - 1] / number


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(
        f"| {given.tasks} tasks, at most {given.repeats} repeats | race is right | runs | plain runs, right | share |"
    )
    print("| --- | --- | --- | --- | --- |")
    for name, family in FAMILIES.items():
        right, cost, fewest, often = compared(given.tasks, given.repeats, given.seed, **family)
        plain = fewest * CONFIGS
        print(f"| {name} | {right:.1%} | {cost:.1f} | {plain}, {often:.1%} | {cost / plain:.0%} |", flush=True)


if __name__ == "__main__":
    main()
