"""Copies of a `sweep.db`: made while it is in use, told apart, and compared."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from sweep.record.checksums import Totals, check_structure, end_of
from sweep.record.db import open_for_reading


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


def totals_of(database: Path) -> Totals:
    """Return what changes whenever a record says something new."""
    with contextlib.closing(open_for_reading(database, with_events=False)) as db:
        return Totals.of(db)


def compare(theirs: Path, ours: Path) -> tuple[int, int, bool]:
    """Compare two records, the events of which are checked: the numbers of their last events, and whether one continues
    the other: they agree where the shorter one ends."""
    with contextlib.closing(open_for_reading(theirs)) as one, contextlib.closing(open_for_reading(ours)) as two:
        seqs = end_of(one)[0], end_of(two)[0]
        same = "SELECT crc FROM event WHERE seq = ?"  # it continues those of all events before
        crcs = [db.execute(same, (min(seqs),)).fetchone() for db in (one, two)]
        return *seqs, crcs[0] == crcs[1]
