"""The way to a `sweep.db` for whoever reads: nothing is written, and what was changed by anybody else is refused.

Of a database with a write-ahead log SQLite wants to make `-wal` and `-shm`, or to mend them, also for reading only.
What is there decides how it is opened instead:

    -journal                      an older version is making it: in the usual way
    -wal and -shm                 its driver is alive, or was killed: with locks, by a `-shm` that is only read
    neither, or an empty -wal     its driver has ended in order: the file alone, without locks
    -wal without -shm             copied without it: a copy in a temporary directory, where SQLite mends what it likes

A file that is read without locks may be changed meanwhile, by a driver that continues the sweep: see `was_changed`.
Nothing here opens the file past SQLite where a driver may be in this very process: closing it would drop its locks.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from sweep.errors import ExperimentError, NoExperimentError
from sweep.record.mark import check_mark, mark_of
from sweep.record.schema import check_version, last_seq
from sweep.record.seals import check_history, check_schema

_TRIES = 5
_BUSY_MS = 5000

Stamp = tuple[int, int, int, int]


# What damaged data may lead to, in SQLite, JSON, or our own reading of it.
_UNREADABLE = (sqlite3.Error, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)


class Reading(sqlite3.Connection):
    """A connection that only reads."""

    _unlocked: Path | None = None
    _stamp: Stamp | None = None

    def watch(self, database: Path) -> None:
        """Note how a file stands that is read without locks."""
        self._unlocked, self._stamp = database, _stamp(database)

    def was_changed(self) -> bool:
        """Whether somebody wrote what was read without locks: it may have been read half old and half new.

        Where another file has taken its place, the old one was read as it was.
        """
        if self._unlocked is None or self._stamp is None:
            return False
        now = _stamp(self._unlocked)
        is_there = now is not None and now[:2] == self._stamp[:2]
        return is_there and now != self._stamp


def connect_for_reading(database: Path) -> Reading:
    """Return a connection to a `sweep.db` that writes nothing, also while its driver writes: it sees every commit.

    Raises:
        ExperimentError: it may not be read, or the copy that is needed cannot be made.
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
    if Path(f"{database}-journal").exists():
        return _open(database, "mode=ro")
    if index.exists() and log.exists():
        connection = _open(database, "mode=ro&readonly_shm=1")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            return connection
        except sqlite3.DatabaseError as error:
            if not isinstance(error, sqlite3.OperationalError):
                return connection  # it is damaged: whoever asks it will say so
            connection.close()
            # A driver that has only just begun to write has left no mark that a reader could take: one has to be made.
            if error.sqlite_errorname == "SQLITE_READONLY_CANTINIT" and os.access(index, os.W_OK, effective_ids=True):
                return _open(database, "mode=ro")
            raise
    if not log.exists() or not log.stat().st_size:
        connection = _open(database, "mode=ro&immutable=1")
        connection.watch(database)
        return connection
    return _mended(database)


def _open(database: Path, how: str) -> Reading:
    name = f"file:{quote(str(database.absolute()))}?{how}"
    connection: Reading = sqlite3.connect(name, uri=True, isolation_level=None, factory=Reading)
    connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
    return connection


# --- copies --------------------------------------------------------------------------------------------------------


_copies: dict[Path, tuple[tuple[Stamp | None, Stamp | None], str]] = {}  # of each database that was mended, the latest
os.register_at_fork(after_in_child=_copies.clear)  # they are the parent's


@atexit.register
def _delete_copies() -> None:
    for _, directory in _copies.values():
        shutil.rmtree(directory, ignore_errors=True)


def _copy_of(database: Path) -> Path:
    """Return a copy of a database with what is in its log.

    Raises:
        ExperimentError: there is no room for it.
    """
    log = Path(f"{database}-wal")
    stamps, before = _copies.get(database, ((None, None), ""))
    if before and stamps == (_stamp(database), _stamp(log)):
        return Path(before, database.name)
    directory = tempfile.mkdtemp(prefix="sweep-record-")
    try:
        for _ in range(_TRIES):
            stamps = (_stamp(database), _stamp(log))
            for source in (database, log):
                shutil.copyfile(source, f"{directory}/{source.name}")
            if stamps == (_stamp(database), _stamp(log)):
                break
        with closing(sqlite3.connect(Path(directory, database.name), isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")  # folds the log into the file
    except BaseException as error:
        shutil.rmtree(directory, ignore_errors=True)
        if not isinstance(error, (OSError, sqlite3.OperationalError)):
            raise
        raise ExperimentError(
            f"{database} has a write-ahead log and no index of it ({database.name}-shm): to be read it is copied "
            f"to {tempfile.gettempdir()}, which failed: {error}. Name a place with room for it by TMPDIR."
        ) from error
    if before:
        shutil.rmtree(before, ignore_errors=True)
    _copies[database] = (stamps, directory)
    return Path(directory, database.name)


def _mended(database: Path) -> Reading:
    return _open(_copy_of(database), "mode=ro&immutable=1")


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


# --- for readers ------------------------------------------------------------------------------------------------------


def open_for_following(database: Path) -> Reading:
    """Return a connection for whoever reads events as they are committed, each query in a transaction of its own: one
    that stays open would keep the log from being begun anew.

    Nothing is checked, for the driver has only just written it.

    Raises:
        ExperimentError: there is no record that can be read.
    """
    with understood(database):
        connection = connect_for_reading(database)
    check_version(connection, database)
    return connection


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
    mark = mark_of(database)  # before the record is read, which only grows
    with understood(database):
        connection = connect_for_reading(database)
    try:
        with understood(database):
            connection.execute("BEGIN")
            check_version(connection, database)
            check_schema(connection, database)
            check_mark(mark, last_seq(connection), database)
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
