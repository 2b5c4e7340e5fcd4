"""The writer of `sweep.db`: events, commands, trials and results of a batch in one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sweep.core.messages import Changes, Command, Event, Reported
from sweep.core.trial import CheckpointRef, Trial
from sweep.errors import CheckpointError, ExperimentError, RecordError
from sweep.record.batches import SET_TALLY, Batch, Batches, Tally
from sweep.record.encoding import decode, encode
from sweep.record.files import write_atomically
from sweep.record.flusher import DURABILITIES, Flusher, Folded
from sweep.record.manifest import sync_directory
from sweep.record.mark import MarkFile, check_mark, mark_of
from sweep.record.opening import connect_for_reading
from sweep.record.schema import APPLICATION_ID, SCHEMA, UPGRADES, VERSION, check_version
from sweep.record.seals import seal_all, seal_of, total

_RETRY_S = 1.0
_DISK_GRACE_S = 600.0
_SAY_S = 60.0  # how often it is said again that the disk is full
_LOOK_S = 0.1  # how soon a wait for the disk ends after Ctrl-C
_STALL_S = 0.1  # a commit that takes longer is counted
_LONG_STALL_S = 5.0  # and one that takes so long is said
_FAILED_FLUSHES = ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC")

_PROGRESS_S = 1.0  # how often what running trials report is added to their rows


def create(database: Path) -> None:
    """Make an empty record, which is there for others, and after a kill, only when it is whole.

    Raises:
        OSError: it cannot be written.
    """
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        tally = ", ".join(map(str, Tally().row()))
        made.executescript(
            f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION};"
            f"BEGIN; {SCHEMA} INSERT INTO tally VALUES ({tally}); COMMIT;"
        )
        whole = bytearray(made.serialize())
    whole[18:20] = b"\x02\x02"  # by SQLite's file format: it has a write-ahead log, which needs no rewriting to begin
    for end in ("-wal", "-shm"):  # of a record that somebody deleted: SQLite would take them for this one's
        database.with_name(database.name + end).unlink(missing_ok=True)
    write_atomically(database, bytes(whole), is_durable=True)


class Journal:
    """The only writer of one experiment's record.

    Every `commit` is one transaction that survives a kill of every process when it returns. What a power cut cannot
    take back either was flushed: by a thread soon after (`durability="group"`), by the commit itself ("full"), or when
    somebody waits for it ("fast", for benchmarks). `flush` waits for it, and a checkpoint is deleted after it. When the
    disk is full the driver waits, everything already committed is intact, and nothing is acted on until the write
    succeeds.

    SQLite would fold its log into the database within a commit, and flush both for that, every few hundred commits: the
    flusher does it instead, on this same connection, when the driver is idle or the log has grown long.

    Args:
        database: path of `sweep.db`; created with its tables when it does not exist.
        durability: "group", "full" or "fast".
        discard: deletes a checkpoint, given its path relative to the experiment; on another thread.
        notice: called with one line when the disk does not take what is written.
        is_interrupted: whether the user wants to wait for the disk no longer.
        check: raises when the record is not where it was any more; nothing is written then. Called with True to look
            anew, with False when what was seen a moment ago will do: for reports alone.
        name_of: returns the name that the user gives to a trial, or an empty text; recorded in the table `label`.

    Attributes:
        num_stalls: commits that took longer than 0.1 s. longest_s: the longest of all.
    """

    def __init__(
        self,
        database: Path,
        *,
        durability: str = "group",
        discard: Callable[[str], None] | None = None,
        notice: Callable[[str], None] | None = None,
        is_interrupted: Callable[[], bool] = lambda: False,
        check: Callable[[bool], None] = lambda anew: None,
        name_of: Callable[[Trial], str] | None = None,
    ) -> None:
        self.database = database
        self.num_commits = 0
        self.commit_s = 0.0  # time spent in commits so far
        self.num_stalls = 0
        self.longest_s = 0.0
        self._discard = discard
        self._notice = notice or (lambda text: None)
        self._is_interrupted = is_interrupted
        self._check = check
        mark = mark_of(database)
        is_new = not database.exists()
        if is_new:
            check_mark(mark, 0, database)
        try:
            if is_new:
                create(database)
            # used by one thread at a time: the one that commits, the flusher, the one that closes
            self._db = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA busy_timeout=5000")
            self._upgrade(check_version(self._db, database))
            self._db.execute("PRAGMA journal_mode=WAL")
            # NORMAL flushes the log when it is folded, and its header when it begins anew
            self._db.execute(f"PRAGMA synchronous={'FULL' if DURABILITIES[durability] is None else 'NORMAL'}")
            self._db.execute("PRAGMA wal_autocheckpoint=0")
            self._db.execute("PRAGMA trusted_schema=OFF")
            self._batches = Batches(self._db, name_of)
            check_mark(mark, self.seq, database)
            self._mark = MarkFile(database)
            self._is_flushed_at_once = DURABILITIES[durability] is None
            sync_directory(str(database.parent))  # the names of the record and of its log
            self._flusher = Flusher(database, durability, fold=self._fold, seq=lambda: self.seq, flushed=self._flushed)
        except (sqlite3.Error, OSError) as error:
            raise ExperimentError(
                f"{database} cannot be written: {error}. Check the directory and its disk."
            ) from error
        self._lock = threading.Lock()  # of the connection
        self._progress_at = 0.0  # on the monotonic clock: the rows of all trials were up to date

    def _upgrade(self, version: int) -> None:
        """Bring a file of an older version up to this one, in one transaction."""
        if version == VERSION:
            return
        steps = " ".join(UPGRADES[n] for n in range(version, VERSION))
        self._db.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version={VERSION};")
        seal_all(self._db)
        self._db.execute("COMMIT")

    @property
    def seq(self) -> int:
        """Number of the last event that is committed."""
        return self._batches.seq

    def meta(self) -> dict[str, Any]:
        """Return everything that is recorded about the experiment as such."""
        return {key: decode(value) for key, value in self._db.execute("SELECT key, value FROM meta")}

    def set_meta(self, values: Mapping[str, Any]) -> None:
        """Record facts about the experiment as such, replacing those of the same name; not waiting for the disk.

        Raises:
            RecordError: the disk does not take them now.
        """
        rows = [(key, encode(value)) for key, value in values.items()]
        try:
            with self._transaction() as db:
                before = [seal for (seal,) in db.execute("SELECT seal FROM meta")]
                db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", [(*row, seal_of(row)) for row in rows])
                seals = (seal for (seal,) in db.execute("SELECT seal FROM meta"))
                tally = self._batches.tally
                tally = tally._replace(checksum=total(seals, before, tally.checksum))
                db.execute(SET_TALLY, tally.row())
            self._batches.tally = tally
        except sqlite3.Error as error:
            raise RecordError(
                f"{self.database} cannot be written: {error}. Everything before is intact; free some space and resume."
            ) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what is written within, or nothing of it.

        Raises:
            RecordError: a flush failed, now or before.
            sqlite3.Error: it was not taken.
        """
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if getattr(error, "sqlite_errorname", "") in _FAILED_FLUSHES:
                    self._flusher.fail(error)
                    self._flusher.check()
                raise
            self._flusher.committed()

    def commit(
        self, events: Sequence[Event], commands: Sequence[Sequence[Command]], changes: Changes, now: float
    ) -> None:
        """Write a batch; returns when it survives a kill, and with `durability="full"` a power cut.

        Raises:
            RecordError: the disk did not take it for ten minutes, or until the user interrupted the wait; or a flush
                failed; or the record is gone.
        """
        began = time.monotonic()
        is_due = began - self._progress_at > _PROGRESS_S
        batch = self._batches.make(events, commands, changes, now, time.time(), with_progress=is_due)
        self._check(any(type(event) is not Reported for event in events))
        self._write(batch)
        if is_due:
            self._progress_at = began
        self.num_commits += 1
        self._took(time.monotonic() - began)

    def _took(self, seconds: float) -> None:
        self.commit_s += seconds
        if seconds > _STALL_S:
            self.num_stalls += 1
        if seconds > self.longest_s:
            if seconds > _LONG_STALL_S > self.longest_s:
                self._notice(
                    f"{self.database}: its disk took {seconds:.1f} s to take one write, and all trials that had "
                    "reported waited for it. Pass storage_path=, or set SWEEP_STORAGE, to a directory on a faster disk."
                )
            self.longest_s = seconds

    def _write(self, batch: Batch) -> None:
        began: float | None = None  # of a wait for the disk
        said_at = 0.0
        while True:
            self._flusher.check()
            try:
                self._write_out(batch)
                break
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                began = now if began is None else began
                left_s = began + _DISK_GRACE_S - now
                if left_s < 0:
                    raise RecordError(
                        f"{self.database} could not be written for {_DISK_GRACE_S / 60:.0f} minutes: {error}. "
                        "Everything before is intact; free some space and resume."
                    ) from error
                if now >= said_at:
                    said_at = now + _SAY_S
                    self._notice(
                        f"{self.database} cannot be written ({error}): the sweep waits, and trials with it, for "
                        f"{left_s / 60:.0f} minutes at most. Free some space and it goes on; Ctrl-C ends it, and "
                        "nothing recorded is lost."
                    )
                self._await_retry(error)
                self._fold()  # a log that is begun anew needs no more room
        self._mark.write(batch.seq, batch.seq if self._is_flushed_at_once else None)
        if began is not None:
            self._notice(f"{self.database} can be written again: the sweep goes on.")

    def _write_out(self, batch: Batch) -> None:
        """Commit a batch, and only then remember it."""
        with self._transaction() as db:
            batch.write(db, self._batches.tally)
        self._batches.written(batch)

    def _await_retry(self, error: sqlite3.OperationalError) -> None:
        """Wait a little for the disk; an interrupt ends it."""
        until = time.monotonic() + _RETRY_S
        while True:
            if self._is_interrupted():
                raise RecordError(
                    f"{self.database} could not be written ({error}) until the sweep was interrupted. Everything "
                    "before is intact; free some space and resume."
                ) from error
            self._check(True)
            left_s = until - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(_LOOK_S, left_s))

    def _flushed(self, seq: int) -> None:
        """Take note that a power cut cannot take back what is committed up to this event; on any thread."""
        self._mark.write(seq, seq)

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to flush what is committed; before that only `flush` and `close` do.

        Args:
            wake: called on another thread when a flush has failed: the next commit says so.

        Raises:
            RuntimeError: no thread is free.
        """
        self._flusher.start(wake)

    @property
    def problem(self) -> str:
        """What a flush that failed means for the user; empty as long as none did."""
        return self._flusher.problem

    def flush(self) -> None:
        """Return when everything that is committed now survives a power cut; from any thread, also after `close`.

        Raises:
            RecordError: a flush failed.
        """
        self._flusher.wait()

    def discard(self, checkpoint: CheckpointRef) -> None:
        """Delete a checkpoint that nothing refers to: when a power cut cannot bring back a record that does."""
        if self._discard is not None:
            self._flusher.do_when_flushed(partial(self._delete, self._discard, checkpoint.path))

    def _delete(self, discard: Callable[[str], None], path: str) -> None:
        try:
            discard(path)
        except (OSError, CheckpointError) as error:  # what is left of it is found when the sweep is resumed
            self._notice(f"{path} is not deleted: {error}")

    def _fold(self) -> Folded | None:
        """Copy what is in the log into the database, as far as readers allow; None: the disk has no room.

        Raises:
            RecordError: a flush failed.
        """
        with self._lock:
            try:
                _, frames, copied = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorname", "") in _FAILED_FLUSHES:
                    self._flusher.fail(error)
                    self._flusher.check()
                return None
        return Folded(frames, frames == copied)

    def close(self) -> None:
        """Flush, do what waited for that, fold the write-ahead log into the one file, and close.

        Raises:
            RecordError: a flush failed only now.
        """
        had_failed = bool(self.problem)
        if not had_failed and (rest := self._batches.catch_up()) is not None:
            with contextlib.suppress(sqlite3.Error, RecordError):  # whoever reads adds it
                self._write_out(rest)
        self._flusher.close()
        keep: sqlite3.Connection | None = None
        try:
            if self.problem:  # SQLite would fold the log when the last connection is closed, though pages may be lost
                with contextlib.suppress(sqlite3.Error, ExperimentError):
                    keep = connect_for_reading(self.database)
                    keep.execute("SELECT 1 FROM meta").fetchone()
            else:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            self._notice(f"{self.database}: its write-ahead log stays beside it ({error}); nothing is lost.")
        self._db.close()
        if keep is not None:
            keep.close()
        self._flusher.close_log()
        self._mark.close()
        if not had_failed:
            self._flusher.check()
