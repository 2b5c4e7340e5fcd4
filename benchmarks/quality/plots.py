"""Draw the pictures of docs/choose.md: `python benchmarks/quality/plots.py [--seeds N] [--folder docs/images]`.

- fidelity.svg: regret over cost on the two MF-Hartmann-6 tasks of `fidelity.py`, of its methods and of BOHB.
- digits.svg: validation error over epochs, on the recorded curves of `fidelity.py`.
- searchers.svg: regret over trials on Hartmann-6, one trial at a time.

Lines are medians over the seeds. Needs the package matplotlib, which is no dependency of the project. Takes about ten
minutes on one core; the figures are the same anywhere.
"""

from __future__ import annotations

import argparse
import importlib
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sweep as tune
from searchers.bohb_search import BOHBSearch
from sweep.engines.simulator import Point
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.hyperband import HyperBandForBOHB, HyperBandScheduler
from sweep.simulation.virtual import Simulation, simulate

sys.path.insert(0, str(Path(__file__).parent))  # so that it can also be imported from elsewhere
import fidelity
from tasks import HARTMANN_6

FOLDER = Path(__file__).parents[2] / "docs" / "images"
HARTMANN_SEEDS, DIGITS_SEEDS, SEARCHER_SEEDS, GP_SEEDS = 100, 20, 20, 5
TRIALS, GP_TRIALS = 100, 60
COSTS = list(range(100, fidelity.UNITS + 1, 50))
EPOCHS = list(range(5, 20 * fidelity.EPOCHS + 1, 5))

# Colours and dashes of methods: of middle lightness, so that they can be read on white and on black.
STYLES: dict[str, tuple[str, str]] = {
    "random": ("#8a8a8a", "-"),
    "ASHA, promotion": ("#2f8fd8", "-"),
    "ASHA, stopping": ("#2f8fd8", "--"),
    "HyperBand": ("#e07b1f", "-"),
    "PASHA": ("#9a6fd0", "-"),
    "BOHB": ("#23a06b", "-"),
    "TPE": ("#2f8fd8", "-"),
    "CMA-ES": ("#e07b1f", "-"),
    "GP": ("#23a06b", "-"),
}
INK = "#808080"

Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # by method: where, and the median there


def best_until(marks: Sequence[float], found: Sequence[tuple[float, float]]) -> list[float]:
    """Return the smallest value known at each mark; infinity before the first.

    Args:
        found: pairs of when a value was known, and the value, in order.
    """
    best, values, index = math.inf, [], 0
    for mark in marks:
        while index < len(found) and found[index][0] <= mark:
            best = min(best, found[index][1])
            index += 1
        values.append(best)
    return values


def medians(runs: Sequence[Sequence[float]]) -> list[float]:
    """Return the median at each mark, over runs."""
    return [statistics.median(values) for values in zip(*runs, strict=True)]


# --- what is measured ------------------------------------------------------------------------------------------------


def bohb_run(task: fidelity.Hartmann, seed: int) -> Simulation:
    """Run BOHB on the task and the rungs that the other methods have."""

    def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
        x = [config[f"x{number}"] for number in range(6)]
        asked = {"x": x, "number": int(x[0] * 2**32)}
        for index in range(count, len(fidelity.RUNGS)):
            z = fidelity.RUNGS[index]
            cost = z - (fidelity.RUNGS[index - 1] if index else 0)
            metrics = {"loss": fidelity.hartmann(task, asked, z, seed), "z": z, "step": 3**index}
            yield Point(float(cost), metrics, has_checkpoint=True)

    return simulate(
        curve,
        config={f"x{number}": tune.uniform(0, 1) for number in range(6)},
        metric="loss",
        mode="min",
        num_samples=-1,
        search_alg=BOHBSearch(time_attr="step"),
        scheduler=HyperBandForBOHB("step", max_t=27, reduction_factor=3),
        time_budget_s=fidelity.UNITS + 0.5,
        seed=seed,
    )


def hartmann_run(task: fidelity.Hartmann, method: str, seed: int) -> Simulation:
    """Run one method for the whole budget."""
    if method == "BOHB":
        return bohb_run(task, seed)
    if method == "random":
        return fidelity.run_hartmann(task, FIFOScheduler(), seed, fidelity.UNITS, fidelity.RUNGS[-1:])
    if method == "HyperBand":
        return fidelity.run_hartmann(task, HyperBandScheduler("step", max_t=27), seed, fidelity.UNITS)
    kind = method.removeprefix("ASHA, ")
    scheduler = ASHAScheduler("z", rungs=fidelity.RUNGS, reduction_factor=3, type=kind)
    return fidelity.run_hartmann(task, scheduler, seed, fidelity.UNITS)


def hartmann_lines(task: fidelity.Hartmann, seeds: int) -> Lines:
    """Return the median regret of what was evaluated in full, over cost."""
    lines = {}
    for method in ("random", "ASHA, promotion", "ASHA, stopping", "HyperBand", "BOHB"):
        runs = []
        for seed in range(seeds):
            arrivals = hartmann_run(task, method, seed).arrivals
            full = [
                (a.at, a.metrics["loss"] - fidelity.MINIMUM) for a in arrivals if a.metrics["z"] == fidelity.RUNGS[-1]
            ]
            runs.append(best_until(COSTS, full))
        lines[method] = (COSTS, medians(runs))
    return lines


