"""What is flushed when, what waits for it, and that a flush which fails is the last."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from record.test_journal import Failing

from sweep.core.messages import Ask, Asked, Changes
from sweep.core.trial import CheckpointRef
from sweep.errors import CheckpointError, RecordError
from sweep.record import journal as journal_module
from sweep.record.facts import read_facts
from sweep.record.journal import Journal, flush_log

X = CheckpointRef("abcde_00000/checkpoint_000001")


class Flushes:
    """Counts the flushes of the log, and fails them when told to."""

    def __init__(self) -> None:
        self.number = 0
        self.error: OSError | None = None

    def __call__(self, log: int) -> None:
        self.number += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    made = Flushes()
    monkeypatch.setattr(journal_module, "_flush", made)
    return made


def commit(journal: Journal, number: int = 1) -> None:
    for _ in range(number):
        journal.commit([Asked(Ask.DRAIN)], [[]], Changes(), 0.5)


def test_the_loop_has_what_was_committed_flushed_once_a_second(
    tmp_path: Path, flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []
    journal = Journal(tmp_path / "sweep.db", check=looks.append)
    commit(journal, 3)
    assert 0 < journal.attend() <= 1
    assert flushes.number == 0
    monkeypatch.setattr(journal_module, "_EVERY_S", 0.0)
    journal.attend()
    journal.attend()  # there is nothing new
    journal.flush()
    assert flushes.number == 1
    assert looks[3:] == [True, True]  # whether the record is there is looked at each time
    journal.close()
    assert flushes.number == 1


@pytest.mark.parametrize("durability", ["normal", "full"])
def test_a_checkpoint_is_deleted_after_the_flush_of_what_says_so(
    tmp_path: Path, flushes: Flushes, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[tuple[str, int]] = []
    told: list[str] = []

    def delete(path: str) -> None:
        deleted.append((path, flushes.number))
        raise CheckpointError("busy")  # which is said, and ends nothing

    journal = Journal(tmp_path / "sweep.db", durability=durability, discard=delete, notice=told.append)
    commit(journal)
    journal.discard(X)
    assert deleted == []
    monkeypatch.setattr(journal_module, "_EVERY_S", 0.0)
    journal.attend()
    by_then = 0 if durability == "full" else 1  # there the commit has flushed
    assert deleted == [(X.path, by_then)]
    commit(journal)
    journal.discard(X)
    journal.close()  # it does not wait beyond the end
    assert deleted[1:] == [(X.path, 2 * by_then)]
    assert told == [f"{X.path} is not deleted: busy"] * 2


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_flush_that_fails_ends_the_sweep_and_is_never_tried_again(
    tmp_path: Path, flushes: Flushes, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_EVERY_S", 0.0)
    deleted: list[str] = []
    journal = Journal(tmp_path / "sweep.db", discard=deleted.append)
    commit(journal)
    journal.discard(X)
    flushes.error = OSError(number, os.strerror(number))
    for again in (journal.attend, lambda: commit(journal), journal.flush):
        with pytest.raises(RecordError, match=r"could not be flushed to its disk .* then resume"):
            again()
        flushes.error = None
    journal.close()  # says nothing new
    with pytest.raises(RecordError, match="could not be flushed"):
        journal.flush()
    assert flushes.number == 1
    assert deleted == []  # the record that says so may not be on the disk
    # SQLite may not put into the database what the kernel has perhaps dropped: the log stays as it is.
    assert (tmp_path / "sweep.db-wal").stat().st_size > 0
    assert len(list(read_facts(tmp_path / "sweep.db"))) == 1


class FailedFlush(sqlite3.OperationalError):
    sqlite_errorname = "SQLITE_IOERR_FSYNC"


def test_a_flush_of_sqlite_that_fails_is_never_tried_again_either(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "sweep.db", durability="full")
    commit(journal)
    real = journal._db
    failing = Failing(real, 9, FailedFlush("disk I/O error"))
    journal._db = failing  # type: ignore[assignment]
    with pytest.raises(RecordError, match="could not be flushed"):
        commit(journal)
    assert failing.times == 8
    journal._db = real
    with pytest.raises(RecordError, match="could not be flushed"):
        commit(journal)
    journal.close()
    assert len(list(read_facts(tmp_path / "sweep.db"))) == 1


def test_the_log_is_put_into_the_database_between_commits_and_never_within_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def number_in_the_file() -> int:
        with closing(sqlite3.connect(f"file:{tmp_path / 'sweep.db'}?immutable=1", uri=True)) as db:  # without the log
            return int(db.execute("SELECT count(*) FROM event").fetchone()[0])

    journal = Journal(tmp_path / "sweep.db")
    commit(journal, 1200)  # more than the thousand pages at which SQLite would
    assert number_in_the_file() == 0
    monkeypatch.setattr(journal_module, "_EVERY_S", 0.0)
    journal.attend()
    assert number_in_the_file() == 1200
    journal.close()


def test_what_a_killed_driver_left_is_flushed_and_a_last_flush_that_fails_is_an_error(
    tmp_path: Path, flushes: Flushes
) -> None:
    flush_log(tmp_path / "sweep.db")  # there is none
    assert flushes.number == 0
    journal = Journal(tmp_path / "sweep.db")
    commit(journal)
    flush_log(tmp_path / "sweep.db")
    assert flushes.number == 1
    flushes.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(RecordError, match=r"could not be flushed to its disk \(.*Input/output error\)"):
        journal.close()
