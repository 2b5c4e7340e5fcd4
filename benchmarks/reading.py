"""What it takes to read a finished experiment of 10,000 trials with 100 reports each: who is best, and dataframes.

The floor is one query that looks at the same number in every report, without Python.

Run: python benchmarks/reading.py [directory]      the directory keeps the experiment for the next time
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made

from sweep.results.analysis import ExperimentAnalysis
from sweep.results.winners import SCOPES


def seconds(read: Callable[[], Any]) -> float:
    """Return the seconds of CPU that a call takes: all files are in memory."""
    began = time.process_time()
    read()
    return time.process_time() - began


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="sweep-reading-"))
    root = made.experiment(directory / "of_10000", 10_000)
    with sqlite3.connect(root / "sweep.db") as db:
        query = "SELECT avg(json_extract(metrics, '$.loss')) FROM result"
        print(f"{'floor: one number of all reports':34}{seconds(lambda: db.execute(query).fetchone()):8.2f} s")
    analysis = ExperimentAnalysis(root)
    print(f"{'open, all trials':34}{seconds(lambda: analysis.trials):8.2f} s")
    for scope in SCOPES:
        print(f"{f'best trial, scope={scope!r}':34}{seconds(lambda: analysis.get_best_trial(scope=scope)):8.2f} s")  # noqa: B023
    print(f"{'dataframe()':34}{seconds(analysis.dataframe):8.2f} s")
    best = seconds(lambda: analysis.dataframe(metric="loss", mode="min"))
    print(f"{'dataframe(metric, mode)':34}{best:8.2f} s")
    first = analysis.trials[0]
    print(f"{'metric_analysis of one trial':34}{seconds(lambda: first.metric_analysis):8.3f} s")


if __name__ == "__main__":
    main()
