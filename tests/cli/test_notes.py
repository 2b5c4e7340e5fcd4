"""`sweep note`: what is written down about a sweep."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_experiment import MadeExperiment

from sweep.cli import notes
from sweep.cli.main import sweep
from sweep.cli.notes import read_notes
from sweep.errors import ConfigError, ExperimentError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return MadeExperiment(tmp_path, "digits").close()


def call(root: Path, *arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(sweep, [*arguments, "--storage", str(root.parent)], input=typed)


def test_a_note_is_added_with_its_date_and_shown(root: Path) -> None:
    assert call(root, "note", "digits", "gelu", "is better").output == f"added to {root / 'notes.md'}\n"
    assert call(root, "add-note", "digits", "and wider nets\x1b[2J too").exit_code == 0
    text = (root / "notes.md").read_text(encoding="utf-8")
    date = r"## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(f"{date}\n\ngelu is better\n\n{date}\n\nand wider nets\x1b\\[2J too\n", text)
    shown = call(root, "show", "digits").output
    assert re.search(
        f"\nnotes \\(notes.md\\):\n  {date}\n\n  gelu is better\n\n  {date}\n\n  and wider nets too\n", shown
    )


def test_a_note_is_read_from_a_pipe(root: Path) -> None:
    assert call(root, "note", "digits", "--filename", "todo.txt", typed="one\ntwo\n").exit_code == 0
    assert (root / "todo.txt").read_text(encoding="utf-8").endswith("\n\none\ntwo\n")
    assert call(root, "note", "digits", typed=" \n").output == "nothing was written: the note is empty\n"
    assert not (root / "notes.md").exists()


def test_without_text_a_terminal_opens_the_editor(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def edit(text: str | None = None, filename: str | None = None) -> str | None:
        opened.append((text, filename))
        return "typed\n" if filename is None else None

    monkeypatch.setattr("click.edit", edit)
    monkeypatch.setattr(notes, "_is_terminal", lambda: True)
    runner = CliRunner()
    where = ["--storage", str(root.parent)]
    assert runner.invoke(sweep, ["note", "digits", *where]).exit_code == 0
    assert (root / "notes.md").read_text(encoding="utf-8").endswith("\n\ntyped\n")
    assert runner.invoke(sweep, ["note", "digits", "--edit", *where]).exit_code == 0
    assert runner.invoke(sweep, ["note", "digits", "--edit", "--filename", "new.md", *where]).exit_code == 0
    assert opened == [("", None), (None, str(root / "notes.md")), (None, str(root / "new.md"))]
    assert not (root / "new.md").exists()


@pytest.mark.parametrize(
    ("typed", "kind", "message"),
    [
        ("digits text --edit", ConfigError, "not both"),
        ("digits --edit", ConfigError, "--edit needs a terminal"),
        ("digts text", ExperimentError, "Did you mean 'digits'"),
        ("digits text", ExperimentError, "cannot be written: Is a directory"),
        *(
            (f"digits text --filename {name}", ConfigError, "is no name of a note, such as notes.md or todo.txt")
            for name in ("../x.md", "sweep.db", "/tmp/x.txt", ".hidden.md", "notes", "'a b.md'", "'x.md\n'")
        ),
    ],
)
def test_what_cannot_be_done_is_said(root: Path, typed: str, kind: type[Exception], message: str) -> None:
    (root / "notes.md").mkdir()
    result = call(root, "note", *shlex.split(typed))
    assert isinstance(result.exception, kind)
    assert message in str(result.exception)


def test_a_schedulers_own_log_is_no_note(root: Path) -> None:
    for name in ("pbt_global.txt", "b.txt", "a.md", "notes.md", "empty.md", "x.log"):
        (root / name).write_text("" if name == "empty.md" else name, encoding="utf-8")
    assert read_notes(root) == {"notes.md": "notes.md", "a.md": "a.md", "b.txt": "b.txt"}