def digits_lines(seeds: int) -> Lines:
    """Return the median of the smallest error so far, in percent, over epochs."""
    lines = {}
    for method, build in fidelity.DIGITS_METHODS.items():
        runs = []
        for seed in range(seeds):
            arrivals = fidelity.run_digits(build(), seed, 20 * fidelity.EPOCHS).arrivals
            runs.append(best_until(EPOCHS, [(a.at, 100 * a.metrics["error"]) for a in arrivals]))
        lines[method] = (EPOCHS, medians(runs))
    return lines


def searcher_lines(seeds: int | None) -> Lines:
    """Return the median regret on Hartmann-6 over trials."""

    def curve(config: Mapping[str, Any], count: int) -> Iterator[Point]:
        yield Point(1.0, {"regret": HARTMANN_6.regret(config)})

    lines = {}
    for method, sampler in (("random", "random"), ("TPE", "tpe"), ("CMA-ES", "cmaes"), ("GP", "gp")):
        trials = GP_TRIALS if sampler == "gp" else TRIALS
        runs = []
        for seed in range(min(seeds or GP_SEEDS, GP_SEEDS) if sampler == "gp" else seeds or SEARCHER_SEEDS):
            found = simulate(
                curve,
                config=HARTMANN_6.space,
                metric="regret",
                mode="min",
                num_samples=trials,
                search_alg=tune.OptunaSearch(sampler=sampler),
                seed=seed,
            )
            values = [(number + 1.0, a.metrics["regret"]) for number, a in enumerate(found.arrivals)]
            runs.append(best_until(range(1, trials + 1), values))
        lines[method] = (range(1, trials + 1), medians(runs))
    return lines


# --- how it is drawn -------------------------------------------------------------------------------------------------


def load_pyplot() -> Any:
    """Return matplotlib's pyplot, set to write small files of text that reads in light and in dark mode."""
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError:
        raise SystemExit("plots.py needs the package matplotlib: pip install matplotlib") from None
    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "sweep",
            "font.family": "sans-serif",
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            **dict.fromkeys(
                ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "axes.titlecolor"),
                INK,
            ),
        }
    )
    return importlib.import_module("matplotlib.pyplot")


def draw_lines(axes: Any, lines: Lines, *, x: str, y: str, title: str = "") -> None:
    """Draw one line per method, with the axes named."""
    for method, (marks, values) in lines.items():
        colour, dashes = STYLES[method]
        shown = [value if math.isfinite(value) else np.nan for value in values]
        axes.plot(marks, shown, dashes, color=colour, label=method, linewidth=1.6, drawstyle="steps-post")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10)


def draw_fidelity(plt: Any, panels: Mapping[str, Lines], path: Path) -> None:
    """Draw the two tasks beside each other, on one scale."""
    figure, all_axes = plt.subplots(1, len(panels), figsize=(8, 3.4), sharey=True, layout="constrained")
    for axes, (name, lines) in zip(all_axes, panels.items(), strict=True):
        title = f'"{name}": cheap evaluations {"rank well" if name == "good" else "mislead"}'
        draw_lines(axes, lines, x="cost (full evaluation: 100)", y="median regret", title=title)
        axes.set_ylim(0, 2.6)
        axes.label_outer()
    all_axes[0].legend(fontsize=9, loc="lower left")
    save(figure, path)


def draw_digits(plt: Any, lines: Lines, path: Path) -> None:
    """Draw the errors of the small networks."""
    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    draw_lines(axes, lines, x="epochs of all trials together", y="median error of the best, %")
    axes.set_ylim(1.2, 4)
    axes.legend(fontsize=9)
    save(figure, path)


def draw_searchers(plt: Any, lines: Lines, path: Path) -> None:
    """Draw the regrets of the searchers, in their logarithm."""
    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    draw_lines(axes, lines, x="trials", y="median regret")
    axes.set_yscale("log")
    axes.legend(fontsize=9, loc="lower left")
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Write a file without a background and without a date, so that equal pictures are equal files."""
    figure.savefig(path, transparent=True, metadata={"Date": None})


def main(seeds: int | None = None, folder: Path = FOLDER) -> list[str]:
    """Write the pictures; return a line for each, with its size.

    Args:
        seeds: of each line; 100, 20 and 20 unless given (5 at most for the Gaussian process).
    """
    plt = load_pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, Callable[[Path], None]] = {
        "fidelity": lambda path: draw_fidelity(
            plt, {task.name: hartmann_lines(task, seeds or HARTMANN_SEEDS) for task in fidelity.HARTMANN}, path
        ),
        "digits": lambda path: draw_digits(plt, digits_lines(seeds or DIGITS_SEEDS), path),
        "searchers": lambda path: draw_searchers(plt, searcher_lines(seeds), path),
    }
    written = []
    for name, draw in drawn.items():
        path = folder / f"{name}.svg"
        draw(path)
        written.append(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=None, help="of each line; 100, 20 and 20 if left out")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    print("\n".join(main(arguments.seeds, arguments.folder)))
