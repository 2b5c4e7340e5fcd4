"""What tests read from the record of a sweep."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from sweep.core.messages import Exit, Exited, Released, Started
from sweep.record.facts import read_facts
from sweep.record.reader import ExperimentReader


def most_at_once(experiment: str | Path) -> int:
    """Return how many trials held resources at the same time at most: from `Start` to `Released`."""
    told = list(read_facts(Path(experiment) / "sweep.db"))
    starts = (sum(row[0] == "Start" for row in fact.caused or ()) for fact in told)
    ends = (isinstance(fact.event, Released) for fact in told)
    return max(accumulate(start - end for start, end in zip(starts, ends, strict=True)), default=0)


def overlapping_runs(experiment: str | Path) -> int:
    """Return how many trials really ran at the same time at most: from `Started` to `Exited`."""
    told = [fact.event for fact in read_facts(Path(experiment) / "sweep.db")]
    return max(accumulate(isinstance(event, Started) - isinstance(event, Exited) for event in told), default=0)


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
