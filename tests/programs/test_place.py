"""What a trial's own directory shows of the program's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sweep.programs.place import own, show, show_with_parents


def made(directory: Path, *names: str) -> Path:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return directory


def test_files_are_links_and_directories_are_the_trials_own(tmp_path: Path) -> None:
    source = made(
        tmp_path / "a", "train.py", "lib/part.py", ".git/HEAD", "out/sweep_results/s/x", "__pycache__/t.pyc", "runs.db"
    )
    target = tmp_path / "b"
    show(str(source), str(target))
    assert os.path.samefile(target / "train.py", source / "train.py")
    assert os.path.realpath(target / "lib" / "part.py") == str(target / "lib" / "part.py")
    assert os.readlink(target / "runs.db") == str(source / "runs.db")  # SQLite's journals lie beside it
    assert (target / ".git").is_symlink()
    assert sorted(path.name for path in target.iterdir()) == [
        ".git",
        "__pycache__",
        "lib",
        "out",
        "runs.db",
        "train.py",
    ]
    assert list((target / "out").iterdir()) == []


def test_what_a_trial_wrote_stays_when_its_directory_is_shown_again(tmp_path: Path) -> None:
    source, target = made(tmp_path / "a", "data.csv"), tmp_path / "b"
    show(str(source), str(target))
    own(str(target / "data.csv"))
    (target / "data.csv").write_text("mine")
    made(source, "new.txt")
    show(str(source), str(target))
    assert (target / "data.csv").read_text() == "mine"
    assert (source / "data.csv").read_text() == "data.csv"
    assert (target / "new.txt").read_text() == "new.txt"


def test_what_lies_beside_the_directory_is_found_under_the_same_relative_name(tmp_path: Path) -> None:
    made(tmp_path, "data/x.csv", "project/code/train.py", "project/conf/a.yaml", "project/code/sweep_results/s/y")
    directory = show_with_parents(str(tmp_path / "project" / "code"), str(tmp_path / "trial" / "work"))
    assert Path(directory, "..", "conf", "a.yaml").read_text() == "project/conf/a.yaml"
    assert Path(directory, "..", "..", "data", "x.csv").read_text() == "data/x.csv"
    Path(directory, "..", "out.txt").write_text("")
    assert not (tmp_path / "project" / "out.txt").exists()


def test_a_directory_that_may_not_be_read_is_shown_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = made(tmp_path / "a", "train.py", "private/key"), tmp_path / "b"
    scan = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("private"):
            raise PermissionError(path)
        return scan(path)

    monkeypatch.setattr("sweep.programs.place.os.scandir", refuse)
    show(str(source), str(target))
    monkeypatch.undo()
    assert sorted(path.name for path in target.rglob("*")) == ["private", "train.py"]
