"""Checksums of the rows of `sweep.db`: a row that is not what was written is never taken for one that is.

Events are chained: the checksum of a row of `fact` or `report` is the CRC-32 of its text, continued from the row before
in the same table. Each row of the other tables has one of its own, and `tally` has one over all of those: a page of an
older copy fits into its table and not to that. Event numbers have no gap. So a changed, lost, doubled, outdated or
misplaced row is noticed where it is read, and rows are read in the order in which SQLite finds them fastest: the text
of a row is made by SQLite itself, and many rows are checked at once.

A time is a double, which SQLite cannot show without loss; two whole numbers stand for it: its multiple of 2**-20
seconds, and the rest in 2**-72 seconds.
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
from sweep.record.schema import SCHEMA, SEALED, VERSION, last_seq, version_of

_BATCH = 500  # rows whose texts are joined; a report has at most some megabytes
_HIGH, _LOW = 2.0**20, 2.0**52
_KEYS = (("meta", "key"), ("label", "trial_id"), ("host", "id"), ("trial", "trial_id"))


def _time(name: str) -> str:
    high = f"CAST({name} * {_HIGH} AS INTEGER)"
    return f"{high}, CAST(({name} * {_HIGH} - {high}) * {_LOW} AS INTEGER)"


def _text(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the text of a row as SQL: columns, the two times, columns; null is an empty text."""
    form = "|".join(["%s"] * len(before) + ["%d,%d|%d,%d"] + ["%s"] * len(after))
    return f"printf('{form}', {', '.join(before)}, {_time('at')}, {_time('wall')}, {', '.join(after)})"


_HEAD, _VALUES = ["seq", "trial", "attempt", "number"], ["metrics", "checkpoint", "verdict", "commands"]
_FILLED_IN = ["iteration", "timestamp", "pid", "host", "this_s", "total_s", "since_s", "done"]
_TEXTS = {
    "fact": _text(["seq"], ["kind", "trial_id", "attempt", "data", "commands"]),
    "report": _text(_HEAD, [*_VALUES, *_FILLED_IN, "effect"]),
}


def time_text(seconds: float) -> str:
    """Return what stands for a time."""
    scaled = seconds * _HIGH
    high = int(scaled)
    return f"{high},{int((scaled - high) * _LOW)}"


def fact_text(seq: int, times: str, row: Sequence[Any]) -> str:
    """Return the text of a row of `fact`.

    Args:
        times: of `at` and `wall`, joined by `|`.
        row: kind, trial_id, attempt, data, commands.
    """
    kind, trial_id, attempt, data, commands = row
    number = "" if attempt is None else attempt
    return f"{seq}|{times}|{kind}|{trial_id or ''}|{number}|{data or ''}|{commands or ''}"


def report_text(seq: int, times: str, row: Sequence[Any]) -> str:
    """Return the text of a row of `report`.

    Args:
        times: of `at` and `wall`, joined by `|`.
        row: trial, attempt, number, metrics, ... effect: without seq, at, wall and chain.
    """
    trial, attempt, number, *others = row
    rest = "|".join(["" if value is None else str(value) for value in others])
    return f"{seq}|{trial}|{attempt}|{number}|{times}|{rest}"


