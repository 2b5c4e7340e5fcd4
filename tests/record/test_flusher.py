"""The second step of durability: what is flushed when, what waits for it, and that a flush which fails is the last."""

from __future__ import annotations

import errno
import itertools
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sweep.core.messages import Ask, Asked
from sweep.core.sweep import Changes
from sweep.core.trial import CheckpointRef
from sweep.errors import CheckpointError, RecordError
from sweep.record import flusher as flusher_module
from sweep.record import journal as journal_module
from sweep.record.facts import read_facts
from sweep.record.flusher import DURABILITIES, flush_log, holds_more
from sweep.record.journal import Journal

X, Y = CheckpointRef("abcde_00000/checkpoint_000001"), CheckpointRef("abcde_00000/checkpoint_000002")


class Flushes:
    """Counts the flushes of the log, holds them while `gate` is closed, and fails them when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()
        self.error: OSError | None = None
        monkeypatch.setattr(flusher_module, "_flush", self._flush)

    def _flush(self, log: int) -> None:
        self.number += 1
        self.has_begun.set()
        assert self.gate.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    return Flushes(monkeypatch)


class Made:
    """A journal whose deletions are noted in `deleted`, and what is told to the user in `told`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.deleted: list[str] = []
        self.told: list[str] = []
        self.has_deleted = threading.Event()
        self.is_awake = threading.Event()
        self.journal: Journal

    def open(self, durability: str, *, is_started: bool = True) -> Journal:
        self.journal = Journal(
            self.directory / "sweep.db", durability=durability, discard=self._delete, notice=self.told.append
        )
        if is_started:
            self.journal.start(self.is_awake.set)
        return self.journal

    def _delete(self, path: str) -> None:
        self.deleted.append(path)
        self.has_deleted.set()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    yield Made(tmp_path)
    assert not [thread.name for thread in threading.enumerate() if thread.name in ("sweep-flusher", "sweep-deeds")]


def commit(journal: Journal, number: int = 1) -> None:
    for _ in range(number):
        journal.commit([Asked(Ask.DRAIN)], [[]], Changes(), 0.5)


def test_a_commit_is_flushed_soon_after_without_being_asked_for(made: Made, flushes: Flushes) -> None:
    journal = made.open("group")
    commit(journal, 3)
    assert flushes.has_begun.wait(30)
    journal.flush()
    journal.close()
    assert flushes.number < 5  # together, not one by one
    assert len(list(read_facts(made.directory / "sweep.db"))) == 3


def test_a_commit_does_not_wait_for_a_flush_that_goes_on(made: Made, flushes: Flushes) -> None:
    journal = made.open("group")
    flushes.gate.clear()
    commit(journal)
    assert flushes.has_begun.wait(30)
    commit(journal, 5)
    assert journal.num_commits == 6
    flushes.gate.set()
    journal.close()


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_checkpoint_is_deleted_after_the_flush_of_what_says_so(made: Made, flushes: Flushes, durability: str) -> None:
    journal = made.open(durability)
    if durability != "full":
        flushes.gate.clear()
    commit(journal)
    journal.discard(X)
    if durability != "full":  # there the commit has flushed
        assert flushes.has_begun.wait(30)
        assert made.deleted == []
        flushes.gate.set()
    assert made.has_deleted.wait(30)
    assert made.deleted == [X.path]
    journal.close()


def test_what_is_to_be_deleted_and_what_was_committed_last_does_not_wait_beyond_the_end(
    made: Made, flushes: Flushes
) -> None:
    journal = made.open("fast")
    flushes.gate.clear()
    commit(journal)
    journal.discard(X)
    assert flushes.has_begun.wait(30)
    commit(journal)
    journal.discard(Y)
    flushes.gate.set()
    journal.close()
    assert made.deleted == [X.path, Y.path]
    assert flushes.number == 2


def test_reports_alone_are_not_flushed_when_that_is_wanted_and_whoever_waits_has_them_flushed(
    made: Made, flushes: Flushes
) -> None:
    journal = made.open("fast", is_started=False)
    commit(journal, 3)
    assert flushes.number == 0
    journal.start(made.is_awake.set)
    journal.flush()
    assert flushes.number == 1
    journal.flush()  # there is nothing new
    assert flushes.number == 1
    journal.close()


def test_without_threads_the_same_holds(made: Made, flushes: Flushes) -> None:
    journal = made.open("group", is_started=False)
    commit(journal)
    journal.discard(X)
    assert (flushes.number, made.deleted) == (1, [X.path])
    commit(journal)
    journal.close()
    assert flushes.number == 2


