"""What it takes to read a finished experiment of 10,000 trials with 100 reports each: who is best, and dataframes.

The floor is one query that looks at the same number in every report, without Python.

Run: python benchmarks/reading.py [directory]      the directory keeps the experiment for the next time
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep.record.checksums import seal_all
from sweep.record.db import APPLICATION_ID, SCHEMA, VERSION
from sweep.results.analysis import ExperimentAnalysis
from sweep.results.winners import SCOPES

TRIALS, REPORTS = 10_000, 100
_T0 = 1.75e9


def make(root: Path) -> None:
    """Write the record of an experiment in which every trial has ended."""
    root.mkdir(parents=True)
    with sqlite3.connect(root / "sweep.db") as db:
        db.executescript(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}; {SCHEMA}")
        meta = {"name": root.name, "prefix": "abcde", "metric": "loss", "mode": "min", "created": _T0}
        db.executemany("INSERT INTO meta VALUES (?, ?, 0)", [(key, json.dumps(value)) for key, value in meta.items()])
        db.execute("INSERT INTO host VALUES (1, 'machine', NULL, 0)")
        names = [f"abcde_{number:05d}" for number in range(TRIALS)]
        seq = 0
        for step in range(1, REPORTS + 1):
            rows = []
            for number in range(TRIALS):
                seq += 1
                metrics = {"loss": (number * 7919 % 10_007) / step, "eval": {"acc": step / REPORTS}}
                where = seq, number, 1, step, 0.5 * step, _T0 + step, json.dumps(metrics), None, None, None
                rows.append((*where, step, int(_T0 + step), 4242, 1, "0.5", repr(0.5 * step), None, 0, 1, 0))
            db.executemany(f"INSERT INTO report VALUES ({', '.join('?' * 20)})", rows)
        db.executemany(
            "INSERT INTO trial VALUES (?, ?, 'TERMINATED', '', ?, '{\"bundles\": [{\"cpu\": 1}]}', 1, 0, 0, NULL, NULL,"
            " NULL, NULL, NULL, ?, ?, 0, 0, ?, NULL, 0, '', 0.0, NULL, NULL, 0, ?, 0)",
            [
                (name, number, json.dumps({"lr": number / TRIALS}), REPORTS, REPORTS, seq - TRIALS + number + 1, seq)
                for number, name in enumerate(names)
            ],
        )
        seal_all(db)


def seconds(read: Callable[[], Any]) -> float:
    """Return the seconds of CPU that a call takes: all files are in memory."""
    began = time.process_time()
    read()
    return time.process_time() - began


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="sweep-reading-"))
    if not (directory / "made").exists():
        make(directory / "made")
    with sqlite3.connect(directory / "made" / "sweep.db") as db:
        query = "SELECT avg(json_extract(metrics, '$.loss')) FROM result"
        print(f"{'floor: one number of all reports':34}{seconds(lambda: db.execute(query).fetchone()):8.2f} s")
    analysis = ExperimentAnalysis(directory / "made")
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
