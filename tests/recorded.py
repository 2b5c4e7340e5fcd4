"""What tests read from the record of a sweep."""

from __future__ import annotations

from pathlib import Path

from sweep.core.messages import Exited, Released, Started
from sweep.record.facts import read_facts


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