def test_a_record_whose_flusher_found_no_thread_can_be_closed(
    made: Made, flushes: Flushes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    journal = made.open("group", is_started=False)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            journal.start(lambda: None)
    commit(journal)
    journal.close()
    assert flushes.number > 0


def test_a_deletion_that_fails_is_said_and_ends_nothing(tmp_path: Path) -> None:
    told: list[str] = []

    def delete(path: str) -> None:
        raise CheckpointError("busy")

    journal = Journal(tmp_path / "sweep.db", discard=delete, notice=told.append)
    commit(journal)
    journal.discard(X)
    commit(journal)
    journal.close()
    assert told == [f"{X.path} is not deleted: busy"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_flush_that_fails_ends_the_sweep_and_is_never_tried_again(made: Made, flushes: Flushes, number: int) -> None:
    journal = made.open("group")
    journal.flush()
    flushes.error = OSError(number, os.strerror(number))
    before = flushes.number
    commit(journal)
    journal.discard(X)
    assert made.is_awake.wait(30)  # so that the loop hears of it
    flushes.error = None
    with pytest.raises(RecordError, match=r"could not be flushed to its disk .* then resume"):
        commit(journal)
    with pytest.raises(RecordError, match="could not be flushed"):
        journal.flush()
    journal.close()  # says nothing new
    with pytest.raises(RecordError, match="could not be flushed"):
        journal.flush()
    assert flushes.number == before + 1
    assert made.deleted == []  # the record that says so may not be on the disk
    # SQLite may not fold what the kernel has perhaps dropped: the log stays as it is.
    assert (made.directory / "sweep.db-wal").stat().st_size > 0
    assert len(list(read_facts(made.directory / "sweep.db"))) == 1


def test_a_last_flush_that_fails_is_an_error_of_the_run(made: Made, flushes: Flushes) -> None:
    journal = made.open("fast")
    commit(journal)
    flushes.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(RecordError, match=r"could not be flushed to its disk \(.*Input/output error\)"):
        journal.close()


class FailedFlush(sqlite3.OperationalError):
    sqlite_errorname = "SQLITE_IOERR_FSYNC"


class Failing:
    """A connection on which one statement fails as when SQLite's own flush does."""

    def __init__(self, connection: sqlite3.Connection, statement: str) -> None:
        self.connection, self.statement, self.times = connection, statement, 0

    def execute(self, statement: str, *arguments: object) -> object:
        if statement == self.statement:
            self.times += 1
            raise FailedFlush("disk I/O error")
        return self.connection.execute(statement, *arguments)

    def __getattr__(self, name: str) -> object:
        return getattr(self.connection, name)


def test_a_flush_of_sqlite_that_fails_is_never_tried_again_either(made: Made) -> None:
    journal = made.open("full")
    commit(journal)
    real = journal._db
    failing = Failing(real, "COMMIT")
    journal._db = failing  # type: ignore[assignment]
    with pytest.raises(RecordError, match="could not be flushed"):
        commit(journal)
    assert failing.times == 1
    journal._db = real
    with pytest.raises(RecordError, match="could not be flushed"):
        commit(journal)
    journal.close()
    assert len(list(read_facts(made.directory / "sweep.db"))) == 1


# --- the log ---


def log_of(made: Made) -> int:
    return os.open(made.directory / "sweep.db-wal", os.O_RDONLY)


def test_a_log_is_measured_without_what_was_folded_and_without_former_rounds(made: Made) -> None:
    journal = made.open("group", is_started=False)
    log = log_of(made)
    size = 4096 + 24
    commit(journal, 50)
    frames = next(number for number in itertools.count() if not holds_more(log, number * size))
    assert os.fstat(log).st_size == 32 + frames * size
    salt = os.pread(log, 8, 16)
    folded = journal._fold()
    assert folded is not None
    assert folded == (frames, True)
    assert not holds_more(log, 0, salt=salt, frames=frames)
    commit(journal)  # begins the log anew, in the same file
    assert os.fstat(log).st_size == 32 + frames * size
    assert holds_more(log, 0, salt=salt, frames=frames)
    assert not holds_more(log, frames * size // 2, salt=salt, frames=frames)
    os.close(log)
    journal.close()


def test_a_long_log_is_folded_beside_the_commits_and_a_short_one_when_they_pause(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher_module, "_MOST_BYTES", 100_000)
    monkeypatch.setattr(flusher_module, "_IDLE_BYTES", 5_000)
    monkeypatch.setattr(flusher_module, "_LOG_EVERY_S", 0.0)
    monkeypatch.setattr(flusher_module, "_LOOK_S", 0.01)
    folds: list[bool] = []
    has_folded = threading.Condition()
    fold = Journal._fold

    def counted(self: Journal) -> object:
        found = fold(self)
        with has_folded:
            folds.append(threading.current_thread().name == "sweep-flusher")
            has_folded.notify_all()
        return found

    monkeypatch.setattr(Journal, "_fold", counted)
    journal = made.open("group")
    with has_folded:
        for _ in range(60):
            commit(journal)
        assert has_folded.wait_for(lambda: folds, 30)
    so_far = len(folds)
    commit(journal, 3)
    with has_folded:
        assert has_folded.wait_for(lambda: len(folds) > so_far, 30)
    assert all(folds)
    journal.close()
    assert len(list(read_facts(made.directory / "sweep.db"))) == 63


def test_sqlite_folds_nothing_within_a_commit(made: Made) -> None:
    journal = made.open("group", is_started=False)
    commit(journal, 1200)  # more than the thousand pages at which it would
    with closing(sqlite3.connect(f"file:{made.directory / 'sweep.db'}?immutable=1", uri=True)) as db:  # without the log
        assert db.execute("SELECT count(*) FROM event").fetchone() == (0,)
    journal.close()


def test_what_a_killed_driver_left_is_flushed(made: Made, flushes: Flushes) -> None:
    flush_log(made.directory / "sweep.db")  # there is none
    assert flushes.number == 0
    journal = made.open("fast", is_started=False)
    commit(journal)
    flush_log(made.directory / "sweep.db")
    assert flushes.number == 1
    journal.close()


def test_a_commit_that_takes_very_long_is_said_once(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_STALL_S", 0.0)
    monkeypatch.setattr(journal_module, "_LONG_STALL_S", 0.0)
    journal = made.open("group", is_started=False)
    journal.longest_s = -1.0
    commit(journal, 3)
    (said,) = made.told
    assert "to take one write" in said
    assert journal.num_stalls == 3
    journal.close()
