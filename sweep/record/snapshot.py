"""Copies of a `sweep.db`: made while it is in use, told apart, and compared."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from pathlib import Path

from sweep.record.schema import last_seq


def copy_record(source: sqlite3.Connection, target: Path) -> None:
    """Write a consistent copy of a `sweep.db` that may be in use: one file, without a log beside it."""
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(target)) as copy:
        copy.execute("PRAGMA synchronous=OFF")  # after a crash it is made again
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")


def stamp_of_record(db: sqlite3.Connection) -> tuple[int, str]:
    """Return the number of the last event, and a text: one of them changes whenever a record says something new."""
    meta = repr(db.execute("SELECT key, value FROM meta ORDER BY key").fetchall())
    return last_seq(db), hashlib.sha256(meta.encode()).hexdigest()


def compare(theirs: sqlite3.Connection, ours: sqlite3.Connection) -> tuple[int, int, bool]:
    """Return the numbers of the last events of two records, and whether one continues the other: they are compared
    where the shorter one ends."""
    their_seq, our_seq = last_seq(theirs), last_seq(ours)
    same = "SELECT at, wall, kind, trial_id, attempt FROM event WHERE seq = ?"
    where = (min(their_seq, our_seq),)
    is_same = theirs.execute(same, where).fetchone() == ours.execute(same, where).fetchone()
    return their_seq, our_seq, is_same
