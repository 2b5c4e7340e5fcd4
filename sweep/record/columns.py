"""Reports as SQL, of every version of the format: where they are, and how to get at one number of many of them."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from sweep.core.results import AUTO_FILLED
from sweep.record.schema import FILLED, SEALED, version_of

_HOST = "LEFT JOIN host h ON h.id = r.host"


class Reports(NamedTuple):
    """Parts of a query of reports.

    Attributes:
        all: what to select all reports from. `r` has seq, attempt, at, wall and checkpoint.
        last: what to join to `trial t` for the last report of each trial.
        trial_id: the column of the trial's id.
        metrics: the metrics as filled in, as JSON.
        own: at least what the trial reported itself, as JSON.
    """

    all: str
    last: str
    trial_id: str
    metrics: str
    own: str

    def number(self, metric: str) -> str | None:
        """Return the value of a metric, `eval/acc` being a key or a path; None: there is no JSON path for it."""
        if not metric or any(sign in metric for sign in "\"\\'\0"):
            return None
        first = metric.partition("/")[0]
        text = self.metrics if metric in AUTO_FILLED or first in AUTO_FILLED else self.own
        whole = f"json_extract({text}, '$.\"{metric}\"')"
        if first == metric:
            return whole
        nested = "$" + "".join(f'."{part}"' for part in metric.split("/"))
        return f"coalesce({whole}, json_extract({text}, '{nested}'))"


_BEFORE = Reports("result r", "result r ON r.seq = t.last_result", "r.trial_id", "r.metrics", "r.metrics")
_NOW = Reports(
    f"report r JOIN trial t ON t.number = r.trial {_HOST}",
    f"report r ON r.seq = t.last_result {_HOST}",
    "t.trial_id",
    FILLED,
    "r.metrics",
)


def reports_of(connection: sqlite3.Connection) -> Reports:
    """Return how reports are selected from this record."""
    return _NOW if version_of(connection) >= SEALED else _BEFORE
