"""The record of an experiment that several machines see: worked on here, published there, taken over, never parted."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from killed import MOST, ends_itself
from sealed import changed

from sweep.checkpoints.store import discard_in, persist, verify
from sweep.core.config import SyncConfig
from sweep.core.messages import Changes, CheckpointRef, Discard, Reported, Started, Tick
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Status, Trial, evolve
from sweep.errors import ExperimentError, RecordError
from sweep.record import lock as lock_module
from sweep.record.codec import encode_event
from sweep.record.db import open_for_reading
from sweep.record.journal import Journal
from sweep.record.layout import ExperimentLayout
from sweep.record.lock import DriverLock, find_driver
from sweep.record.reader import ExperimentReader
from sweep.record.resume import load
from sweep.record.stored import references
from sweep.storage import send, shared
from sweep.storage.ownership import TakenOver
from sweep.storage.send import Sender
from sweep.storage.shared import SharedRecord, live_record, shared_record

TRIAL = "abcde_00000"


@pytest.fixture(autouse=True)
def no_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it gave to the kernel: only speed depends on it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(shared, "_WATCH_S", 0.0)
    monkeypatch.setenv("SWEEP_SHARED_STORAGE", "1")


class Machines:
    """Machines that see one storage; `at` names the machine that works, each with a disk of its own."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.storage = root, root / "storage" / "made"
        self.storage.mkdir(parents=True, exist_ok=True)
        self._monkeypatch = monkeypatch

    def at(self, name: str) -> SharedRecord:
        self._monkeypatch.setenv("SWEEP_CACHE", str(self.root / name))
        self._monkeypatch.setattr(socket, "gethostname", lambda: name)
        record = shared_record(self.storage)
        assert record is not None
        return record


@pytest.fixture
def driver(machines: Machines) -> Driver:
    """A driver on the first machine, which has reported once."""
    driver = Driver(machines.at("first"))
    driver.report()
    return driver


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, monkeypatch)


class Driver:
    """What a driver does with a record, one report with a checkpoint at a time, of which the last two are kept."""

    def __init__(self, record: SharedRecord, *, was_left: bool = False, number: int = 0) -> None:
        self.record, self.number = record, number
        self.notices = record.take(was_left=was_left)
        self.trials: list[Trial] = []
        if record.database.exists():
            loaded = load(record.database, root=record.root)
            self.trials = loaded.trials
            for name in loaded.strangers:
                shutil.rmtree(record.root / name)
            for path in loaded.strays:
                assert discard_in(record.root, path)
        record.notice = self.notices.append
        self.journal = Journal(record.database)
        self.journal.set_meta({"prefix": "abcde", "created": 1.0, "name": "made"})
        record.sync()

    def commit(self, event: Any, trial: Trial, commands: Any = (), results: Any = None) -> None:
        changes = Changes({trial.id: trial}, results or {})
        self.journal.commit([event], [list(commands)], changes, float(self.journal.seq + 1))

    def report(self) -> None:
        if not self.trials:
            self.trials = [Trial(f"abcde_{self.number:05d}", {}, Resources(), status=Status.RUNNING, attempt=1)]
            self.commit(Started(self.trials[0].id, 1), self.trials[0])
        trial = self.trials[0]
        count = trial.count + 1
        path = f"{trial.id}/checkpoint_{count:06d}"
        source = Path(tempfile.mkdtemp())
        (source / "state").write_text(str(count))
        persist(source, self.record.root / path, is_source_spent=True)
        seq = self.journal.seq + 1
        values = {"loss": 1.0, "training_iteration": count}
        old = trial.checkpoint
        trial = evolve(trial, count=count, last_result=TrialResult(values, seq), checkpoint=CheckpointRef(path, count))
        self.trials = [trial]
        commands = [] if old is None else [Discard(old)]
        event = Reported(trial.id, 1, count, values, path)
        self.commit(event, trial, commands, {seq: values})
        if old is not None:
            self.record.discard(old.path)

    def close(self) -> None:
        self.journal.close()
        self.record.sync()
        self.record.end()

    def die(self) -> None:
        """Leave everything as a killed process does."""
        self.journal._db.close()


def seq_of(database: Path) -> int:
    with contextlib.closing(open_for_reading(database)) as db:
        return int(db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()[0])


