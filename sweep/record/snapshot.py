"""Copies of a `sweep.db`: made while it is in use, told apart, and compared."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from pathlib import Path
from typing import NamedTuple

from sweep.record.checksums import check_structure
from sweep.record.db import last_seq, open_for_reading


class Stamp(NamedTuple):
    """The number of a record's last event, and a text: one of them changes whenever it says something new."""

    seq: int
    meta: str


def copy_record(source: Path, target: Path) -> None:
    """Write a consistent copy of a `sweep.db` that may be in use: one file, without a log beside it.

    Raises:
        ExperimentError: one of them is damaged.
        OSError, sqlite3.Error: it cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with (
        contextlib.closing(open_for_reading(source, with_events=False)) as db,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        copy.execute("PRAGMA synchronous=OFF")  # after a crash it is made again
        db.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
    with contextlib.closing(open_for_reading(target, with_events=False)) as db:
        check_structure(db, target)


def close_log(database: Path) -> None:
    """Put the log beside a record into it, so that it is one file."""
    if any(database.with_name(f"{database.name}{end}").exists() for end in ("-wal", "-shm", "-journal")):
        with contextlib.closing(sqlite3.connect(database)) as db:
            db.execute("PRAGMA journal_mode=DELETE")
        for end in ("-wal", "-shm"):
            database.with_name(f"{database.name}{end}").unlink(missing_ok=True)


def stamp_of_record(database: Path) -> Stamp:
    """Return what tells whether a record says something new."""
    with contextlib.closing(open_for_reading(database, with_events=False)) as db:
        meta = repr(db.execute("SELECT key, value FROM meta ORDER BY key").fetchall())
        return Stamp(last_seq(db), hashlib.sha256(meta.encode()).hexdigest())


def compare(theirs: Path, ours: Path) -> tuple[int, int, bool]:
    """Compare two records, the events of which are checked: the numbers of their last events, and whether one continues
    the other: they agree where the shorter one ends."""
    with contextlib.closing(open_for_reading(theirs)) as one, contextlib.closing(open_for_reading(ours)) as two:
        seqs = last_seq(one), last_seq(two)
        same = "SELECT crc FROM event WHERE seq = ?"  # it continues those of all events before
        crcs = [db.execute(same, (min(seqs),)).fetchone() for db in (one, two)]
        return *seqs, crcs[0] == crcs[1]
