"""How a record is opened for reading: by what lies beside it, without a trace, and with the driver's locks in peace."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from made_experiment import MadeExperiment

from sweep.core.messages import Ask, Asked, Changes
from sweep.errors import ExperimentError
from sweep.record import db as access
from sweep.record.db import connect_for_reading
from sweep.record.journal import Journal
from sweep.record.reader import ExperimentReader
from sweep.results.analysis import ExperimentAnalysis


def count(database: Path) -> int:
    with closing(connect_for_reading(database)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM event").fetchone()
    return int(number)


def test_each_commit_of_a_driver_is_seen_from_its_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "sweep.db")
    for number in range(4):
        assert count(tmp_path / "sweep.db") == number
        assert _count_elsewhere(tmp_path / "sweep.db") == number
        journal.commit([Asked(Ask.DRAIN)], [[]], Changes(), float(number))
    journal.close()
    assert sorted(os.listdir(tmp_path)) == ["sweep.db", "sweep.mark"]
    assert count(tmp_path / "sweep.db") == 4
    assert sorted(os.listdir(tmp_path)) == ["sweep.db", "sweep.mark"]


def _count_elsewhere(database: Path) -> int:
    """Count in another process, which shares no index in memory with the driver."""
    code = (
        "import sys; from pathlib import Path; from sweep.record.db import connect_for_reading as c; "
        "print(c(Path(sys.argv[1])).execute('SELECT count(*) FROM event').fetchone()[0])"
    )
    found = subprocess.run([sys.executable, "-c", code, str(database)], capture_output=True, text=True, check=True)
    return int(found.stdout)


def test_reading_in_the_drivers_own_process_leaves_it_its_locks(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops the locks that a process has on it: SQLite alone may open it."""
    journal = Journal(tmp_path / "sweep.db")
    journal.commit([Asked(Ask.DRAIN)], [[]], Changes(), 0.0)
    before = _locks(tmp_path / "sweep.db")
    assert before
    assert count(tmp_path / "sweep.db") == 1
    assert _locks(tmp_path / "sweep.db") == before
    journal.close()


def _locks(path: Path) -> list[str]:
    inode = path.stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return [line.split(":", 1)[1] for line in lines if f":{inode} " in line]


def test_a_log_without_an_index_is_read_from_a_copy_that_is_deleted_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeExperiment(tmp_path)
    made.trial({"x": 1})
    root = made.commit()
    copy = tmp_path / "copied"
    shutil.copytree(root, copy)
    (copy / "sweep.db-shm").unlink()
    assert (copy / "sweep.db-wal").stat().st_size
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(access.tempfile, "tempdir", str(temporary))
    reader = ExperimentReader(copy)
    assert [trial.config for trial in reader.trials()] == [{"x": 1}]
    assert len(reader.history().lives()) == 1
    assert sorted(os.listdir(copy)) == ["sweep.db", "sweep.db-wal"]
    made.trial({"x": 2})
    made.commit()
    shutil.copy(root / "sweep.db-wal", copy)  # copied once more, meanwhile
    assert len(reader.trials()) == 2
    assert os.listdir(temporary) == []


def test_no_room_for_the_copy_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(MadeExperiment(tmp_path).commit(), tmp_path / "copied")
    (tmp_path / "copied" / "sweep.db-shm").unlink()

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(access.shutil, "copyfile", full)
    with pytest.raises(ExperimentError, match=r"No space left on device\. Name a place with room for it by TMPDIR"):
        ExperimentReader(tmp_path / "copied")


def test_a_file_that_changes_while_it_is_read_without_locks_gives_an_error_instead_of_half_of_each(
    tmp_path: Path,
) -> None:
    made = MadeExperiment(tmp_path)
    made.trial({"x": 1})
    root = made.close()
    reader = ExperimentReader(root)

    def look() -> None:
        with reader.connect(), closing(sqlite3.connect(root / "sweep.db")) as writer:  # a driver continues the sweep
            writer.execute("CREATE TABLE label (trial_id TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID")
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # and folds its log

    with pytest.raises(ExperimentError, match=r"sweep\.db was changed while it was read"):
        look()
    assert len(reader.trials()) == 1


def test_a_record_that_may_not_be_read_names_who_can_change_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = MadeExperiment(tmp_path).close()
    monkeypatch.setattr(os, "access", lambda path, mode, **options: False)
    with pytest.raises(ExperimentError, match=r"may not be read by this user.*chmod"):
        ExperimentAnalysis(root)