def check_published(root: Path) -> int:
    """What is published is whole, in one file, and what it refers to is there; returns how far it goes."""
    database = root / "sweep.db"
    assert database.read_bytes()[18:20] == b"\x01\x01"  # no write-ahead log: safe on every file system
    assert not [path for path in root.iterdir() if path.name.startswith("sweep.db-")]
    with contextlib.closing(open_for_reading(database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        for path in set().union(*references(db).values()):
            verify(root / path)
    return seq_of(database)


def test_readers_anywhere_see_snapshots_and_those_of_the_drivers_machine_every_commit(machines, driver):
    assert check_published(machines.storage) == 0
    assert ExperimentReader(machines.storage).snapshot().seq == 2
    machines.at("second")
    assert live_record(machines.storage) == machines.storage / "sweep.db"
    assert ExperimentReader(machines.storage).snapshot().seq == 0
    driver.record.sync()
    assert ExperimentReader(machines.storage).snapshot().seq == 2
    machines.at("first")
    driver.close()
    assert check_published(machines.storage) == 2
    assert not driver.record.home.exists()  # nothing is left on the machine
    assert live_record(machines.storage) == machines.storage / "sweep.db"


def test_a_published_record_that_somebody_deletes_or_replaces_is_published_again(machines, driver):
    driver.record.sync()
    (machines.storage / "sweep.db").unlink()
    driver.record.sync()
    assert check_published(machines.storage) == 2
    driver.report()
    driver.record.sync()
    shutil.copyfile(machines.storage / ".sweep.db.before", machines.storage / "late")
    (machines.storage / "late").rename(machines.storage / "sweep.db")  # by a driver that was taken over
    assert seq_of(machines.storage / "sweep.db") == 2
    driver.record.sync()
    assert check_published(machines.storage) == 3
    (machines.storage / ".sweep-record.json").write_text("{")  # and of an owner that cannot be read it makes a new one
    driver.record.sync()
    assert live_record(machines.storage) == driver.record.database
    driver.close()


def test_a_checkpoint_is_deleted_only_after_a_record_without_it_was_published(machines, driver):
    driver.record.sync()
    driver.report()
    first = machines.storage / TRIAL / "checkpoint_000001"
    assert first.is_dir()
    check_published(machines.storage)
    driver.record.sync()
    assert not first.exists()
    driver.report()
    driver.report()
    driver.close()
    assert sorted(path.name for path in (machines.storage / TRIAL).iterdir()) == ["checkpoint_000004"]


def test_another_machine_goes_on_from_what_was_published_and_the_first_one_finds_itself_superseded(machines, driver):
    driver.record.sync()
    driver.report()
    driver.die()
    (machines.storage / "abcde_00007").mkdir()  # of a trial that only the first machine knew of
    (machines.storage / "abcde_notes").mkdir()
    second = Driver(machines.at("second"), was_left=True)
    assert (second.notices, second.trials[0].count) == ([], 1)
    assert [path.name for path in (machines.storage / TRIAL).iterdir()] == ["checkpoint_000001"]
    assert [path.name for path in machines.storage.glob("abcde_*") if "0000" not in path.name[:10]] == ["abcde_notes"]
    second.report()
    second.report()
    second.close()
    third = Driver(machines.at("first"))
    assert third.trials[0].count == 3
    assert len(third.notices) == 1
    assert "up to event 3, but a driver (pid " in third.notices[0]
    assert "on second) went on without it" in third.notices[0]
    assert seq_of(machines.root / "first" / "superseded" / third.record.home.name / "sweep.db") == 3
    third.report()
    third.close()
    assert check_published(machines.storage) == 5


def test_a_driver_whose_sweep_another_one_goes_on_with_publishes_nothing_more(machines):
    first = Driver(machines.at("first"))
    first.report()
    first.record.sync()
    second = Driver(machines.at("second"))
    first.journal.set_meta({"note": "new"})
    with pytest.raises(TakenOver, match=r"another driver \(pid \d+ on second\) writes to .*/made: it goes on with it"):
        first.record.sync()
    second.report()
    second.report()
    second.close()
    with pytest.raises(TakenOver):
        first.close()
    assert check_published(machines.storage) == 4


def test_a_local_record_that_is_only_older_is_replaced_without_a_word(machines, driver, tmp_path):
    driver.record.sync()
    driver.die()
    shutil.copytree(driver.record.home, tmp_path / "older")
    again = Driver(machines.at("first"))
    again.report()
    again.record.sync()
    again.die()
    shutil.rmtree(driver.record.home)
    shutil.copytree(tmp_path / "older", driver.record.home)
    last = Driver(machines.at("first"))
    assert (last.notices, last.trials[0].count) == ([], 2)
    last.close()


def test_two_records_that_parted_are_refused_and_left_as_they_are(machines, driver):
    driver.record.sync()
    driver.report()
    driver.die()
    with changed(machines.storage / "sweep.db") as db:
        for _ in range(2):
            text = encode_event(Tick(), 99.0, 99.0, None)
            db.execute("INSERT INTO event SELECT max(seq) + 1, NULL, ?, 0 FROM event", (text,))
    with pytest.raises(ExperimentError, match=r"\(up to event 4, .*\(up to event 3\) do not continue each .* rm -r "):
        machines.at("first").take(was_left=True)
    assert (seq_of(machines.storage / "sweep.db"), seq_of(driver.record.database)) == (4, 3)


def test_another_experiment_at_the_same_place_has_nothing_to_do_with_what_is_here(machines, driver, tmp_path):
    driver.die()
    shutil.rmtree(machines.storage)
    machines.storage.mkdir()
    fresh = Driver(machines.at("first"), number=5)
    assert "it is gone from the storage" in fresh.notices[0]
    fresh.report()
    fresh.die()
    shutil.rmtree(machines.storage)
    machines.storage.mkdir()
    other = Driver(machines.at("second"), number=6)
    other.journal.set_meta({"created": 2.0})
    other.report()
    other.close()
    back = Driver(machines.at("first"))
    assert "went on without it" in back.notices[0]
    assert back.trials[0].id == "abcde_00006"
    back.close()


def test_a_record_that_was_worked_on_in_place_is_taken_with_its_log(machines):
    journal = Journal(machines.storage / "sweep.db")
    journal.set_meta({"prefix": "abcde"})
    trial = Trial(TRIAL, {}, Resources())
    journal.commit([Started(TRIAL, 1)], [[]], Changes({TRIAL: trial}), 1.0)
    assert (machines.storage / "sweep.db-wal").stat().st_size
    keeper = sqlite3.connect(machines.storage / "sweep.db")  # so that closing does not fold the log
    keeper.execute("SELECT 1 FROM event").fetchone()
    shutil.copytree(machines.storage, machines.root / "copy")
    keeper.close()
    journal.close()
    shutil.rmtree(machines.storage)
    (machines.root / "copy").rename(machines.storage)
    driver = Driver(machines.at("first"))
    assert len(driver.trials) == 1
    assert check_published(machines.storage) == 1
    driver.close()


def test_a_damaged_record_in_the_storage_is_refused(machines, driver):
    driver.close()
    path = machines.storage / "sweep.db"
    data = bytearray(path.read_bytes())
    data[5000:9000] = b"\xff" * 4000
    path.write_bytes(data)
    with pytest.raises(ExperimentError, match=r"damaged|malformed"):
        machines.at("second").take(was_left=False)
    assert path.read_bytes() == data


def test_who_reads_while_a_snapshot_takes_the_place_of_another_reads_the_old_one_whole(machines, driver):
    driver.record.sync()
    machines.at("second")
    with ExperimentReader(machines.storage).connect() as connection:
        assert connection.execute("SELECT max(seq) FROM event").fetchone() == (2,)
        machines.at("first")
        driver.report()
        driver.record.sync()
        assert connection.execute("SELECT max(seq), count(*) FROM event").fetchone() == (2, 2)
    before = machines.storage / ".sweep.db.before"
    assert seq_of(before) == 2  # a name of what is still being read, or a server would forget it
    driver.close()
    assert not before.exists()


# --- drivers on other machines -------------------------------------------------------------------------------------


def test_a_driver_that_renews_its_ownership_is_not_taken_over_where_locks_do_not_reach(machines, monkeypatch):
    first = Driver(machines.at("first"))
    first.report()
    second = machines.at("second")
    monkeypatch.setattr(shared, "_WATCH_S", 60.0)
    monkeypatch.setattr(shared.time, "sleep", lambda seconds: first.record.sync())
    with pytest.raises(ExperimentError, match=r"in use by another driver \(pid \d+ on first\)"):
        second.take(was_left=True)
    first.close()


def test_a_driver_that_writes_late_does_not_keep_another_from_taking_over(machines, monkeypatch):
    first = Driver(machines.at("first"))
    first.report()
    first.record.sync()
    late, taken = first.record.owner, machines.at("second")
    monkeypatch.setattr(taken, "await_flush", lambda: late.write(taken.remote))  # right before the record is sent
    second = Driver(taken)
    with pytest.raises(TakenOver):
        first.record.sync()
    assert second.trials[0].count == 1
    second.close()


def test_whether_a_driver_on_another_machine_lives_is_seen_by_its_ownership_or_by_its_last_word(machines):
    record = machines.at("first")
    lock = DriverLock(ExperimentLayout(machines.storage).lock, "mark", is_shared=True)
    driver = Driver(record)
    machines.at("second")

    def is_alive() -> bool | None:
        found = find_driver(lock.path)
        assert found is not None
        return found.is_alive

    assert is_alive() is True
    owner = json.loads((machines.storage / ".sweep-record.json").read_text())
    (machines.storage / ".sweep-record.json").write_text(json.dumps(owner | {"wall": owner["wall"] - 31}))
    assert is_alive() is None
    driver.close()
    lock.release()
    assert is_alive() is False


def test_a_lock_that_another_machine_holds_names_it(machines, monkeypatch):
    machines.at("first")
    path = ExperimentLayout(machines.storage).lock
    held = DriverLock(path, "mark")
    machines.at("second")
    monkeypatch.setattr(lock_module, "_ORPHANS_S", 0.0)
    with pytest.raises(ExperimentError, match=r"another driver \(pid \d+ on first, started .* its lock comes free"):
        DriverLock(path, "mark", is_shared=True)
    held.release()


def test_where_there_are_no_locks_a_shared_experiment_goes_by_its_ownership_and_another_is_refused(
    machines, monkeypatch
):
    def refuse(*arguments: Any) -> None:
        raise OSError(38, "Function not implemented")

    machines.at("first")
    monkeypatch.setattr(lock_module.fcntl, "flock", refuse)
    path = ExperimentLayout(machines.storage).lock
    with pytest.raises(ExperimentError, match="cannot be locked"):
        DriverLock(path, "mark")
    lock = DriverLock(path, "mark", is_shared=True)
    lock.release()
    assert "ended" in json.loads(path.read_text())


# --- the thread ----------------------------------------------------------------------------------------------------


def sender_of(driver: Driver, monkeypatch: pytest.MonkeyPatch, **how: Any) -> Sender:
    for name in ("_SHARED_GAP_S", "_FIRST_BACKOFF_S"):
        monkeypatch.setattr(send, name, 0.2)  # it renews its ownership, too, which must not meet each taking over
    return Sender(driver.record, SyncConfig(**how), notice=driver.notices.append)


def test_it_sends_by_itself_and_the_end_has_everything(machines, monkeypatch):
    driver = Driver(machines.at("first"))
    sender = sender_of(driver, monkeypatch)
    sender.start()
    driver.report()
    until(lambda: seq_of(machines.storage / "sweep.db") == 2)
    driver.report()
    driver.journal.close()
    assert sender.finish()
    assert driver.notices == []
    assert check_published(machines.storage) == 3
    assert sorted(path.name for path in (machines.storage / TRIAL).iterdir()) == ["checkpoint_000002"]
    assert not driver.record.home.exists()


def test_a_run_that_was_taken_over_stops(machines, monkeypatch):
    driver = Driver(machines.at("first"))
    sender = sender_of(driver, monkeypatch)
    woken: list[bool] = []
    sender.start(lambda: woken.append(True))
    sender.check()
    second = Driver(machines.at("second"))
    until(lambda: bool(woken))
    with pytest.raises(RecordError, match="it goes on with it, and this one was stopped"):
        sender.check()
    driver.journal.close()
    assert not sender.finish()
    second.close()


def until(is_so: Any) -> None:
    """Wait for what another thread does."""
    limit = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.002)


# --- killed between any two steps ------------------------------------------------------------------------------------


def drive(record: SharedRecord, said: Path) -> None:
    """One run of a driver, which writes down how far its record goes after each commit."""
    driver = Driver(record, was_left=True)
    for number in range(4):
        driver.report()
        said.write_text(str(driver.journal.seq))
        if number % 2:
            driver.record.sync()
    driver.close()


@pytest.mark.parametrize(
    ("is_torn", "is_resumed", "every"),
    [
        (False, False, 17),
        (True, True, 17),
        *[pytest.param(torn, again, 1, marks=pytest.mark.slow) for torn in (False, True) for again in (False, True)],
    ],
)
def test_a_driver_that_is_killed_at_any_change_of_a_file(tmp_path, monkeypatch, is_torn, is_resumed, every):
    committed = tmp_path / "committed"
    for at in range(1, MOST, every):
        machines = Machines(tmp_path / str(at), monkeypatch)
        if is_resumed:
            left = Driver(machines.at("first"))
            left.report()
            left.record.sync()
            left.report()  # which is not published
            left.die()
        committed.write_text("3" if is_resumed else "0")
        record = machines.at("first")
        is_killed = ends_itself(lambda record=record: drive(record, committed), machines.root, at, is_torn)
        published = check_published(machines.storage) if (machines.storage / "sweep.db").exists() else 0
        shutil.copytree(machines.root, tmp_path / "left", symlinks=True)
        # the same machine goes on: nothing that was committed is lost
        again = Driver(machines.at("first"), was_left=True)
        assert seq_of(again.record.database) >= int(committed.read_text())
        assert again.notices == []
        again.report()
        check_published(machines.storage)
        again.close()
        check_published(machines.storage)
        # or another one does, from what was published, and then the first one again
        shutil.rmtree(machines.root)
        (tmp_path / "left").rename(machines.root)
        second = Driver(machines.at("second"), was_left=True)
        assert seq_of(second.record.database) >= published
        second.report()
        second.report()
        second.close()
        last = check_published(machines.storage)
        back = Driver(machines.at("first"))
        assert seq_of(back.record.database) == last
        assert back.trials[0].count == second.trials[0].count
        back.close()
        assert check_published(machines.storage) == last
        if not is_killed:
            break
    assert 30 < at < MOST - 10
