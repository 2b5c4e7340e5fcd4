"""What the figures and the page of an experiment take, and their sizes: 1,000 and 10,000 trials with 100 reports each.

Beside them stand Optuna's figures of a study in memory with the same 1,000 trials, where one corresponds.

Run: python benchmarks/figures.py [directory]      the directory keeps the experiments for the next time
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made

from sweep.results.analysis import ExperimentAnalysis

Row = tuple[str, str, str, str]  # what, measured, promised, beside it

# What is drawn, and Optuna's figure that corresponds.
FIGURES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "history": (lambda plot: plot.history(), "plot_optimization_history"),
    "curves": (lambda plot: plot.curves(), "plot_intermediate_values"),
    "parallel": (lambda plot: plot.parallel(), "plot_parallel_coordinate"),
    "importance": (lambda plot: plot.importance(), "plot_param_importances"),
    "slice": (lambda plot: plot.slice(), "plot_slice"),
    "contour": (lambda plot: plot.contour("lr", "dropout"), "plot_contour"),
    "pareto": (lambda plot: plot.pareto(["loss", "eval/acc"], ["min", "max"]), ""),
    "rungs": (lambda plot: plot.rungs(), ""),
    "population": (lambda plot: plot.population(), ""),
    "timeline": (lambda plot: plot.timeline(), "plot_timeline"),
    "timeline by device": (lambda plot: plot.timeline(by="device"), ""),
}


def study_of(number: int) -> Any:
    """Return the same trials as a study of Optuna in memory."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    distributions = {
        "lr": optuna.distributions.FloatDistribution(1e-5, 1, log=True),
        "width": optuna.distributions.CategoricalDistribution([16, 32, 64, 128]),
        "dropout": optuna.distributions.FloatDistribution(0, 1),
        "optimizer": optuna.distributions.CategoricalDistribution(["sgd", "adam"]),
        "weight_decay": optuna.distributions.FloatDistribution(1e-6, 1e-2, log=True),
    }
    for config, losses in made.trials(number):
        study.add_trial(
            optuna.trial.create_trial(
                params=config,
                distributions=distributions,
                value=losses[-1],
                intermediate_values=dict(enumerate(losses, start=1)),
            )
        )
    return study


def drawn(draw: Callable[[], Any]) -> str:
    """Return what it takes to draw a figure and to turn it into JSON, and how large that is."""
    began = time.perf_counter()
    text = draw().to_json()
    return f"{time.perf_counter() - began:.2f} s, {len(text) / 1e6:.2f} MB"


def rows(directory: Path) -> list[Row]:
    """Measure every figure, at 10,000 trials as a fresh reader does."""
    for number in (1_000, 10_000):
        made.experiment(directory / f"of_{number}", number)
    from optuna import visualization

    ExperimentAnalysis(directory / "of_1000").plot.importance()  # what is loaded at first use belongs to none of them
    study = study_of(1_000)
    found = []
    for name, (draw, theirs) in FIGURES.items():
        small, large = (
            drawn(lambda: draw(ExperimentAnalysis(directory / f"of_{number}").plot))  # noqa: B023
            for number in (1_000, 10_000)
        )
        beside = f"1,000 trials: {small}"
        if theirs:
            more = {"params": ["lr", "dropout"]} if theirs == "plot_contour" else {}
            beside += f"; Optuna: {drawn(lambda: getattr(visualization, theirs)(study, **more))}"  # noqa: B023
        found.append((f"plot.{name}, 10,000 x {made.REPORTS}", large, "< 3 s, < 3 MB", beside))
    for number in (1_000, 10_000):
        began = time.perf_counter()
        page = ExperimentAnalysis(directory / f"of_{number}", default_metric="loss", default_mode="min").to_html()
        taken = f"{time.perf_counter() - began:.2f} s, {len(page) / 1e6:.2f} MB"
        found.append((f"the page of {number:,} x {made.REPORTS}", taken, "< 3.5 MB" if number == 1_000 else "", ""))
    plot = ExperimentAnalysis(directory / "of_10000").plot
    plot._reader.trials()
    began = time.perf_counter()
    plot.suited()
    found.append(("which figures suit, 10,000 trials", f"{time.perf_counter() - began:.2f} s", "< 0.3 s", ""))
    return found


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="sweep-figures-"))
    for what, measured, promised, beside in rows(directory):
        print(f"{what:42s} {measured:>18s}   {promised:16s} {beside}", flush=True)


if __name__ == "__main__":
    main()
