"""What a follower of the record reads: what happened after some event, in order, in batches of a transaction each.

Everything that is known of the tables here is known to nobody else of those who write log files.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from sweep.core.messages import Hook
from sweep.core.trial import CheckpointRef
from sweep.record.encoding import decode, decode_metrics

_TOLD = (Hook.COMPLETE.value, Hook.ERROR.value, Hook.PAUSE.value, Hook.RETRY.value)
_MARKS = ('"Start"', *(f'"{hook}"' for hook in _TOLD))


class Report(NamedTuple):
    """A trial reported, and observers were told: not of what it reports again after a restart."""

    trial_id: str
    text: str

    def metrics(self) -> dict[str, Any]:
        """Return them as filled in, without the config."""
        found: dict[str, Any] = decode_metrics(self.text)
        return found


class Suggested(NamedTuple):
    """A trial is new, with this config."""

    trial_id: str
    config: dict[str, Any]


class Began(NamedTuple):
    """An attempt is to start; `config`: None where it is the one that was suggested; `source`: a checkpoint of another
    trial that it continues from."""

    trial_id: str
    attempt: int
    config: dict[str, Any] | None
    source: CheckpointRef | None


class Started(NamedTuple):
    """An attempt runs."""

    trial_id: str
    attempt: int


class Exited(NamedTuple):
    """An attempt has ended; `said` is its traceback, or its error, or empty."""

    trial_id: str
    said: str


class Notified(NamedTuple):
    """What became of a trial: COMPLETE, ERROR, PAUSE or RETRY; `number` counts its failures, `reason` says why; both
    only of ERROR and RETRY, and not in records of former versions (-1 and empty)."""

    hook: Hook
    trial_id: str
    number: int = -1
    reason: str = ""


Row = Report | Suggested | Began | Started | Exited | Notified


class Line(NamedTuple):
    """Something that happened: with the number of its event, and when (UTC epoch seconds)."""

    seq: int
    wall: float
    row: Row


def has_news(connection: sqlite3.Connection, after: int, *, with_reports: bool) -> bool:
    """Whether something happened after an event that a file tells of.

    Args:
        with_reports: also files that tell of reports and of what started; else only of failures.
    """
    failures = f"instr(commands, '\"{Hook.ERROR.value}\"') OR instr(commands, '\"{Hook.RETRY.value}\"')"
    what = "kind IN ('Started', 'Reported')" if with_reports else failures
    found = connection.execute(f"SELECT 1 FROM event WHERE seq > ? AND ({what}) LIMIT 1", (after,))
    return found.fetchone() is not None


def read_rows(
    connection: sqlite3.Connection, after: int, upto: int, most: int, *, with_reports: bool
) -> tuple[list[Line], int]:
    """Return what happened after one event, up to another, and the number up to which that is everything.

    The transaction is over when it returns: one that stays open keeps the log from being begun anew.

    Args:
        most: events that are looked at.
        with_reports: whether reports are wanted.
    """
    marked = " OR ".join(f"instr(commands, '{mark}')" for mark in _MARKS)
    what = "" if with_reports else f"AND (kind != 'Reported' OR {marked})"
    metrics = "metrics" if with_reports else "NULL"
    found = connection.execute(
        f"SELECT seq, wall, kind, trial_id, attempt, data, commands, {metrics} FROM event"
        f" WHERE seq > ? AND seq <= ? {what} ORDER BY seq LIMIT ?",
        (after, upto, most),
    ).fetchall()
    lines = [Line(seq, wall, row) for seq, wall, *columns in found for row in _rows(*columns)]
    return lines, found[-1][0] if len(found) == most else upto


def last_report(connection: sqlite3.Connection, trial_id: str, before: int) -> dict[str, Any] | None:
    """Return the last report that a trial had made before an event; None: there was none."""
    found = connection.execute(
        "SELECT metrics FROM result WHERE trial_id = ? AND seq < ? ORDER BY seq DESC LIMIT 1", (trial_id, before)
    ).fetchone()
    return None if found is None else decode_metrics(found[0])


def config_of(connection: sqlite3.Connection, trial_id: str) -> dict[str, Any]:
    """Return the config that a trial has now."""
    found = connection.execute("SELECT config FROM trial WHERE trial_id = ?", (trial_id,)).fetchone()
    return {} if found is None else _config(decode(found[0], with_arrays=True))


def variables(connection: sqlite3.Connection) -> list[str] | None:
    """Return the flattened config paths that vary among trials; None: unknown."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'variables'").fetchone()
    value = None if found is None else decode(found[0])
    return list(value) if isinstance(value, (list, tuple)) else None


def _rows(
    kind: str, trial_id: str, attempt: int, data: str | None, commands: str | None, metrics: str | None
) -> Iterator[Row]:
    if metrics is not None and (commands is None or f'"{Hook.RESULT.value}"' in commands):
        yield Report(trial_id, metrics)
    elif kind == "Started":
        yield Started(trial_id, attempt)
    elif kind == "Suggested" and data is not None and data.startswith('{"config"'):
        yield Suggested(trial_id, _config(decode(data, with_arrays=True)["config"]))
    elif kind == "Exited" and data is not None:
        ended = json.loads(data)["exit"]
        is_told = ended.get("kind") != "NEEDS_MORE"
        yield Exited(trial_id, (ended.get("traceback") or ended.get("error") or "") if is_told else "")
    if commands is not None and any(mark in commands for mark in _MARKS):
        for row in decode(commands, with_arrays=True):
            match row:
                case ["Start", name, number, _, *later]:
                    config = _config(later[0]) if later else None
                    ref = CheckpointRef.parse(later[2]) if len(later) > 2 else None
                    yield Began(name, number, config, ref if ref is not None and ref.owner != name else None)
                case ["Notify", hook, name, *why] if hook in _TOLD:
                    yield Notified(Hook(hook), name, *why[:2])


def _config(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
