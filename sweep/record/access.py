"""The way to a `sweep.db` for whoever reads: nothing is written, and what was changed by anybody else is refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweep.errors import ExperimentError, NoExperimentError
from sweep.record.mark import check_mark, mark_of
from sweep.record.opening import Reading, connect_for_reading
from sweep.record.schema import SEALED, check_version, last_seq
from sweep.record.seals import check_history, check_schema
from sweep.record.tail import add_reports

# What damaged data may lead to, in SQLite, JSON, or our own reading of it.
_UNREADABLE = (sqlite3.Error, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)


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
            if check_version(connection, database) >= SEALED:
                check_schema(connection, database)
                check_mark(mark, last_seq(connection), database)
                if with_events:
                    check_history(connection, database)
                add_reports(connection)
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
