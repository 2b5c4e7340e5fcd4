"""Which trials and checkpoints a record says there are, and which of them its trials continue from."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from sweep.record.codec import metrics_of
from sweep.record.facts import REPORT, events

_REFERENCE = re.compile(r'"([A-Za-z0-9][A-Za-z0-9_-]*/checkpoint_\d{6,}[^"/\\]*)"')
_STORES, _DISCARDS = '*"checkpoint":*', '*"Discard"*'


class StoredCheckpoints:
    """The checkpoints that a record names, by their paths in the experiment; `follow` reads on from the last event.

    Attributes:
        kept: stored, and not discarded since.
        discarded: that were kept once.
    """

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.discarded: set[str] = set()
        self._seq = 0

    def follow(self, db: sqlite3.Connection) -> set[str]:
        """Take in the events since the last call, and return what they stored."""
        new = set()
        for seq, _, text in events(db, [_STORES, _DISCARDS], after=self._seq):
            self._seq, data = seq, json.loads(text)
            if "checkpoint" in data and (data["kind"] == "Saved" or "metrics" in data):
                path = data["checkpoint"]
                new.add(path)
                self.kept.add(path)
            gone = {row[1] for row in data.get("commands", ()) if row[0] == "Discard"} & self.kept
            self.kept -= gone
            self.discarded |= gone
        return new


def saved_before(
    db: sqlite3.Connection, before: int, of_trial: str | None = None
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (trial id, path, metrics) of each checkpoint that was stored before an event, oldest first, with what the
    trial had reported last."""
    last: dict[str, str] = {}  # by trial, the text of its last report
    owners = None if of_trial is None else [of_trial]
    for _, trial_id, text in events(db, [_STORES, f"{REPORT}*"], before=before, trial_ids=owners):
        if trial_id is None:
            continue
        if text.startswith(REPORT) and '"metrics":' in text:
            last[trial_id] = text
        if '"checkpoint":' in text:
            data = json.loads(text)
            if "checkpoint" in data and (data["kind"] == "Saved" or "metrics" in data):
                yield trial_id, data["checkpoint"], metrics_of(json.loads(last.get(trial_id, "{}")), trial_id) or {}


def references(db: sqlite3.Connection) -> dict[str, set[str]]:
    """Return by trial the checkpoints that it continues from or will; trials without any are left out."""
    rows = db.execute("SELECT trial_id, state FROM trial WHERE state GLOB '*/checkpoint_*'")
    found = {trial_id: set(_REFERENCE.findall(state)) for trial_id, state in rows}
    return {trial_id: paths for trial_id, paths in found.items() if paths}


def trial_of(checkpoint: str) -> str:
    """Return the trial in whose directory a checkpoint lies."""
    return checkpoint.partition("/")[0]


def statuses(db: sqlite3.Connection) -> dict[str, str]:
    """Return the status of every trial."""
    return dict(db.execute("SELECT trial_id, status FROM trial"))
