"""Open a `sweep.db` for reading so that nothing is written beside it, wherever and in whatever state it lies.

Of a database with a write-ahead log SQLite wants to make `-wal` and `-shm`, or to mend them, also for who only reads.
What is there decides how it is opened instead:

    -journal                      it is being made: in the usual way
    -wal and -shm                 its driver is alive, or was killed: with locks, by a `-shm` that is only read
    neither, or an empty -wal     its driver has ended in order: the file alone, without locks
    -wal without -shm             copied without it: a copy in a temporary directory, where SQLite mends what it likes

A file that is read without locks may be changed meanwhile, by a driver that continues the sweep: see `was_changed`.
Nothing here opens the file past SQLite where a driver may be in this very process: closing it would drop its locks.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from sweep.errors import ExperimentError

__all__ = ["Reading", "connect_for_reading"]

_TRIES = 5
_BUSY_MS = 5000

Stamp = tuple[int, int, int, int]


class Reading(sqlite3.Connection):
    """A connection that only reads."""

    _unlocked: Path | None = None
    _stamp: Stamp | None = None

    def watch(self, database: Path) -> None:
        """Note how a file stands that is read without locks."""
        self._unlocked, self._stamp = database, _stamp(database)

    def was_changed(self) -> bool:
        """Whether somebody wrote what was read without locks: it may have been read half old and half new."""
        return self._unlocked is not None and _stamp(self._unlocked) != self._stamp


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


class _Copies:
    """Copies of databases that this process has mended, the latest of each; deleted when it ends."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[Stamp | None, Stamp | None], str]] = {}
        self._pid = os.getpid()
        atexit.register(self._delete)

    def of(self, database: Path) -> Path:
        """Return the copy of a database with what is in its log.

        Raises:
            ExperimentError: there is no room for it.
        """
        if self._pid != os.getpid():  # forked: the copies are the parent's
            self._known, self._pid = {}, os.getpid()
        log = Path(f"{database}-wal")
        known = self._known.get(database)
        if known is not None and known[0] == (_stamp(database), _stamp(log)):
            return Path(known[1], database.name)
        directory = tempfile.mkdtemp(prefix="sweep-record-")
        copy = Path(directory, database.name)
        try:
            for _ in range(_TRIES):
                stamps = (_stamp(database), _stamp(log))
                for source in (database, log):
                    shutil.copyfile(source, f"{directory}/{source.name}")
                if stamps == (_stamp(database), _stamp(log)):
                    break
            connection = sqlite3.connect(copy, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode=DELETE")  # folds the log into the file
            finally:
                connection.close()
        except (OSError, sqlite3.OperationalError) as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise ExperimentError(
                f"{database} has a write-ahead log and no index of it ({database.name}-shm): to be read it is copied "
                f"to {tempfile.gettempdir()}, which failed: {error}. Name a place with room for it by TMPDIR."
            ) from error
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        if known is not None:
            shutil.rmtree(known[1], ignore_errors=True)
        self._known[database] = (stamps, directory)
        return copy

    def _delete(self) -> None:
        if self._pid == os.getpid():
            for _, directory in self._known.values():
                shutil.rmtree(directory, ignore_errors=True)


_copies = _Copies()


def _mended(database: Path) -> Reading:
    return _open(_copies.of(database), "mode=ro&immutable=1")


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
