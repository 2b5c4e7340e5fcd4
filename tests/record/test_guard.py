"""Whether an experiment's directory is still there: deleted, moved, replaced; and what may happen without harm."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.errors import ExperimentError, RecordError
from sweep.record.guard import DirectoryGuard, make_writable, refusing_full_disk
from sweep.record.layout import ExperimentLayout


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[DirectoryGuard]:
    """The guard of a directory with a record."""
    layout = ExperimentLayout(tmp_path / "storage" / "one")
    layout.code.mkdir(parents=True)
    layout.database.write_text("the record")
    layout.lock.write_text("pid 1")
    guard = DirectoryGuard(layout)
    guard.start()
    yield guard
    guard.close()


def move(root: Path) -> None:
    root.rename(root.parent / "elsewhere")


def move_storage(root: Path) -> None:
    root.parent.rename(root.parent.parent / "elsewhere")


def delete_and_begin_anew(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()
    (root / "sweep.db").write_text("of another sweep")


def replace(root: Path, name: str) -> None:
    (root / "new").write_text("another")
    (root / "new").replace(root / name)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (shutil.rmtree, r"one was deleted while its sweep ran.*Run it again"),
        (delete_and_begin_anew, r"one was deleted while its sweep ran"),
        (move, r"one was moved to \S+/storage/elsewhere while.*storage_path='\S+/storage', name='elsewhere'"),
        (move_storage, r"one was moved to \S+/elsewhere/one while.*sweep resume one --storage \S+/elsewhere\)"),
        (lambda root: (root / "sweep.db").unlink(), r"sweep\.db was deleted or replaced while.*output are still in"),
        (lambda root: replace(root, "sweep.db"), r"sweep\.db was deleted or replaced while"),
        (lambda root: (root / "driver.lock").unlink(), r"driver\.lock was deleted or .*another driver could.*resume"),
        (lambda root: replace(root, "driver.lock"), r"driver\.lock was deleted or replaced while"),
        (lambda root: (root / "code").rmdir(), r"one/code was deleted or .*no trial can start.*resume the sweep"),
    ],
    ids=[
        *("deleted", "deleted and made anew", "moved", "moved with its parent", "record deleted", "record replaced"),
        *("lock deleted", "lock of another driver", "code deleted"),
    ],
)
def test_what_is_gone_is_noticed(guarded: DirectoryGuard, act: Callable[[Path], object], said: str) -> None:
    guarded.check()
    act(guarded._layout.root)
    guarded.check(anew=False)
    with pytest.raises(RecordError, match=said):
        guarded.check()


def test_what_runs_in_the_directory_is_no_harm(guarded: DirectoryGuard) -> None:
    root = guarded._layout.root
    (root / "trial").mkdir()
    guarded._layout.database.write_text("more of the record")
    (root / "sweep.db-wal").write_text("a log")
    os.utime(root)
    shutil.copy2(root / "driver.lock", root / "lock")  # numbered anew, as some file systems do
    (root / "lock").replace(root / "driver.lock")
    guarded.check()


def test_a_file_system_that_does_not_answer_or_numbers_anew_is_no_proof(
    guarded: DirectoryGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat

    def refuse(path, *arguments, **named):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "stat", refuse)
    guarded.check()
    monkeypatch.setattr(
        os, "stat", lambda path, *_, **__: real("/") if path == str(guarded._layout.root) else real(path)
    )
    guarded.check()


def test_a_directory_that_takes_no_files_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExperimentError, match=r"one cannot be written: Not a directory\. Pass storage_path="):
        make_writable(ExperimentLayout(tmp_path / "file" / "one"))
    make_writable(ExperimentLayout(tmp_path / "one"))
    assert os.listdir(tmp_path / "one") == []


def test_a_full_disk_before_the_first_trial_is_an_error_and_another_error_stays_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = ExperimentLayout(tmp_path / "one")

    def write(number: int) -> None:
        with refusing_full_disk(layout):
            raise OSError(number, os.strerror(number))

    with pytest.raises(ExperimentError, match=r"one cannot be written: No space left.*free some space, and resume"):
        write(errno.ENOSPC)
    with pytest.raises(PermissionError):
        write(errno.EACCES)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sweep.record.guard.write_atomically", refuse)
    with pytest.raises(ExperimentError, match=r"one cannot be written: No space left.*free some space, and resume"):
        make_writable(layout, is_resumed=True)
