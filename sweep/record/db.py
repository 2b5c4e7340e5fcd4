"""`sweep.db`: its tables, which records this version reads, and the way to one for whoever reads.

Events are the truth: append-only, numbered 1, 2, 3 ... without a gap, one row per fact, with the commands that it
caused. `trial` has the latest state of each trial: what readers want and what a resume loads. JSON texts are those of
`sweep.record.codec`; `crc` is a checksum: see `sweep.record.checksums`. docs/reference/record.md explains the views.

    meta    key -> JSON: name, prefix, created, version, python, trainable {name, kind}, import_path (`file.py:function`
            where it can be found again), metric, mode (metrics, modes: of several objectives), space (for people),
            domains (the space, by `searchers.space.to_json`), searcher, scheduler,
            time_attr (what the scheduler counts by), constraints (metric -> the most that it may be),
            num_samples, num_repeats, num_trials, resources_per_trial, seed, storage_path, resume_command,
            are_log_files_complete, log_to_file, space_keys, variables (flattened config paths that vary; null:
            unknown), command, machine {host, system, cpu}, versions (of imports)
    event   trial_id: null where it concerns no single trial
    trial   config: as JSON; state: what else is known of it
    totals  one row: number and checksum of the last event, and a checksum over all rows of `meta` and `trial`

Whoever reads writes nothing. Of a database with a write-ahead log SQLite wants to make `-wal` and `-shm`, or to mend
them, also for reading only. What is there decides how it is opened instead:

    -wal and -shm                 its driver is alive, or was killed: with locks, by a `-shm` that is only read
    neither, or an empty -wal     its driver has ended in order: the file alone, without locks: see `was_changed`
    -wal without -shm             copied without it: a copy in a temporary directory, where SQLite mends what it likes

Nothing here opens the file past SQLite where a driver may be in this very process: closing it would drop its locks.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sweep.errors import ExperimentError, NoExperimentError
from sweep.record.checksums import check_high_water_mark, check_history, damaged, end_of, high_water_mark
from sweep.record.encoding import decode

APPLICATION_ID = 0x53575031  # "SWP1"
VERSION = 1

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    trial_id TEXT,
    data TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE trial (
    number INTEGER PRIMARY KEY,
    trial_id TEXT NOT NULL,
    status TEXT NOT NULL,
    config TEXT NOT NULL,
    state TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE totals (
    id INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    chain INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    crc INTEGER NOT NULL
);
CREATE VIEW events AS
    SELECT seq, trial_id, json_extract(data, '$.kind') AS kind, json_extract(data, '$.at') AS at,
        json_extract(data, '$.wall') AS wall, json_extract(data, '$.attempt') AS attempt,
        json_extract(data, '$.commands') AS commands, data
    FROM event;
CREATE VIEW result AS
    SELECT seq, trial_id, attempt, at, wall, json_extract(data, '$.checkpoint') AS checkpoint,
        CASE WHEN json_type(data, '$.filled') IS NULL THEN json_extract(data, '$.metrics')
        ELSE json_patch(json_extract(data, '$.metrics'), json_object(
            'timestamp', coalesce(json_extract(data, '$.filled[0]'), CAST(wall AS INTEGER)),
            'time_this_iter_s', json_extract(data, '$.filled[1]'),
            'pid', json_extract(data, '$.filled[2]'),
            'hostname', json_extract(data, '$.filled[3]'),
            'node_ip', json_extract(data, '$.filled[8]'),
            'training_iteration', json_extract(data, '$.filled[4]'),
            'time_total_s', json_extract(data, '$.filled[5]'),
            'trial_id', trial_id,
            'time_since_restore', coalesce(json_extract(data, '$.filled[6]'), json_extract(data, '$.filled[5]')),
            'iterations_since_restore', coalesce(json_extract(data, '$.filled[7]'), json_extract(data, '$.seq')),
            'done', json('false')
        )) END AS metrics
    FROM events WHERE kind = 'Reported' AND json_type(data, '$.metrics') IS NOT NULL;
CREATE VIEW trials AS
    SELECT t.number, t.trial_id, t.status, coalesce(json_extract(t.state, '$.reason'), '') AS reason,
        t.config,
        json_extract(t.state, '$.resources') AS resources,
        coalesce(json_extract(t.state, '$.attempt'), 0) AS attempt,
        coalesce(json_extract(t.state, '$.failures'), 0) AS failures,
        coalesce(json_extract(t.state, '$.count'), 0) AS count,
        json_extract(t.state, '$.checkpoint[0]') AS checkpoint,
        json_extract(t.state, '$.last_result') AS last_result,
        json_extract(t.state, '$.best_result') AS best_result
    FROM trial t;
"""


def last_event(connection: sqlite3.Connection) -> tuple[int, float, float] | None:
    """Return number, `at` and `wall` of the last event; None before the first."""
    row = connection.execute("SELECT seq, data FROM event ORDER BY seq DESC LIMIT 1").fetchone()
    if row is None:
        return None
    data = json.loads(row[1])
    return row[0], data["at"], data["wall"]


