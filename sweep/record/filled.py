"""The fields of a report that are not recorded but follow from what is: derived when it is read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sweep.core.naming import experiment_tag
from sweep.core.trial import CheckpointRef

__all__ = ["MOST_SECONDS", "NODE_IP", "checkpoint_dir_name", "complete", "date_str", "tag_of"]

MOST_SECONDS = 1e11  # since 1970 that have a date; what a trial reports may be anything
NODE_IP = "127.0.0.1"  # everything runs on the machine that drives


def date_str(timestamp: float | None = None) -> str:
    """Return a time as `2026-11-21_08-27-19`, in local time.

    Args:
        timestamp: UTC epoch seconds; None: now.
    """
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(timestamp))


def checkpoint_dir_name(ref: CheckpointRef | None) -> str | None:
    """Return the last part of a checkpoint's path: `checkpoint_000003`; None without one."""
    return None if ref is None else ref.path.rstrip("/").rpartition("/")[2]


def tag_of(number: int, config: Mapping[str, Any], variables: Any) -> str:
    """Return a trial's experiment tag: its number and the values that vary.

    Args:
        variables: as recorded: the flattened config paths that vary; anything but a list: unknown, so all may.
    """
    return experiment_tag(number, config, variables if isinstance(variables, (list, tuple)) else None)


def complete(
    metrics: Mapping[str, Any], *, tag: str, wall: float | None, checkpoint: CheckpointRef | None, pid: int = 0
) -> dict[str, Any]:
    """Return a report with the fields that are derived; what it says itself is kept.

    Args:
        tag: the trial's experiment tag.
        wall: when it was committed, in UTC epoch seconds.
        checkpoint: that came with it.
        pid: of the trial's process; 0: unknown.
    """
    values = dict(metrics)
    if wall is not None:
        values.setdefault("timestamp", int(wall))
    stamp = values.get("timestamp")
    if "date" not in values:
        values["date"] = date_str(stamp) if isinstance(stamp, (int, float)) and abs(stamp) < MOST_SECONDS else None
    values.setdefault("pid", pid or None)
    values.setdefault("hostname", None)
    values.setdefault("node_ip", NODE_IP)
    values.setdefault("done", False)
    values["checkpoint_dir_name"] = checkpoint_dir_name(checkpoint)
    if checkpoint is not None:
        values["should_checkpoint"] = True
    values["experiment_tag"] = tag
    return values
