"""One report of a trial: the user's metrics, read-only, and all the fields that are filled in or derived."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from sweep.core.values import as_float, printed

TRIAL_INDEX = "__trial_index__"  # which repeat of a suggestion it is, in configs that `searchers.Repeater` made
ANONYMOUS_METRIC = "_metric"  # of a number that a function returns or yields by itself, as in Tune

MOST_SECONDS = 6e10  # since 1970 that have a date; what a trial reports may be anything
NODE_IP = "127.0.0.1"  # of trials on the machine that drives; those on others report theirs

# Keys that are filled in and therefore never a user's own metric.
AUTO_FILLED = frozenset(
    {
        "training_iteration",
        "time_this_iter_s",
        "time_total_s",
        "trial_id",
        "timestamp",
        "date",
        "pid",
        "hostname",
        "node_ip",
        "config",
        "done",
        "experiment_tag",
        "time_since_restore",
        "iterations_since_restore",
        "timesteps_total",
        "episodes_total",
        "timesteps_since_restore",
        "checkpoint_dir_name",
        "should_checkpoint",
    }
)

# Those of them, and what they are summed from, that are numbers where a trial reports them itself.
NUMBERS = (
    "training_iteration",
    "time_this_iter_s",
    "time_total_s",
    "timestamp",
    "timesteps_this_iter",
    "timesteps_total",
    "episodes_this_iter",
    "episodes_total",
)


class TrialResult(Mapping[str, Any]):
    """A report as schedulers, searchers and stoppers see it: a read-only mapping that also understands `"eval/acc"`.

    Attributes:
        seq: number of the record in `sweep.db`; 0 before it is committed.
    """

    __slots__ = ("_values", "seq")

    def __init__(self, values: dict[str, Any], seq: int = 0) -> None:
        self._values = values
        self.seq = seq

    def __getitem__(self, key: str) -> Any:
        try:
            return self._values[key]
        except KeyError:
            if "/" in key:
                value: Any = self._values
                for part in key.split("/"):
                    if not isinstance(value, Mapping) or part not in value:
                        break
                    value = value[part]
                else:
                    return value
            raise

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, which may be a path such as `eval/acc`, or `default`."""
        value = self._values.get(key, _MISSING)
        if value is not _MISSING:
            return value
        if "/" not in key:
            return default
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key, _MISSING) is not _MISSING

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"TrialResult({self._values!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._values == dict(other)

    __hash__ = None  # type: ignore[assignment]


_MISSING: Any = object()


def fill(
    metrics: Mapping[str, Any],
    *,
    trial_id: str,
    count: int,
    since_restore: int,
    time_before_s: float,
    restored_s: float,
) -> dict[str, Any]:
    """Return `metrics` with the fields that Tune fills in.

    Args:
        count: reports of the trial so far, this one included; becomes `training_iteration` unless the user reports one.
        since_restore: reports of this attempt, this one included.
        time_before_s: `time_total_s` of the report before.
        restored_s: `time_total_s` of the checkpoint that the attempt started from.
    """
    values = {sys.intern(str(name)): value for name, value in metrics.items()}  # each report has copies of its keys
    values.setdefault("training_iteration", count)
    this = as_float(values.get("time_this_iter_s")) or 0.0
    total = time_before_s + this if time_before_s else this
    if "time_total_s" in values:
        stated = as_float(values["time_total_s"])
    else:
        stated = values["time_total_s"] = total
    values["trial_id"] = trial_id
    values["time_since_restore"] = 0.0 if stated is None else stated - restored_s if restored_s else stated
    values["iterations_since_restore"] = since_restore
    values.setdefault("done", False)
    return values


