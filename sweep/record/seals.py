"""Checksums of the rows of `sweep.db`: a row that is not what was written is never taken for one that is.

Events are chained: the checksum of an event is the CRC-32 of its row, continued from the event before, and their
numbers have no gap. Each row of the other tables has a checksum of its own. `tally`, which every commit writes, has
one over those of `meta` and `trial`, and the last event's: a page of an older copy fits into its table and not to that.
So a changed, lost, doubled, outdated or misplaced row is noticed where it is read.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from sweep.errors import ExperimentError
from sweep.record.schema import SCHEMA

_MOST_ASKED = 500  # numbers of events in one query


class Tally(NamedTuple):
    """The row of the table `tally`; see `sweep.record.schema`."""

    last: int = 0
    chain: int = 0
    checksum: int = 0

    def write(self, db: sqlite3.Connection) -> None:
        """Put it into the table; within a transaction."""
        db.execute("INSERT OR REPLACE INTO tally VALUES (1, ?, ?, ?, ?)", (*self, crc_of(self)))


def linked(seq: int, trial_id: str | None, data: str, chain: int) -> int:
    """Return the checksum of an event whose predecessor has the checksum `chain`."""
    return zlib.crc32(f"{seq}|{trial_id}|{data}".encode(), chain)


def crc_of(row: Sequence[Any]) -> int:
    """Return the checksum of a row that stands by itself: of its values as SQLite returns them."""
    return zlib.crc32(repr(tuple(row)).encode())


def total(crcs: Iterable[int], gone: Iterable[int] = (), before: int = 0) -> int:
    """Return the checksum over all rows, from theirs.

    Args:
        gone: of rows that are not there any more. before: what it was without these changes.
    """
    # not their XOR: a CRC is linear, so those of rows that differ in a counter cancel out
    return (before + sum(crc * crc for crc in crcs) - sum(crc * crc for crc in gone)) % 2**62


# --- reading ---------------------------------------------------------------------------------------------------------

# By database: its device and inode, and the last event of it that this process has checked, with all before it.
_checked: dict[Path, tuple[tuple[int, int], tuple[int, int]]] = {}
_lock = threading.Lock()


def _objects(connection: sqlite3.Connection) -> Mapping[str, str]:
    return dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def _expected() -> Mapping[str, str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return _objects(connection)


_SCHEMA: dict[str, str] = {}


def check_schema(connection: sqlite3.Connection, database: Path) -> None:
    """Refuse a record whose tables are not as they were made: what they hold would be misread.

    Raises:
        ExperimentError: says so.
    """
    if not _SCHEMA:
        _SCHEMA.update(_expected())
    found = _objects(connection)
    for name, sql in _SCHEMA.items():
        if found.get(name) != sql:
            raise damaged(database, f"what it says of its table or view `{name}` is not what was written")


def check_structure(connection: sqlite3.Connection, database: Path) -> None:
    """Have SQLite check the structure of the file.

    Raises:
        ExperimentError: it is damaged.
    """
    (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if said != "ok":
        raise damaged(database, said)


def check_state(connection: sqlite3.Connection, database: Path) -> None:
    """Check the rows of all tables that are not events, and that those are of the same state.

    Raises:
        ExperimentError: one is not what was written, or missing.
    """
    crcs = []
    for table, columns in (("meta", "key, value"), ("trial", "number, trial_id, status, config, state")):
        for *row, crc in connection.execute(f"SELECT {columns}, crc FROM {table}"):
            if crc_of(row) != crc:
                raise damaged(database, f"a row of its table `{table}` ({row[0]!r:.40}) is not what was written")
            crcs.append(crc)
    tally = connection.execute("SELECT last, chain, checksum, crc FROM tally").fetchall()
    if len(tally) != 1 or crc_of(tally[0][:-1]) != tally[0][-1]:
        raise damaged(database, "its table `tally` is not what was written")
    last, chain, checksum, _ = tally[0]
    if checksum != total(crcs):
        raise damaged(database, "rows of its tables are missing, or are those of an older copy")
    if (last, chain) != end_of(connection):
        raise damaged(database, "its last events are missing, or are those of an older copy")


def end_of(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return number and checksum of the last event; zeros before the first."""
    return connection.execute("SELECT seq, crc FROM event ORDER BY seq DESC LIMIT 1").fetchone() or (0, 0)


def check_history(connection: sqlite3.Connection, database: Path) -> None:
    """Check all events that this process has not checked before.

    Raises:
        ExperimentError: one is not what was written, or missing.
    """
    try:
        stat = database.stat()
    except FileNotFoundError:  # deleted while it is read
        return
    file = stat.st_dev, stat.st_ino
    with _lock:
        known, (last, chain) = _checked.get(database, (file, (0, 0)))
    found = connection.execute("SELECT crc FROM event WHERE seq = ?", (last,)).fetchone()
    if known != file or (last and found != (chain,)):  # another record lies there now
        last = chain = 0
    if not last:
        check_state(connection, database)
    for seq, trial_id, data, crc in connection.execute(
        "SELECT seq, trial_id, data, crc FROM event WHERE seq > ? ORDER BY seq", (last,)
    ):
        if seq != last + 1:
            raise damaged(database, f"of its events {last + 1} to {seq - 1} are missing")
        chain = linked(seq, trial_id, data, chain)
        if crc != chain:
            raise damaged(database, f"event {seq} is not what was written")
        last = seq
    if (last, chain) != end_of(connection):
        raise damaged(database, "its last events are missing")
    with _lock:
        _checked[database] = file, (last, chain)


def checked_events(
    connection: sqlite3.Connection, database: Path, seqs: Iterable[int]
) -> dict[int, tuple[str | None, str]]:
    """Return chosen events, each checked, for readers that want no others: by number, the trial's id and the text.

    Raises:
        ExperimentError: one is not what was written, or missing.
    """
    wanted = sorted(set(seqs))
    found: dict[int, tuple[str | None, str]] = {}
    for begin in range(0, len(wanted), _MOST_ASKED):
        some = wanted[begin : begin + _MOST_ASKED]
        rows = connection.execute(
            "SELECT e.seq, e.trial_id, e.data, e.crc, coalesce(p.crc, 0) FROM event e"
            f" LEFT JOIN event p ON p.seq = e.seq - 1 WHERE e.seq IN ({', '.join('?' * len(some))})",
            some,
        )
        for seq, trial_id, data, crc, before in rows:
            if linked(seq, trial_id, data, before) != crc:
                raise damaged(database, f"event {seq} is not what was written")
            found[seq] = trial_id, data
    if len(found) != len(wanted):
        raise damaged(database, f"{len(wanted) - len(found)} of its events are missing")
    return found


def damaged(database: Path, what: str) -> ExperimentError:
    """Return the error that says what is wrong with a record, and what to do."""
    return ExperimentError(
        f"{database} is damaged: {what}. Nothing was changed. Look at the disk (dmesg), and restore sweep.db from a "
        "copy; what the trials wrote into their own directories is not in it and may be intact."
    )
