"""How good the searchers are: ours one and four at a time in virtual time, beside Optuna's own `optimize`.

    python benchmarks/quality/searching.py [--seeds N] [--samplers NAME ...] [--cost]

Regret is the best value found minus the known minimum; the table shows medians over the seeds. "p" is of Wilcoxon's
signed rank test, paired by seed, that ours one at a time is worse than Optuna; one row in twenty is called worse by
chance. "4 to 1" is the median four at a time to that of one at a time, with the interval in which nine of ten such
ratios lie when the seeds are drawn again. The medians of TPE differ so much between seeds that 20 of them would not
tell a ratio of 1 from one of 2; it has 300. The published medians were measured with Optuna 5.0.0, seeds 0 to 19.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from scipy.stats import wilcoxon

import sweep as tune
from sweep.engines.simulator import Point
from sweep.simulation.virtual import simulate

sys.path.insert(0, str(Path(__file__).parent))  # so that it can also be imported from elsewhere
from tasks import ACKLEY_10, BRANIN, HARTMANN_6, Task, bbob, has_bbob

SAMPLERS: Mapping[str, Callable[[int], Any]] = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "qmc": lambda seed: optuna.samplers.QMCSampler(scramble=True, seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
}
PUBLISHED = {
    ("Branin", "random"): 0.380,
    ("Branin", "qmc"): 0.366,
    ("Branin", "tpe"): 0.0188,
    ("Branin", "cmaes"): 0.0135,
    ("Branin", "gp"): 8e-6,
    ("Hartmann-6", "random"): 1.199,
    ("Hartmann-6", "qmc"): 1.293,
    ("Hartmann-6", "tpe"): 0.094,
    ("Hartmann-6", "cmaes"): 0.275,
    ("Hartmann-6", "gp"): 0.0046,
    ("Ackley-10", "random"): 19.67,
    ("Ackley-10", "qmc"): 19.57,
    ("Ackley-10", "tpe"): 14.09,
    ("Ackley-10", "cmaes"): 10.75,
    ("BBOB-24", "random"): 1.000,
    ("BBOB-24", "tpe"): 0.304,
    ("BBOB-24", "cmaes"): 0.253,
}
SEEDS = {"tpe": 300, "gp": 5}
OTHER_SEEDS, BBOB_SEEDS = 20, 3
MAX_LOSS = 1.3  # of the median regret, four at a time
SIGNIFICANT = 0.05
NUM_REDRAWN = 2000
HEAD = [
    "| task | method | evaluations | seeds | ours, 1 at a time | ours, 4 | Optuna | published | p | 4 to 1 | verdict |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
]


def ours(task: Task, sampler: str, seed: int, cpus: int, num_evaluations: int) -> float:
    """Return the regret of one sweep in which each evaluation takes a second."""

    def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
        yield Point(1.0, {"regret": task.regret(config)})

    simulation = simulate(
        curve,
        config=task.space,
        metric="regret",
        mode="min",
        num_samples=num_evaluations,
        search_alg=tune.OptunaSearch(sampler=sampler),
        cpus=cpus,
        seed=seed,
    )
    best = simulation.best_result
    assert best is not None
    assert len(simulation.trials) == num_evaluations
    return float(best["regret"])


def optunas(task: Task, sampler: str, seed: int, num_evaluations: int) -> float:
    """Return the regret of Optuna's own loop with its own defaults."""

    def objective(trial: optuna.Trial) -> float:
        bounds = zip(task.names, task.low, task.high, strict=True)
        return task.regret({name: trial.suggest_float(name, low, high) for name, low, high in bounds})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(sampler=SAMPLERS[sampler](seed))
        study.optimize(objective, n_trials=num_evaluations)
    return study.best_value


def rows(task: Task, sampler: str, seeds: int, num_evaluations: int) -> str:
    """Return the row of one method on one task; the seeds are shared out among the cores."""
    with ProcessPoolExecutor(initializer=_quiet) as pool:
        one = list(pool.map(partial(ours, task, sampler, cpus=1, num_evaluations=num_evaluations), range(seeds)))
        four = list(pool.map(partial(ours, task, sampler, cpus=4, num_evaluations=num_evaluations), range(seeds)))
        theirs = list(pool.map(partial(optunas, task, sampler, num_evaluations=num_evaluations), range(seeds)))
    return _row(task.name, sampler, num_evaluations, one, four, theirs)


def bbob_rows(seeds: int) -> list[str]:
    """Return the rows of BBOB-24: regrets as shares of random search's, means over the functions for each seed."""
    tasks = [bbob(number) for number in range(1, 25)]
    budget = tasks[0].num_evaluations
    scale = [statistics.mean(optunas(task, "random", seed, budget) for seed in range(seeds)) for task in tasks]

    def shares(run: Callable[[Task, int], float]) -> list[float]:
        return [
            statistics.mean(run(task, seed) / most for task, most in zip(tasks, scale, strict=True))
            for seed in range(seeds)
        ]

    found = []
    for sampler in ("random", "tpe", "cmaes"):
        one = shares(lambda task, seed, sampler=sampler: ours(task, sampler, seed, 1, budget))
        four = shares(lambda task, seed, sampler=sampler: ours(task, sampler, seed, 4, budget))
        theirs = shares(lambda task, seed, sampler=sampler: optunas(task, sampler, seed, budget))
        found.append(_row("BBOB-24", sampler, budget, one, four, theirs))
    return found


