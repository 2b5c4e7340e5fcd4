"""The fields of a report that are not recorded but follow from what is: derived when it is read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sweep.core.trial import CheckpointRef

MOST_SECONDS = 1e11  # since 1970 that have a date; what a trial reports may be anything
NODE_IP = "127.0.0.1"  # of trials on the machine that drives; those on others report theirs


def date_str(timestamp: float | None = None) -> str:
    """Return a time in UTC epoch seconds (None: now) as `2026-11-21_08-27-19`, in local time."""
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(timestamp))


def date_of(stamp: Any) -> str | None:
    """Return the date of whatever a trial reported as its `timestamp`; None when it has none."""
    return date_str(stamp) if isinstance(stamp, (int, float)) and abs(stamp) < MOST_SECONDS else None


def complete(
    metrics: Mapping[str, Any], *, tag: str, wall: float | None, checkpoint: CheckpointRef | None
) -> dict[str, Any]:
    """Return a report with the fields that are derived; what it says itself is kept.

    Args:
        tag: the trial's experiment tag.
        wall: when it was committed, in UTC epoch seconds.
        checkpoint: that came with it.
    """
    values = dict(metrics)
    if wall is not None:
        values.setdefault("timestamp", int(wall))
    derived = {
        "date": date_of(values.get("timestamp")),
        "pid": None,
        "hostname": None,
        "node_ip": NODE_IP,
        "done": False,
    }
    values |= {name: value for name, value in derived.items() if name not in values}
    values["checkpoint_dir_name"] = None if checkpoint is None else checkpoint.name
    if checkpoint is not None:
        values["should_checkpoint"] = True
    values["experiment_tag"] = tag
    return values
