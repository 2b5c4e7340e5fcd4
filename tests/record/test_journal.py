"""The writer of the record: what a full disk does, and what one transaction holds."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from sweep.core.messages import Ask, Asked, Changes, Continue, Hook, Notify, Reported
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial, evolve
from sweep.errors import ExperimentError, NoExperimentError, RecordError
from sweep.record import journal as journal_module
from sweep.record.facts import read_facts
from sweep.record.journal import Journal, create
from sweep.record.reader import ExperimentReader
from sweep.record.resume import load

FULL = sqlite3.OperationalError("database or disk is full")


class Failing:
    """A connection whose COMMIT fails a number of times, as on a full disk."""

    def __init__(self, connection, times, error=FULL):
        self.connection, self.times, self.error = connection, times, error

    def execute(self, statement, *arguments):
        if statement == "COMMIT" and self.times:
            self.times -= 1
            raise self.error
        return self.connection.execute(statement, *arguments)

    def __getattr__(self, name):
        return getattr(self.connection, name)


@pytest.fixture
def told():
    return []


@pytest.fixture
def journal(tmp_path, told):
    made = Journal(tmp_path / "sweep.db", notice=told.append)
    yield made
    made.close()


def report(number, loss):
    metrics = {"loss": loss, "training_iteration": 1}
    return Reported(f"abcde_{number:05d}", 1, 1, metrics), metrics


MAKE = """
import sys
from pathlib import Path
from sweep.record.journal import Journal, create
for i in range(60):
    place = Path(sys.argv[1], str(i))
    place.mkdir()
    Journal(place / "sweep.db").close()
