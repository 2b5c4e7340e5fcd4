"""The writer of `sweep.db`: events, what they caused and the trials of a batch, in one transaction."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core.messages import Changes, Command, Event, Reported
from sweep.core.trial import CheckpointRef, Trial
from sweep.errors import CheckpointError, ExperimentError, RecordError
from sweep.record.checksums import MarkWriter, Totals, check_high_water_mark, crc_of, high_water_mark, linked, total
from sweep.record.codec import command_rows, encode_event, pack
from sweep.record.db import APPLICATION_ID, SCHEMA, VERSION, check_format, connect_for_reading
from sweep.record.encoding import encode
from sweep.record.files import sync, write_atomically

_RETRY_S = 0.5  # between two tries of a write that a full disk refused
_DISK_GRACE_S = 600.0
_SAY_S = 60.0  # how often it is said again that the disk is full
_EVERY_S = 1.0  # how often the loop has what was committed flushed
_MANY = 1000  # commits after which the log is put into the database
_FAILED_FLUSHES = ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC")

_flush = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync

Row = tuple[Any, ...]


def row_of(trial: Trial, name: str, config: str = "") -> Row:
    """Return the row of a trial; its config may be given as text."""
    state = pack(trial) | ({"name": name} if name else {})
    row = trial.number, trial.id, trial.status.value, config or encode(dict(trial.config)), encode(state)
    return *row, crc_of(row)


def flush_log(database: Path) -> None:
    """Flush what the driver before committed and perhaps did not flush; nothing where it has left no log.

    The log has no locks, so it may be opened here beside SQLite; `sweep.db` and `sweep.db-shm` have: closing any
    descriptor of theirs would drop those that SQLite holds in this process.

    Raises:
        OSError: the disk did not take it.
    """
    with contextlib.suppress(FileNotFoundError), open(f"{database}-wal", "rb", buffering=0) as log:
        _flush(log.fileno())


def create(database: Path) -> None:
    """Make an empty record, which is there for others, and after a kill, only when it is whole.

    Raises:
        OSError: it cannot be written.
    """
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.executescript(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}; {SCHEMA}")
        Totals().write(made)
        whole = bytearray(made.serialize())
    whole[18:20] = b"\x02\x02"  # by SQLite's file format: it has a write-ahead log, which needs no rewriting to begin
    for end in ("-wal", "-shm"):  # of a record that somebody deleted: SQLite would take them for this one's
        database.with_name(database.name + end).unlink(missing_ok=True)
    write_atomically(database, bytes(whole), is_durable=True)


class Journal:
    """The only writer of one experiment's record.

    A `commit` is one transaction; what survives what is in docs/explanation/guarantees.md. A flush that fails is never
    tried again: the kernel may have dropped what it could not write, and would say that all is well.

    Args:
        database: path of `sweep.db`; created with its tables when it does not exist.
        durability: "normal" or "full".
        discard: deletes a checkpoint, given its path relative to the experiment.
        notice: called with one line when the disk does not take what is written.
        is_interrupted: whether the user wants to wait for the disk no longer.
        check: raises when the record is not where it was any more; nothing is written then. Called with True to look
            anew, with False when what was seen a moment ago will do: for reports alone.
        name_of: returns the name that the user gives to a trial, or an empty text; recorded with the trial.
        began: when driving began, in UTC epoch seconds, of what happened in former times; None: it happens now.

    Attributes:
        problem: what a flush that failed means for the user; empty as long as none did.
    """

    def __init__(
        self,
        database: Path,
        *,
        durability: str = "normal",
        discard: Callable[[str], None] = lambda path: None,
        notice: Callable[[str], None] = lambda text: None,
        is_interrupted: Callable[[], bool] = lambda: False,
        check: Callable[[bool], None] = lambda anew: None,
        name_of: Callable[[Trial], str] | None = None,
        began: float | None = None,
    ) -> None:
        self.database = database
        self.problem = ""
        self._discard = discard
        self._notice = notice
        self._is_interrupted = is_interrupted
        self._check = check
        self._name_of = name_of or (lambda trial: "")
        self._began = began
        self._rows: dict[str, tuple[int, str]] = {}  # by trial: the checksum of its row, and its name
        self._configs: dict[str, Mapping[str, Any]] = {}  # as `command_rows` keeps them
        self._texts: dict[str, tuple[Mapping[str, Any], str]] = {}  # of trials that run: config, and that as JSON
        mark = high_water_mark(database)
        try:
            if not database.exists():
                check_high_water_mark(mark, 0, database)
                create(database)
            # used by one thread at a time: the one that commits, and the one that closes
            self._db = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA busy_timeout=5000")
            check_format(self._db, database)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={durability.upper()}")
            self._db.execute("PRAGMA wal_autocheckpoint=0")  # errors of its flushes would not be heard
            self._db.execute("PRAGMA trusted_schema=OFF")
            self._totals = Totals.of(self._db)
            for trial_id, state, crc in self._db.execute("SELECT trial_id, state, crc FROM trial"):
                self._rows[trial_id] = crc, json.loads(state).get("name", "")
            check_high_water_mark(mark, self.seq, database)
            self._mark = MarkWriter(database)
            self._is_flushed_at_once = durability == "full"
            sync(database.parent)  # the names of the record and of its log
            self._log = os.open(f"{database}-wal", os.O_RDONLY | os.O_CLOEXEC)
        except (sqlite3.Error, OSError) as error:
            raise ExperimentError(
                f"{database} cannot be written: {error}. Check the directory and its disk."
            ) from error
        self._flushing = threading.Lock()
        self._num_committed, self._num_flushed = 1, 0  # transactions: all before this run, and those of it
        self._num_checkpointed = 0  # transactions that are in the database
        self._attended_at = time.monotonic()
        self._doomed: list[str] = []  # checkpoints that are deleted after the next flush

    @property
    def seq(self) -> int:
        """Number of the last event that is committed."""
        return self._totals.last

    def set_meta(self, values: Mapping[str, Any]) -> None:
        """Record facts about the experiment as such, replacing those of the same name; not waiting for the disk.

        Raises:
            RecordError: the disk does not take them now.
        """
        rows = [(key, encode(value)) for key, value in values.items()]
        try:
            with self._transaction() as db:
                before = [crc for (crc,) in db.execute("SELECT crc FROM meta")]
                db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", [(*row, crc_of(row)) for row in rows])
                after = [crc for (crc,) in db.execute("SELECT crc FROM meta")]
                totals = self._totals._replace(checksum=total(after, before, self._totals.checksum))
                totals.write(db)
        except sqlite3.Error as error:
            raise self._unwritten(error) from error
        self._totals = totals

    def commit(
        self, events: Sequence[Event], commands: Sequence[Sequence[Command]], changes: Changes, now: float
    ) -> None:
        """Write a batch at `now`, in seconds of driving; returns when it survives a kill, or as `durability` says.

        Raises:
            RecordError: the disk did not take it for ten minutes, or until the user interrupted the wait; or a flush
                failed; or the record is gone.
        """
        seq, chain, checksum = self._totals
        wall, rows = round(time.time() if self._began is None else self._began + now, 6), []
        for event, caused in zip(events, commands, strict=True):
            seq += 1
            trial_id = getattr(event, "trial_id", None)
            data = encode_event(event, now, wall, command_rows(event, caused, self._configs), changes.results.get(seq))
            chain = linked(seq, trial_id, data, chain)
            rows.append((seq, trial_id, data, chain))
        known = {name: self._rows.get(name) or (0, self._name_of(trial)) for name, trial in changes.trials.items()}
        trials = [self._row(trial, known[name][1]) for name, trial in changes.trials.items()]
        totals = Totals(seq, chain, total((row[-1] for row in trials), (crc for crc, _ in known.values()), checksum))
        self._check(any(type(event) is not Reported for event in events))
        self._write(rows, trials, totals)
        self._totals = totals  # only then
        self._rows |= {row[1]: (row[-1], known[row[1]][1]) for row in trials}
        self._mark.write(seq, seq if self._is_flushed_at_once else None)

    def _row(self, trial: Trial, name: str) -> Row:
        config, text = self._texts.pop(trial.id, (None, ""))
        row = row_of(trial, name, text if config is trial.config else "")
        if not trial.is_ended:
            self._texts[trial.id] = trial.config, row[3]
        return row

    def _write(self, events: list[Row], trials: list[Row], totals: Totals) -> None:
        """Commit these rows, waiting for the disk."""
        give_up = say_at = 0.0
        while True:
            self._check_sound()
            try:
                with self._transaction() as db:
                    db.executemany("INSERT INTO event (seq, trial_id, data, crc) VALUES (?, ?, ?, ?)", events)
                    db.executemany("INSERT OR REPLACE INTO trial VALUES (?, ?, ?, ?, ?, ?)", trials)
                    totals.write(db)
                break
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                give_up = give_up or now + _DISK_GRACE_S
                if now >= say_at:
                    say_at = now + _SAY_S
                    self._notice(
                        f"{self.database} cannot be written ({error}): the sweep waits, and trials with it, for "
                        f"{(give_up - now) / 60:.0f} minutes at most. Free some space and it goes on; Ctrl-C ends it, "
                        "and nothing recorded is lost."
                    )
                self._check(True)
                time.sleep(_RETRY_S)
                if (is_interrupted := self._is_interrupted()) or time.monotonic() >= give_up:
                    until = "the sweep was interrupted" if is_interrupted else "ten minutes were over"
                    raise self._unwritten(f"{error}, until {until}") from error
                self._checkpoint_log()  # a log that is begun anew needs no more room
        if give_up:
            self._notice(f"{self.database} can be written again: the sweep goes on.")

    def _unwritten(self, why: object) -> RecordError:
        return RecordError(
            f"{self.database} could not be written ({why}). Everything before is intact; free some space and resume."
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what is written within, or nothing of it.

        Raises:
            RecordError: a flush failed, now or before.
            sqlite3.Error: it was not taken.
        """
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._check_sound(error)
            raise
        self._num_committed += 1
        if self._is_flushed_at_once:
            self._num_flushed = self._num_committed

    # --- flushing ----------------------------------------------------------------------------------------------------

    def _check_sound(self, error: Exception | None = None) -> None:
        """Raise RecordError if a flush has failed, by this error or before."""
        if isinstance(error, OSError) or getattr(error, "sqlite_errorname", "") in _FAILED_FLUSHES:
            self.problem = self.problem or (
                f"{self.database} could not be flushed to its disk ({error}). The sweep was stopped and its trials "
                "were ended: what was reported in the last moments may be lost, also where it can still be read. Look "
                "at the disk (dmesg), then resume: what is missing is run again."
            )
        if self.problem:
            raise RecordError(self.problem) from error

    def attend(self) -> float:
        """Do what is due once a second; return in how many seconds that is again.

        Raises:
            RecordError: a flush failed, or the record is gone.
        """
        left_s = self._attended_at + _EVERY_S - time.monotonic()
        if left_s > 0:
            return left_s
        self._check(True)
        self.flush()
        if self._num_committed - self._num_checkpointed > _MANY:
            self._checkpoint_log()
        self._delete_doomed()
        self._attended_at = time.monotonic()
        return _EVERY_S

    def flush(self) -> None:
        """Return when everything that is committed now survives a power cut; from any thread, also after `close`.

        Raises:
            RecordError: a flush failed.
        """
        with self._flushing:
            self._check_sound()
            target, seq = self._num_committed, self.seq
            if self._num_flushed >= target:
                return
            try:
                _flush(self._log)
            except OSError as error:
                self._check_sound(error)
            self._num_flushed = target
            self._mark.write(seq, seq)

    def discard(self, checkpoint: CheckpointRef) -> None:
        """Delete a checkpoint that nothing refers to: when a power cut cannot bring back a record that does."""
        self._doomed.append(checkpoint.path)

    def _delete_doomed(self) -> None:
        doomed, self._doomed = self._doomed, []
        for path in doomed:
            try:
                self._discard(path)
            except (OSError, CheckpointError) as error:  # what is left of it is found when the sweep is resumed
                self._notice(f"{path} is not deleted: {error}")

    def _checkpoint_log(self) -> None:
        """Copy what is in the log into the database, as far as readers and the room on the disk allow.

        Raises:
            RecordError: a flush failed.
        """
        try:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._num_checkpointed = self._num_committed
        except sqlite3.OperationalError as error:
            self._check_sound(error)

    def close(self) -> None:
        """Flush, do what waited for that, put the write-ahead log into the one file, and close.

        Raises:
            RecordError: a flush failed only now.
        """
        had_failed = bool(self.problem)
        with contextlib.suppress(RecordError):
            self.flush()
            self._delete_doomed()
        with contextlib.ExitStack() as others:
            with contextlib.suppress(sqlite3.Error, ExperimentError):  # no room: the log stays beside it
                if self.problem:  # closing the last connection would checkpoint the log, of which pages may be lost
                    other = others.enter_context(contextlib.closing(connect_for_reading(self.database)))
                    other.execute("SELECT 1 FROM meta").fetchone()
                else:
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.close()
        os.close(self._log)
        self._mark.close()
        if not had_failed:
            self._check_sound()