def linked(text: str, chain: int) -> int:
    """Return the checksum of a row whose predecessor has the checksum `chain`, as a signed 32-bit number."""
    return (zlib.crc32(text.encode(), chain & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def seal_of(row: Sequence[Any]) -> int:
    """Return the checksum of a row that stands by itself: of its values as SQLite returns them."""
    return linked(repr(tuple(row)), 0)


def total(seals: Iterable[int], gone: Iterable[int] = (), before: int = 0) -> int:
    """Return the checksum over all rows, from theirs.

    Args:
        gone: of rows that are not there any more. before: what it was without these changes.
    """
    # not their XOR: a CRC is linear, so those of rows that differ in a counter cancel out
    return (before + sum(seal * seal for seal in seals) - sum(seal * seal for seal in gone)) % 2**62


def seal_all(connection: sqlite3.Connection) -> None:
    """Give all rows their checksums: of a record whose version had none."""
    checksum = 0
    for table, key in _KEYS:
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        seals = [(seal_of(row[:-1]), row[0]) for row in rows]
        checksum = total((seal for seal, _ in seals), before=checksum)
        connection.executemany(f"UPDATE {table} SET seal = ? WHERE {key} = ?", seals)
    for table, text in _TEXTS.items():
        chain, rows = 0, []
        for seq, said in connection.execute(f"SELECT seq, {text} FROM {table} ORDER BY seq"):
            chain = linked(said, chain)
            rows.append((chain, seq))
        connection.executemany(f"UPDATE {table} SET chain = ? WHERE seq = ?", rows)
    row = 1, checksum, last_seq(connection), last_seq(connection)
    connection.execute("INSERT OR REPLACE INTO tally VALUES (?, ?, ?, ?, ?)", (*row, seal_of(row)))


# --- reading ---------------------------------------------------------------------------------------------------------


class _Checked(NamedTuple):
    """How far the events of a record were checked by this process: both ends, and how many rows there were."""

    fact: tuple[int, int] = (0, 0)  # number and checksum of the last row
    report: tuple[int, int] = (0, 0)
    rows: int = 0


_checked: dict[Path, tuple[tuple[int, int], _Checked]] = {}  # by database: its device and inode, and how far
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
        if found.get(name) != sql and (name != "tally" or version_of(connection) == VERSION):
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
    """Check the rows of all tables that are not events.

    Raises:
        ExperimentError: one is not what was written, or missing.
    """
    if version_of(connection) < VERSION:
        return
    found: dict[str, list[tuple[Any, ...]]] = {}
    for table, order in (("tally", "id"), *_KEYS):
        found[table] = connection.execute(f"SELECT * FROM main.{table} ORDER BY {order}").fetchall()
        for row in found[table]:
            if seal_of(row[:-1]) != row[-1]:
                raise damaged(database, f"a row of its table `{table}` ({row[0]!r:.40}) is not what was written")
    if len(found["tally"]) != 1:
        raise damaged(database, "its table `tally` is not what was written")
    _, checksum, last, progress, _ = found["tally"][0]
    if checksum != total(row[-1] for table, _ in _KEYS for row in found[table]):
        raise damaged(database, "rows of its tables are missing, or are those of an older copy")
    end = last_seq(connection)
    recent = (connection.execute(f"SELECT count(*) FROM {name} WHERE seq > ?", (progress,)) for name in _TEXTS)
    if end < last or sum(count for ((count,),) in recent) != end - progress:
        raise damaged(database, f"events after number {progress} are missing, or are those of an older copy")
    by_number = connection.execute("SELECT trial_id, number FROM main.trial INDEXED BY sqlite_autoindex_trial_2")
    if sorted(by_number) != [row[:2] for row in found["trial"]]:
        raise damaged(database, "the index of its table `trial` is not what was written")


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
        known, so_far = _checked.get(database, (file, _Checked()))
    if known != file or any(_end(connection, table, seq) != (seq, chain) for table, (seq, chain) in _ends(so_far)):
        so_far = _Checked()  # another record lies there now
    if not so_far.rows:
        check_state(connection, database)
    num_rows = so_far.rows
    ends = dict(_ends(so_far))
    for table, (seq, chain) in ends.items():
        cursor = connection.execute(
            f"SELECT {_TEXTS[table]}, chain, seq FROM main.{table} WHERE seq > ? ORDER BY seq", (seq,)
        )
        while rows := cursor.fetchmany(_BATCH):
            chain = linked("".join([row[0] for row in rows]), chain)
            if chain != rows[-1][1]:
                first, last = rows[0][2], rows[-1][2]
                raise damaged(database, f"among its events {first} to {last} is one that is not what was written")
            num_rows += len(rows)
            ends[table] = rows[-1][2], chain
    last = last_seq(connection)
    if num_rows != last:
        raise damaged(database, f"its last event has the number {last}, and there are {num_rows} of them")
    with _lock:
        _checked[database] = file, _Checked(ends["fact"], ends["report"], num_rows)


def check_last(connection: sqlite3.Connection, database: Path) -> None:
    """Check the last report of each trial, for readers that want no others.

    Raises:
        ExperimentError: one is not what was written, or missing.
    """
    if version_of(connection) < SEALED:
        return
    before = "ifnull((SELECT p.chain FROM main.report p WHERE p.seq < r.seq ORDER BY p.seq DESC LIMIT 1), 0)"
    num_rows = 0
    for seq, text, chain, known in connection.execute(
        f"SELECT seq, {_TEXTS['report']}, chain, {before} FROM main.report r"
        " WHERE seq IN (SELECT last_result FROM trial)"
    ):
        num_rows += 1
        if linked(text, known) != chain:
            raise damaged(database, f"event {seq} is not what was written")
    (wanted,) = connection.execute("SELECT count(last_result) FROM trial").fetchone()
    if num_rows != wanted:
        raise damaged(database, f"{wanted - num_rows} reports of its trials are missing")


def _ends(checked: _Checked) -> list[tuple[str, tuple[int, int]]]:
    return [("fact", checked.fact), ("report", checked.report)]


def _end(connection: sqlite3.Connection, table: str, seq: int) -> tuple[int, int]:
    """Return number and checksum of a row."""
    found: tuple[int, int] | None = None
    if seq:
        found = connection.execute(f"SELECT seq, chain FROM main.{table} WHERE seq = ?", (seq,)).fetchone()
    return found or (0, 0)


def damaged(database: Path, what: str) -> ExperimentError:
    """Return the error that says what is wrong with a record, and what to do."""
    return ExperimentError(
        f"{database} is damaged: {what}. Nothing was changed. Look at the disk (dmesg), and restore sweep.db from a "
        "copy; what the trials wrote into their own directories is not in it and may be intact."
    )