def read_meta(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return what is recorded of the experiment as a whole."""
    return {key: decode(value) for key, value in connection.execute("SELECT key, value FROM meta")}


def check_format(connection: sqlite3.Connection, database: Path) -> None:
    """Refuse a file that is no `sweep.db`, is of another version, or whose tables are not as they were made: what they
    hold would be misread.

    Raises:
        ExperimentError: says so.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise ExperimentError(f"{database} is not a sweep.db (application id {application:#x}).")
    if version != VERSION:
        raise ExperimentError(
            f"{database} has format {version}; this version of sweep knows {VERSION}. Install a newer sweep-engine."
        )
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    if not found.issuperset(SCHEMA.strip().removesuffix(";").split(";\n")):
        raise damaged(database, "what it says of its tables and views is not what was written")


# --- connections ------------------------------------------------------------------------------------------------------


_TRIES = 5
_BUSY_MS = 5000

# What damaged data may lead to, in SQLite, JSON, or our own reading of it.
_UNREADABLE = (sqlite3.Error, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)


class Reading(sqlite3.Connection):
    """A connection that only reads.

    Attributes:
        copy: that it reads, and that goes when it is closed.
        unlocked: the file that it reads without locks, and how that stood.
    """

    copy: tempfile.TemporaryDirectory[str] | None = None
    unlocked: tuple[Path, Sequence[int]] | None = None

    def close(self) -> None:
        """Close it, and delete the copy that was made for it."""
        super().close()
        if self.copy is not None:
            self.copy.cleanup()

    def was_changed(self) -> bool:
        """Whether somebody wrote what was read without locks: it may have been read half old and half new.

        Where another file has taken its place, the old one was read as it was.
        """
        if self.unlocked is None:
            return False
        path, then = self.unlocked
        now = _stamp(path)
        return now != then and now[:2] == then[:2]


def connect_for_reading(database: Path) -> Reading:
    """Return a connection to a `sweep.db` that writes nothing, also while its driver writes: it sees every commit.

    Raises:
        ExperimentError: it may not be read, or the copy that is needed cannot be made.
        sqlite3.DatabaseError: it is damaged.
    """
    if not os.access(database, os.R_OK, effective_ids=True):
        raise ExperimentError(
            f"{database} may not be read by this user. Ask its owner for `chmod -R go+rX {database.parent}`, or a copy."
        )
    problem: Exception | None = None
    for _ in range(_TRIES):
        try:
            return _connect(database)
        except (sqlite3.OperationalError, FileNotFoundError) as error:
            problem = error  # its driver has just begun or ended: what is beside it is looked at again
    if isinstance(problem, sqlite3.OperationalError) and Path(f"{database}-wal").exists():
        return _mended(database)
    raise ExperimentError(f"{database} cannot be read: {problem}.") from problem


def _connect(database: Path) -> Reading:
    log, index = Path(f"{database}-wal"), Path(f"{database}-shm")
    if index.exists() and log.exists():
        connection = _open(database, "mode=ro&readonly_shm=1")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            return connection
        except sqlite3.DatabaseError as error:
            connection.close()
            # A driver that has only just begun to write has left no mark that a reader could take: one has to be made.
            if error.sqlite_errorname == "SQLITE_READONLY_CANTINIT" and os.access(index, os.W_OK, effective_ids=True):
                return _open(database, "mode=ro")
            raise
    if log.exists() and log.stat().st_size:
        return _mended(database)
    connection = _open(database, "mode=ro&immutable=1")
    connection.unlocked = database, _stamp(database)
    return connection


def _open(database: Path, how: str) -> Reading:
    name = f"file:{quote(str(database.absolute()))}?{how}"
    connection: Reading = sqlite3.connect(name, uri=True, isolation_level=None, factory=Reading)
    connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
    return connection


def _mended(database: Path) -> Reading:
    """Return a connection to a copy of a database and its log, in which SQLite may mend what it likes.

    Raises:
        ExperimentError: there is no room for it.
    """
    directory = tempfile.TemporaryDirectory(prefix="sweep-record-")
    copy = Path(directory.name, database.name)
    try:
        for end in ("", "-wal"):
            shutil.copyfile(f"{database}{end}", f"{copy}{end}")
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")  # puts the log into the file
        reading = _open(copy, "mode=ro&immutable=1")
    except BaseException as error:
        directory.cleanup()
        if not isinstance(error, (OSError, sqlite3.OperationalError)):
            raise
        raise ExperimentError(
            f"{database} has a write-ahead log and no index of it ({database.name}-shm): to be read it is copied "
            f"to {tempfile.gettempdir()}, which failed: {error}. Name a place with room for it by TMPDIR."
        ) from error
    reading.copy = directory
    return reading


def _stamp(path: Path) -> Sequence[int]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def open_for_reading(database: Path, *, with_events: bool = True) -> Reading:
    """Return a connection to a `sweep.db` that writes nothing, not even beside it; also while its driver writes.

    It is in a transaction: all that is read is of one state.

    Args:
        with_events: events will be read, so they are checked; each once in a process.

    Raises:
        ExperimentError: there is none, it is damaged, or a newer version of this package wrote it.
    """
    if not database.is_file():
        raise NoExperimentError(
            f"there is no experiment at {database.parent}: no {database.name} in it. See `sweep ls`."
        )
    mark = high_water_mark(database)  # before the record is read, which only grows
    with understood(database):
        connection = connect_for_reading(database)
        try:
            connection.execute("BEGIN")
            check_format(connection, database)
            check_high_water_mark(mark, end_of(connection)[0], database)
            if with_events:
                check_history(connection, database)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def understood(database: Path) -> Iterator[None]:
    """Turn what goes wrong when a damaged record is read into an `ExperimentError`."""
    try:
        yield
    except _UNREADABLE as error:
        said = "a text in it is no JSON" if isinstance(error, json.JSONDecodeError) else str(error) or repr(error)
        raise ExperimentError(
            f"{database} cannot be read: {said} ({type(error).__name__}). Restore it from a copy; nothing was changed."
        ) from error