def cost(sizes: tuple[int, ...] = (1000, 5000, 10000, 20000)) -> list[str]:
    """Return the milliseconds of CPU time that one suggestion of TPE takes in a study of so many finished trials.

    No two runs give quite the same. The first suggestion of each study is left out: it looks at all that was added.
    """
    _quiet()
    lines = ["| finished trials | ours, ms | Optuna, ms | ratio |", "| --- | --- | --- | --- |"]
    low, high = (0.0,) * 5, (1.0,) * 5
    task = Task("", lambda x: sum(x), low, high, 0.0)
    for size in sizes:
        search = tune.OptunaSearch(task.space, "loss", "min", seed=0)
        draws = tune.OptunaSearch(task.space, "loss", "min", seed=0, sampler="random")
        for _ in range(size):
            trial_id, config = draws.ask()
            search.observe(config, {"loss": task.regret(config)})
            draws.tell(trial_id, {"loss": 0.0})
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
        study.add_trials(search.study.get_trials(deepcopy=False))
        mine, theirs = [], []
        for _ in range(32):
            begin = time.process_time()
            trial_id, config = search.ask()
            mine.append(time.process_time() - begin)
            search.tell(trial_id, {"loss": task.regret(config)})
            begin = time.process_time()
            trial = study.ask()
            values = {name: trial.suggest_float(name, 0.0, 1.0) for name in task.names}
            theirs.append(time.process_time() - begin)
            study.tell(trial, task.regret(values))
        one, other = 1e3 * statistics.median(mine[1:]), 1e3 * statistics.median(theirs[1:])
        lines.append(f"| {size} | {one:.1f} | {other:.1f} | {one / other:.2f} |")
    return lines


def main(seeds: int | None = None, samplers: Sequence[str] = tuple(SAMPLERS)) -> list[str]:
    """Return the table; at most `seeds` of each task, and those methods only."""
    level = optuna.logging.get_verbosity()
    _quiet()
    try:
        lines = list(HEAD)
        for task in (BRANIN, HARTMANN_6, ACKLEY_10):
            for sampler in samplers:
                if sampler == "gp" and task is ACKLEY_10:
                    continue
                num_evaluations = 60 if sampler == "gp" else task.num_evaluations
                most = SEEDS.get(sampler, OTHER_SEEDS)
                lines.append(rows(task, sampler, min(seeds or most, most), num_evaluations))
        if has_bbob():
            lines += bbob_rows(min(seeds or BBOB_SEEDS, BBOB_SEEDS))
        else:
            lines.append("| BBOB-24 | | | | | | | | | | skipped: the package ioh is not installed |")
        return lines
    finally:
        optuna.logging.set_verbosity(level)


def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def _row(task: str, sampler: str, budget: int, one: list[float], four: list[float], theirs: list[float]) -> str:
    medians = [statistics.median(values) for values in (one, four, theirs)]
    p, low, high = _p_worse(one, theirs), *_interval(one, four)
    loss = medians[1] / medians[0]
    verdict = "not worse than Optuna" if p >= SIGNIFICANT else "WORSE than Optuna"
    if loss > MAX_LOSS:
        verdict += f"; 4 at a time above {MAX_LOSS:.2f}x" + (", within chance" if low <= MAX_LOSS else "")
    published = PUBLISHED.get((task, sampler))
    numbers = " | ".join(f"{value:.3g}" for value in medians)
    shown = "" if published is None else f"{published:.3g}"
    tests = f"{p:.2f} | {loss:.2f} ({low:.2f} to {high:.2f})"
    return f"| {task} | {sampler} | {budget} | {len(one)} | {numbers} | {shown} | {tests} | {verdict} |"


def _interval(one: list[float], four: list[float]) -> tuple[float, float]:
    """Return the 5th and the 95th of 100 ratios of the medians when the seeds are drawn again, in pairs."""
    drawn = np.random.default_rng(0).integers(0, len(one), (NUM_REDRAWN, len(one)))
    ratios = np.median(np.array(four)[drawn], axis=1) / np.median(np.array(one)[drawn], axis=1)
    low, high = np.quantile(ratios, (0.05, 0.95))
    return float(low), float(high)


def _p_worse(one: list[float], other: list[float]) -> float:
    """Return how likely values as much above `other` are if both are equally good."""
    differences = [mine - theirs for mine, theirs in zip(one, other, strict=True)]
    return float(wilcoxon(differences, alternative="greater").pvalue) if any(differences) else 1.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=None, help="at most so many, for a quick look")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS), help="those only")
    parser.add_argument("--cost", action="store_true", help="measure what a suggestion costs instead")
    arguments = parser.parse_args()
    print("\n".join(cost() if arguments.cost else main(arguments.seeds, arguments.samplers)))