"""


def test_who_looks_while_a_record_is_made_finds_none_or_a_whole_one(tmp_path):
    with subprocess.Popen([sys.executable, "-c", MAKE, str(tmp_path)]) as process:
        for i in range(60):
            is_last = False
            while not is_last:
                is_last = (tmp_path / str(i + 1)).exists() or process.poll() is not None  # this one is over
                with contextlib.suppress(NoExperimentError):
                    assert list(ExperimentReader(tmp_path / str(i)).trials()) == []
    assert process.returncode == 0
    assert list(ExperimentReader(tmp_path / "59").trials()) == []


def test_a_driver_that_is_killed_when_it_has_made_its_record_can_be_followed_by_another(tmp_path):
    create(tmp_path / "sweep.db")
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.db"]
    assert list(ExperimentReader(tmp_path).trials()) == []
    with closing(Journal(tmp_path / "sweep.db")) as journal:
        journal.set_meta({"name": "b"})
    assert ExperimentReader(tmp_path).name == "b"


def test_a_record_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(ExperimentError, match=r"sweep\.db cannot be written: .*No space left on device"):
        Journal(tmp_path / "sweep.db")
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_of_a_deleted_record_is_not_taken_for_the_log_of_a_new_one(tmp_path):
    old = tmp_path / "old"
    for place in (old, tmp_path / "new"):
        place.mkdir()
    journal = Journal(old / "sweep.db")
    journal.set_meta({"name": "old"})
    for name in ("sweep.db-wal", "sweep.db-shm"):
        shutil.copy(old / name, tmp_path / "new" / name)
    journal.close()
    Journal(tmp_path / "new" / "sweep.db").close()
    assert dict(ExperimentReader(tmp_path / "new").meta) == {}


def test_a_full_disk_is_waited_for_and_nothing_is_lost_or_written_twice(tmp_path, journal, told, monkeypatch):
    monkeypatch.setattr(journal_module, "_RETRY_S", 0.0)
    journal.commit([Asked(Ask.DRAIN)], [[]], Changes(), 0.5)
    real = journal._db
    journal._db = Failing(real, times=3)
    journal.commit([Asked(Ask.INTERRUPT)], [[]], Changes(), 1.0)
    journal._db = real
    kinds = [(row.seq, row.event) for row in read_facts(tmp_path / "sweep.db")]
    assert kinds == [(1, Asked(Ask.DRAIN)), (2, Asked(Ask.INTERRUPT))]
    assert "disk is full" in told[0]  # once, however often it is tried
    assert told[1:] == [f"{tmp_path / 'sweep.db'} can be written again: the sweep goes on."]


@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("interrupted", r"could not be written .*disk is full.* interrupted.*space and resume"),
        ("the record is gone", "deleted"),
        ("too long", r"could not be written.*free some space and resume"),
    ],
)
def test_a_wait_for_the_disk_ends_and_nothing_of_the_batch_is_recorded(tmp_path, told, monkeypatch, why, says):
    def check(anew: bool) -> None:
        if told and why == "the record is gone":
            raise RecordError("deleted")

    def is_interrupted() -> bool:
        return bool(told) and why == "interrupted"

    monkeypatch.setattr(journal_module, "_RETRY_S", 0.0)
    if why == "too long":
        monkeypatch.setattr(journal_module, "_DISK_GRACE_S", 0.0)
    journal = Journal(tmp_path / "sweep.db", notice=told.append, check=check, is_interrupted=is_interrupted)
    journal.commit([Asked(Ask.DRAIN)], [[]], Changes(), 0.5)
    real = journal._db
    journal._db = Failing(real, times=10**9)
    with pytest.raises(RecordError, match=says):
        journal.commit([Asked(Ask.INTERRUPT)], [[]], Changes(), 1.0)
    journal._db = real
    journal.close()
    assert [row.event for row in read_facts(tmp_path / "sweep.db")] == [Asked(Ask.DRAIN)]
    assert len(told) <= 1


def test_the_record_is_looked_for_anew_unless_there_are_only_reports(tmp_path):
    looks = []
    journal = Journal(tmp_path / "sweep.db", check=looks.append)
    event, metrics = report(0, 1.0)
    trial = Trial(event.trial_id, {}, Resources(), status=Status.RUNNING, attempt=1)
    journal.commit([event], [[]], Changes({trial.id: trial}, {1: metrics}), 1.0)
    journal.commit([event, Asked(Ask.DRAIN)], [[], []], Changes(), 1.0)
    journal.close()
    assert looks == [False, True]


def test_facts_of_the_experiment_do_not_wait_for_a_full_disk_and_no_error_of_sqlite_gets_out(tmp_path, journal):
    journal.set_meta({"seed": 1})
    real = journal._db
    journal._db = Failing(real, times=1)
    with pytest.raises(RecordError, match=r"could not be written \(database or disk is full"):
        journal.set_meta({"seed": 2})
    journal.set_meta({"name": "later"})
    assert ExperimentReader(tmp_path).meta == {"seed": 1, "name": "later"}


def test_a_trial_and_its_results_come_back_as_they_were(tmp_path, journal):
    event, metrics = report(0, float("nan"))
    trial = Trial("abcde_00000", {"x": (1, 2.5)}, Resources(), status=Status.RUNNING, attempt=1, count=1, judged_to=1)
    trial = evolve(trial, last_result=TrialResult(metrics, 1))
    changes = Changes({trial.id: trial}, {1: metrics})
    journal.commit([event], [[Notify(Hook.RESULT, trial), Continue(trial.id, 1, 1)]], changes, 2.0)
    (loaded,) = load(tmp_path / "sweep.db").trials
    assert (loaded.config, loaded.status, loaded.count, loaded.judged_to) == ({"x": (1, 2.5)}, Status.RUNNING, 1, 1)
    assert loaded.last_result is not None
    assert str(loaded.last_result["loss"]) == "nan"
    (row,) = read_facts(tmp_path / "sweep.db")
    assert isinstance(row.event, Reported)
    assert row.caused is None  # what a report usually causes is not written down


def test_a_repeated_report_that_saves_is_told_from_one_that_observers_heard_of(tmp_path, journal):
    event, metrics = report(0, 0.5)
    trial = Trial("abcde_00000", {}, Resources(), status=Status.RUNNING, attempt=2, count=1, judged_to=2)
    caused = [Notify(Hook.SAVE, trial), Continue(trial.id, 2, 1)]
    journal.commit([event], [caused], Changes({trial.id: trial}, {1: metrics}), 2.0)
    (row,) = read_facts(tmp_path / "sweep.db")
    assert row.caused == [["Continue", trial.id, 1]]


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("sweep.db", "PRAGMA user_version=99", r"format 99.*newer"),
        ("other.db", "CREATE TABLE mine (x)", r"is not a sweep\.db"),
    ],
)
def test_a_file_of_a_newer_version_or_of_somebody_else_is_refused(tmp_path, name, change, says):
    Journal(tmp_path / "sweep.db").close()
    with closing(sqlite3.connect(tmp_path / name)) as connection:
        connection.execute(change)
    with pytest.raises(ExperimentError, match=says):
        Journal(tmp_path / name)


@pytest.mark.parametrize("cut", [0, 50, 600, 5000])
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path, cut):
    path = tmp_path / "sweep.db"
    Journal(path).close()
    data = path.read_bytes()[:cut] + b"\xff" * 100
    path.write_bytes(data)
    with pytest.raises(ExperimentError):
        load(path)
    assert path.read_bytes() == data
