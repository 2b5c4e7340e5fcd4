"""What the figures and the page of an experiment take, and their sizes: 1,000 and 10,000 trials with 100 reports each.

Beside them stand Optuna's figures of a study in memory with the same 1,000 trials, where one corresponds.

Run: python benchmarks/figures.py [directory]      the directory keeps the experiments for the next time
"""

from __future__ import annotations

import json
import math
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sweep.record.checksums import seal_all
from sweep.record.db import APPLICATION_ID, SCHEMA, VERSION
from sweep.results.analysis import ExperimentAnalysis

Row = tuple[str, str, str, str]  # what, measured, promised, beside it

REPORTS = 100
RUNGS = (1, 4, 16, 64)
_T0 = 1.75e9
_META = {
    "prefix": "abcde",
    "metric": "loss",
    "mode": "min",
    "created": _T0,
    "variables": ["lr", "width", "dropout", "optimizer", "weight_decay"],
    "space": {"lr": "Float(1e-05, 1).LogUniform()", "width": "Categorical[16, 32, 64, 128].Uniform()"},
}
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


def trials(number: int) -> Iterator[tuple[dict[str, Any], list[float], str]]:
    """Give config, losses and reason of each trial: one in twenty was stopped at a rung, so most curves are whole."""
    draw = random.Random(0)
    for index in range(number):
        config = {
            "lr": 10 ** draw.uniform(-5, 0),
            "width": draw.choice([16, 32, 64, 128]),
            "dropout": draw.random(),
            "optimizer": draw.choice(["sgd", "adam"]),
            "weight_decay": 10 ** draw.uniform(-6, -2),
        }
        last = RUNGS[index // 20 % 4] if index % 20 == 0 else REPORTS
        base = (math.log10(config["lr"]) + 2) ** 2 + config["dropout"]
        losses = [base + 1 / step + draw.random() / 10 for step in range(1, last + 1)]
        yield config, losses, f"stopped early: loss=3 at {last}, cutoff 2" if last < REPORTS else ""


def make(root: Path, number: int) -> None:
    """Write the record of an experiment in which every trial has ended, eight at a time on eight GPUs."""
    root.mkdir(parents=True)
    events: list[tuple[Any, ...]] = []
    results: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    begin = 0.0

    def event(kind: str, trial_id: str, at: float, data: str | None = None, commands: Any = None) -> None:
        text = None if commands is None else json.dumps(commands)
        events.append((len(events) + len(results) + 1, at, _T0 + at, kind, trial_id, 1, data, text))

    for index, (config, losses, reason) in enumerate(trials(number)):
        trial_id, end = f"abcde_{index:05d}", begin + 0.5 * len(losses)
        place = [["local", [[f"gpu-{index % 8}", 1.0]]]]
        event("Suggested", trial_id, begin, json.dumps({"config": config}), [["Start", trial_id, 1, place]])
        event("Started", trial_id, begin + 0.1, "4242")
        for step, loss in enumerate(losses, start=1):
            metrics = {"loss": loss, "eval": {"acc": step / REPORTS}, "training_iteration": step}
            filled = {"time_this_iter_s": 0.5, "time_total_s": 0.5 * step}
            at = begin + 0.5 * step
            seq = len(events) + len(results) + 1
            said = json.dumps(metrics | filled)
            results.append((seq, index, 1, step, at, _T0 + at, said, *[None] * 11, 1, 0))
        last = len(events) + len(results)
        event("Exited", trial_id, end, '{"exit": {"kind": "FINISHED"}}', [["Notify", "trial_complete", trial_id]])
        event("Released", trial_id, end + 0.1)
        text = json.dumps(config)
        rows.append((trial_id, index, "TERMINATED", reason, text, '{"bundles": [{"gpu": 1}]}', len(losses), last))
        begin += 0.5 * len(losses) / 8
    with sqlite3.connect(root / "sweep.db") as db:
        db.executescript(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}; {SCHEMA}")
        meta = _META | {"name": root.name, "scheduler": "pbt"}  # so that every figure has something to show
        db.executemany("INSERT INTO meta VALUES (?, ?, 0)", [(key, json.dumps(value)) for key, value in meta.items()])
        db.executemany("INSERT INTO fact VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", events)
        db.executemany(f"INSERT INTO report VALUES ({', '.join('?' * 20)})", results)
        db.executemany(
            "INSERT INTO trial VALUES (?, ?, ?, ?, ?, ?, 1, 0, 0, NULL, NULL, NULL, NULL, NULL, ?, 0, 0, 0, ?, NULL, 0,"
            " '', 0.0, NULL, NULL, 0, 0, 0)",
            rows,
        )
        seal_all(db)


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
    for config, losses, _ in trials(number):
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
        if not (directory / f"of_{number}").exists():
            make(directory / f"of_{number}", number)
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
        found.append((f"plot.{name}, 10,000 x {REPORTS}", large, "< 3 s, < 3 MB", beside))
    for number in (1_000, 10_000):
        began = time.perf_counter()
        page = ExperimentAnalysis(directory / f"of_{number}", default_metric="loss", default_mode="min").to_html()
        taken = f"{time.perf_counter() - began:.2f} s, {len(page) / 1e6:.2f} MB"
        found.append((f"the page of {number:,} x {REPORTS}", taken, "< 3.5 MB" if number == 1_000 else "", ""))
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
