"""How often `sweep confirm` picks the truly best of five close configs, and with how many runs.

A task is five configs with true values, of which the first is best, and runs with noise. A run is the config's value,
plus a part that all configs have in common in a repeat, plus noise of its own; the two have the variance 1 together.
The gap from the best to the next is 1 (`steps`: 1, 2, 3, 4; `level`: 1 each; `random`: sums of uniform(0.5, 1.5)).

The race has at most so many repeats of each config, by default those of `sweep confirm`. Its runs are compared with
plain repeats, of all configs and with the same seeds for all, without a race: with as many repeats as the race may
have, and with the fewest for which the best mean is right as often as the race is, over the same tasks.

Run: python benchmarks/confirm.py [--tasks 4000] [--repeats 16]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from sweep.confirmation import REPEATS
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
TOO_CLOSE: dict[str, dict[str, Any]] = {  # what no number of repeats that anybody would pay for tells apart
    "steps of a half": {"scale": 0.5},
    "steps of a quarter": {"scale": 0.25},
    "level, a half": {"gaps": "level", "scale": 0.5},
    "level, a quarter": {"gaps": "level", "scale": 0.25},
    "all equal": {"scale": 0.0},
}


def tasks(
    number: int,
    seed: int,
    gaps: str = "steps",
    scale: float = 1.0,
    common: float = 0.0,
    unequal: float = 0.0,
    is_heavy: bool = False,
) -> Iterator[tuple[Any, Any]]:
    """Yield the runs of each task, configs x repeats, and the true values; less is better, the first config is best."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        steps = rng.uniform(0.5, 1.5, CONFIGS - 1) if gaps == "random" else np.ones(CONFIGS - 1)
        values = scale * np.concatenate([[0.0], steps if gaps == "level" else steps.cumsum()])
        noise = rng.standard_normal((CONFIGS, MOST))
        if is_heavy:
            noise = rng.standard_t(3, (CONFIGS, MOST)) / 3**0.5
        noise *= np.exp(rng.normal(0, unequal, (CONFIGS, 1)))
        shared = rng.standard_normal(MOST)
        yield values[:, None] + common**0.5 * shared + (1 - common) ** 0.5 * noise, values


def raced(runs: Any, repeats: int) -> tuple[int, int]:
    """Return which config the race picks, and how many runs it has made."""
    order = np.random.default_rng(int(abs(runs[0, 0]) * 1e9)).permutation(len(runs))  # so that no tie helps
    now = standing([dict(enumerate(runs[one, :repeats])) for one in order], repeats)
    best = min(now.alive, key=lambda one: runs[order[one], : now.rounds].mean())
    return order[best], sum(now.dropped.get(one, now.rounds) for one in range(len(runs)))


def compared(number: int, repeats: int, seed: int, **family: Any) -> tuple[float, float, float, int, float]:
    """Return how often the race is right, how much worse than the best its choice is, its mean number of runs, the
    plain repeats that are right as often, and how often those are."""
    right, cost, worse, plain = 0, 0, 0.0, np.zeros(MOST)
    for runs, values in tasks(number, seed, **family):
        choice, made = raced(runs, repeats)
        right, cost, worse = right + (choice == 0), cost + made, worse + values[choice]
        plain += runs.cumsum(1).argmin(0) == 0
    enough = np.flatnonzero(plain >= right)
    fewest = int(enough[0]) + 1 if len(enough) else MOST
    return right / number, worse / number, cost / number, fewest, plain[fewest - 1] / number


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    most = given.repeats * CONFIGS
    print(f"{given.tasks} tasks, at most {given.repeats} repeats\n")
    print(f"| gaps and noise | the race is right | worse by | its runs | of {most} | plain runs, right | of those |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, family in (FAMILIES | TOO_CLOSE).items():
        right, worse, cost, fewest, often = compared(given.tasks, given.repeats, given.seed, **family)
        plain = fewest * CONFIGS
        shares = f"{cost:.1f} | {cost / most:.0%} | {plain}, {often:.1%} | {cost / plain:.0%}"
        print(f"| {name} | {right:.1%} | {worse:.2f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