def add_measured(
    values: dict[str, Any], *, wall: float, seconds: float, pid: int, hostname: str, node_ip: str = ""
) -> None:
    """Add to what a trial reports what its process knows of the report, unless the trial says it itself.

    Args:
        wall: the time, in UTC epoch seconds. seconds: since the report before.
        node_ip: address of its node; empty: it is the machine that drives.
    """
    values.setdefault("timestamp", int(wall))
    values.setdefault("time_this_iter_s", seconds)
    values.setdefault("pid", pid)
    values.setdefault("hostname", hostname)
    if node_ip:
        values.setdefault("node_ip", node_ip)


def date_str(timestamp: float) -> str:
    """Return a time in UTC epoch seconds as `2026-11-21_08-27-19`, in local time."""
    return f"{datetime.fromtimestamp(timestamp):%Y-%m-%d_%H-%M-%S}"


def date_of(stamp: Any) -> str | None:
    """Return the date of whatever a trial reported as its `timestamp`; None when it has none."""
    return date_str(stamp) if isinstance(stamp, (int, float)) and abs(stamp) < MOST_SECONDS else None


def complete(metrics: Mapping[str, Any], *, tag: str, wall: float, checkpoint: str | None) -> dict[str, Any]:
    """Return a recorded report with the fields that are not recorded but follow from what is; what it says itself is
    kept.

    Args:
        tag: the trial's experiment tag.
        wall: when it was committed, in UTC epoch seconds.
        checkpoint: name of the directory that came with it; None: there was none.
    """
    values = dict(metrics)
    values.setdefault("timestamp", int(wall))
    derived = {"date": date_of(values.get("timestamp")), "pid": None, "hostname": None, "node_ip": NODE_IP}
    values |= {name: value for name, value in (derived | {"done": False}).items() if name not in values}
    values["checkpoint_dir_name"] = checkpoint
    if checkpoint is not None:
        values["should_checkpoint"] = True
    values["experiment_tag"] = tag
    return values


def flatten(nested: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return a flat dict whose keys are paths: `{"a": {"b": 1}}` gives `{"a/b": 1}`; empty dicts vanish, lists stay.
    The number of a repeat, which is no parameter, is left out."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if key == TRIAL_INDEX:
            continue
        if isinstance(value, Mapping):
            for inner, leaf in flatten(value, delimiter).items():
                flat[f"{key if type(key) is str else printed(key)}{delimiter}{inner}"] = leaf
        else:
            flat[key if type(key) is str else printed(key)] = value
    return flat


def without_index(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as it was suggested, without the number of the repeat."""
    return {key: value for key, value in config.items() if key != TRIAL_INDEX}


def own_metrics(report: Mapping[str, Any], *also: str) -> dict[str, Any]:
    """Return what the user reported: a report without what is filled in, except for what is named in `also`."""
    return {key: value for key, value in report.items() if key not in AUTO_FILLED or key in also}


# In the order in which they come after what a trial reported: from its worker, then from `fill`.
_FILLED_LAST = (
    *("timestamp", "time_this_iter_s", "pid", "hostname", "node_ip", "timesteps_total", "episodes_total"),
    *("training_iteration", "time_total_s", "trial_id", "time_since_restore", "iterations_since_restore", "done"),
)


def reported(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return exactly what was reported: a recorded report without what was filled in after it. What bears such a name
    and was reported stays; a `timestamp` only if something else came after it."""
    keys = list(report)
    for name in reversed(_FILLED_LAST):
        if keys and keys[-1] == name:
            keys.pop()
    return {key: report[key] for key in keys}


def unflatten(flat: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Undo `flatten`."""
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, last = path.split(delimiter)
        place = nested
        for part in parents:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def signed(value: Any, mode: str) -> float:
    """Return `value` so that larger is better; NaN for whatever is no number."""
    number = as_float(value)
    if number is None:
        return math.nan
    return number if mode == "max" else -number


def score(value: Any, mode: str) -> float:
    """Return `value` so that larger is better, with NaN and everything that is no number as the worst of all."""
    number = signed(value, mode)
    return number if number == number else -math.inf
