"""What tests read from the record of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweep.core.messages import Exit, Exited, Released, Started
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader


def most_at_once(experiment: str | Path) -> int:
    """Return how many trials held resources at the same time at most: from `Start` to `Released`."""
    held = most = 0
    for told in read_facts(Path(experiment) / "sweep.db"):
        held -= isinstance(told.event, Released)
        held += sum(row[0] == "Start" for row in told.caused or ())
        most = max(most, held)
    return most


def overlapping_runs(experiment: str | Path) -> int:
    """Return how many trials really ran at the same time at most: from `Started` to `Exited`."""
    running = most = 0
    for told in read_facts(Path(experiment) / "sweep.db"):
        running += isinstance(told.event, Started)
        running -= isinstance(told.event, Exited)
        most = max(most, running)
    return most


def only(analysis: Any) -> Any:
    """Return the one trial of a sweep."""
    (trial,) = analysis.trials
    return trial


def reports(analysis: Any) -> list[dict[str, Any]]:
    """Return the metrics of all reports in their order."""
    return [dict(row.metrics) for row in ExperimentReader(analysis.experiment_path).results()]


def exits(analysis: Any) -> list[Exit]:
    """Return how the attempts ended, in their order."""
    told = read_facts(Path(analysis.experiment_path) / "sweep.db")
    return [row.event.exit for row in told if isinstance(row.event, Exited)]
