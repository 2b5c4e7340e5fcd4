"""Which trials and checkpoints a record says there are, and which of them its trials continue from."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

from sweep.record.encoding import decode

_REFERENCE = re.compile(r'"([A-Za-z0-9][A-Za-z0-9_-]*/checkpoint_\d{6,}[^"/\\]*)"')
_FACTS = """
SELECT seq, checkpoint, NULL FROM result WHERE checkpoint IS NOT NULL AND seq > :seq
UNION ALL SELECT seq, json_extract(data, '$[1]'), NULL FROM event WHERE kind = 'Saved' AND seq > :seq
UNION ALL SELECT seq, NULL, commands FROM event WHERE commands LIKE '%"Discard"%' AND seq > :seq
ORDER BY 1, 2 DESC
"""


class StoredCheckpoints:
    """The checkpoints that a record names, by their paths in the experiment; `follow` reads on from the last event.

    Attributes:
        kept: stored, and not discarded since.
        discarded: that were kept once.
        reused: stored under the name of one that was discarded.
    """

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.discarded: set[str] = set()
        self.reused: set[str] = set()
        self._seq = 0

    def follow(self, db: sqlite3.Connection) -> set[str]:
        """Take in the events since the last call, and return what they stored."""
        new = set()
        for seq, path, commands in db.execute(_FACTS, {"seq": self._seq}):
            self._seq = seq
            if path is not None:
                new.add(path)
                self.kept.add(path)
                if path in self.discarded:
                    self.reused.add(path)
                continue
            for row in decode(commands):
                if row[0] == "Discard" and row[1] in self.kept:
                    self.kept.remove(row[1])
                    self.discarded.add(row[1])
        return new


def references(db: sqlite3.Connection) -> dict[str, set[str]]:
    """Return by trial the checkpoints that it continues from or will; trials without any are left out."""
    rows = db.execute(
        "SELECT trial_id, checkpoint, started_from, pending FROM trial"
        " WHERE checkpoint IS NOT NULL OR started_from IS NOT NULL OR pending IS NOT NULL"
    )
    found = {row[0]: {path for text in row[1:] if text for path in _REFERENCE.findall(text)} for row in rows}
    return {trial_id: paths for trial_id, paths in found.items() if paths}


def strangers_of(root: Path, db: sqlite3.Connection) -> list[str]:
    """Return the directories of trials that a record does not know: those of its last moments, which were lost by a
    power cut, or never published. Their numbers will be given to others."""
    known = {row[0] for row in db.execute("SELECT trial_id FROM trial")}
    prefixes = {trial_id.rpartition("_")[0] for trial_id in known}
    prefixes |= {json.loads(row[0]) for row in db.execute("SELECT value FROM meta WHERE key = 'prefix'")}
    found = []
    for path in root.iterdir():
        name = re.fullmatch(r"([0-9a-f]{5})_\d{5,}", path.name)
        if name and name[1] in prefixes and path.name not in known and path.is_dir() and not path.is_symlink():
            found.append(path.name)
    return sorted(found)


def trial_of(checkpoint: str) -> str:
    """Return the trial in whose directory a checkpoint lies."""
    return checkpoint.partition("/")[0]


def statuses(db: sqlite3.Connection) -> dict[str, str]:
    """Return the status of every trial."""
    return dict(db.execute("SELECT trial_id, status FROM trial").fetchall())
