"""`sweep note`: write something down about a sweep, into a file beside its record."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import click

from sweep.cli.completion import complete_name
from sweep.cli.inspect import storage_option
from sweep.display.formats import clean
from sweep.errors import ConfigError, ExperimentError
from sweep.record.reader import find_experiment

NOTES = "notes.md"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(md|txt)")


@click.command(short_help="Write something down about a sweep.")
@click.argument("name", shell_complete=complete_name)
@click.argument("words", nargs=-1, metavar="[TEXT]...")
@click.option("--edit", is_flag=True, help="Open the file with all its notes in $EDITOR.")
@click.option("--filename", metavar="FILE", default=NOTES, show_default=True, help="Which file: *.md or *.txt.")
@storage_option
def note(name: str, words: tuple[str, ...], edit: bool, filename: str, storage: str | None) -> None:
    """Write something down about a sweep: TEXT is added to a file in its directory, with the date. `sweep show NAME`
    prints it.

    Without TEXT an editor is opened ($VISUAL or $EDITOR); in a pipe the text is read from standard input.

    \b
    Examples:
      sweep note digits "gelu is better from 10 epochs on"
      sweep note digits --edit
      git log -1 | sweep note digits
    """
    reader = find_experiment(name, storage)
    path = reader.root / _checked(filename)
    text = " ".join(words).strip()
    if edit:
        if text:
            raise ConfigError("give TEXT, which is added, or --edit, which opens the file, not both.")
        _edit(path)
        return
    if not text:
        text = _typed() if _is_terminal() else sys.stdin.read().strip()
    if not text:
        click.echo("nothing was written: the note is empty", err=True)
        return
    _append(path, text)
    click.echo(f"added to {path}")


def read_notes(root: Path) -> dict[str, str]:
    """Return what was written down about a sweep (`sweep note`), by file name: `notes.md` first."""
    files = [path for path in root.iterdir() if path.suffix in (".md", ".txt") and path.is_file()]
    mine = [path for path in files if not path.name.startswith((".", "pbt_"))]  # a scheduler's own log is no note
    ordered = sorted(mine, key=lambda path: (path.name != NOTES, path.name))
    found = {path.name: path.read_text(encoding="utf-8", errors="replace").strip() for path in ordered}
    return {name: text for name, text in found.items() if text}


def _checked(filename: str) -> str:
    if _NAME.fullmatch(filename) is None:
        raise ConfigError(
            f"--filename {clean(filename)!r} is no name of a note; expected one such as {NOTES} or todo.txt."
        )
    return filename


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _typed() -> str:
    try:
        return (click.edit("") or "").strip()
    except click.ClickException as error:
        raise ConfigError(f"{error.message}. Set EDITOR, or give the text: sweep note NAME TEXT.") from error


def _edit(path: Path) -> None:
    if not _is_terminal():
        raise ConfigError("--edit needs a terminal. Give the text instead: sweep note NAME TEXT.")
    try:
        path.touch()
        click.edit(filename=str(path))
    except click.ClickException as error:
        raise ConfigError(f"{error.message}. Set EDITOR, or edit {path} yourself.") from error
    except OSError as error:
        raise ExperimentError(f"{path} cannot be written: {error.strerror or error}.") from error
    if path.stat().st_size == 0:
        path.unlink()


def _append(path: Path, text: str) -> None:
    try:
        is_begun = path.exists() and path.stat().st_size > 0
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{chr(10) if is_begun else ''}## {time.strftime('%Y-%m-%d %H:%M:%S')}\n\n{text}\n")
    except OSError as error:
        raise ExperimentError(f"{path} cannot be written: {error.strerror or error}.") from error
