"""Whether a record is whole: checksums of the rows of `sweep.db`, and the high-water mark beside it.

A row that is not what was written is never taken for one that is. Events are chained: the checksum of an event is the
CRC-32 of its row, continued from the event before, and their numbers have no gap. Each row of the other tables has a
checksum of its own. The table `totals`, which every commit writes, has one over those of `meta` and `trial`, and the
last event's: a page of an older copy fits into its table and not to that. So a changed, lost, doubled, outdated or
misplaced row is noticed where it is read.

The high-water mark says how far the record goes, so that a log that is missing, or cut, is not taken for its end.
`sweep.mark` is one line: the number of the last event that was committed, of the last that was flushed, the boot of
the machine, and a checksum. What was committed is there as long as the machine runs, whatever was killed; after another
boot only what was flushed must be. The line is written after what it speaks of, so it never promises too much, and it
is not flushed itself. A record without a mark is a copy, and goes as far as it says itself.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sweep.errors import ExperimentError
from sweep.record.layout import DATABASE, MARK

_MOST_ASKED = 500  # numbers of events in one query
_LENGTH = 96  # bytes of the mark, so that a new line covers the old one


class Totals(NamedTuple):
    """The row of the table `totals`; see `sweep.record.db`."""

    last: int = 0
    chain: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, db: sqlite3.Connection) -> Totals:
        """Return what the table says."""
        return cls(*(db.execute("SELECT last, chain, checksum FROM totals").fetchone() or ()))

    def write(self, db: sqlite3.Connection) -> None:
        """Put it into the table; within a transaction."""
        db.execute("INSERT OR REPLACE INTO totals VALUES (1, ?, ?, ?, ?)", (*self, crc_of(self)))


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

# By database, its device and its inode: number and checksum of the last event that this process has checked.
_checked: dict[tuple[Path, int, int], tuple[int, int]] = {}


def check_structure(connection: sqlite3.Connection, database: Path) -> None:
    """Have SQLite check the structure of the file; raises ExperimentError where it is damaged."""
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
    totals = connection.execute("SELECT last, chain, checksum, crc FROM totals").fetchall()
    if len(totals) != 1 or crc_of(totals[0][:-1]) != totals[0][-1]:
        raise damaged(database, "its table `totals` is not what was written")
    last, chain, checksum, _ = totals[0]
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
    file = database, stat.st_dev, stat.st_ino
    last, chain = _checked.get(file, (0, 0))
    found = connection.execute("SELECT crc FROM event WHERE seq = ?", (last,)).fetchone()
    if last and found != (chain,):  # another record lies there now
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
    _checked[file] = last, chain


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


# --- the high-water mark ----------------------------------------------------------------------------------------------


class HighWaterMark(NamedTuple):
    """Numbers of events, and the boot under which they were written."""

    committed: int
    flushed: int
    boot: str

    def must_have(self) -> int:
        """Return the number of the last event that the record must have now."""
        return self.committed if self.boot and self.boot == boot() else self.flushed

    def encode(self) -> bytes:
        """Return the line."""
        text = f"committed {self.committed} flushed {self.flushed} boot {self.boot or '-'}"
        return f"{text} {zlib.crc32(text.encode()):08x}".ljust(_LENGTH - 1).encode() + b"\n"

    @staticmethod
    def parse(line: bytes) -> HighWaterMark:
        """Undo `encode`.

        Raises:
            ValueError: it is not what was written.
        """
        _, committed, _, flushed, _, boot, _ = line.decode("ascii").split()
        mark = HighWaterMark(int(committed), int(flushed), boot.strip("-"))
        if mark.encode() != line:
            raise ValueError(f"{line!r} is not what was written")
        return mark


def boot() -> str:
    """Return what tells this boot of this machine from all others; empty where the system does not say."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def high_water_mark(database: Path) -> HighWaterMark | None:
    """Return the high-water mark of a record; None where there is none that can be read."""
    with suppress(ValueError, OSError):  # none, or it is half written just now
        return HighWaterMark.parse(database.with_suffix(MARK).read_bytes())
    return None


def check_high_water_mark(mark: HighWaterMark | None, last: int, database: Path) -> None:
    """Refuse a record that ends before event number `last` is the one that its mark names.

    Args:
        mark: as it was before the record was read: it may have been written to meanwhile.
        last: number of the last event that the record has.

    Raises:
        ExperimentError: says what is missing.
    """
    if mark is None or last >= mark.must_have():
        return
    log = f"{DATABASE}-wal"
    raise ExperimentError(
        f"{database} ends with event {last}, and event {mark.must_have()} was recorded: its write-ahead log ({log}) is "
        f"gone, cut or damaged, or it was put back from an older copy. Nothing was changed. Restore {DATABASE} and "
        f"{log} together; to go on with what is there, delete {database.with_suffix(MARK)}."
    )


class MarkWriter:
    """Writes the high-water mark of the record that this process writes; raises OSError where it cannot."""

    def __init__(self, database: Path) -> None:
        self._file = os.open(database.with_suffix(MARK), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._boot = boot()
        self._committed = self._flushed = 0
        self._lock = threading.Lock()

    def write(self, committed: int, flushed: int | None = None) -> None:
        """Say how far the record goes at least; from any thread.

        Args:
            flushed: None: as far as before.
        """
        with self._lock:
            self._committed = max(committed, self._committed)
            self._flushed = max(flushed or 0, self._flushed)
            line = HighWaterMark(self._committed, self._flushed, self._boot).encode()
            with suppress(OSError):  # no room for it: the line before promises less
                os.pwrite(self._file, line, 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
