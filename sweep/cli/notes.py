"""`sweep note`: write something down about a sweep, into a file beside its record."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import click

from sweep.cli.options import name_argument, where_option
from sweep.cli.tables import json_option, say
from sweep.display.formats import clean
from sweep.errors import ConfigError, ExperimentError
from sweep.record.reader import ExperimentReader

NOTES = "notes.md"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(md|txt)")


@click.command(short_help="Write something down about a sweep.")
@name_argument
@click.argument("words", nargs=-1, metavar="[TEXT]...")
@click.option("--edit", is_flag=True, help="Open the file with all its notes in $EDITOR.")
@click.option("--filename", metavar="FILE", default=NOTES, show_default=True, help="Which file: *.md or *.txt.")
@json_option()
@where_option
def note(reader: ExperimentReader, words: tuple[str, ...], edit: bool, filename: str, as_json: bool) -> None:
    """Write something down about a sweep: TEXT is added to a file in its directory, with the date. `sweep show NAME`
    prints it.

    Without TEXT an editor is opened ($VISUAL or $EDITOR); in a pipe the text is read from standard input.

    \b
    Examples:
      sweep note digits "gelu is better from 10 epochs on"
      sweep note digits --edit
      git log -1 | sweep note digits
    """
    if _NAME.fullmatch(filename) is None:
        raise ConfigError(f"--filename {clean(filename)!r} is no name of a note, such as {NOTES} or todo.txt.")
    path = reader.root / filename
    text = " ".join(words).strip()
    if edit and text:
        raise ConfigError("give TEXT, which is added, or --edit, which opens the file, not both.")
    if edit and not _is_terminal():
        raise ConfigError("--edit needs a terminal. Give the text instead: sweep note NAME TEXT.")
    try:
        if edit:
            path.touch()
            click.edit(filename=str(path))
            if path.stat().st_size == 0:
                path.unlink()
            return
        text = text or ((click.edit("") or "") if _is_terminal() else sys.stdin.read()).strip()
        if not text:
            click.echo("nothing was written: the note is empty", err=True)
            return
        is_begun = path.exists() and path.stat().st_size > 0
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{chr(10) if is_begun else ''}## {time.strftime('%Y-%m-%d %H:%M:%S')}\n\n{text}\n")
    except click.ClickException as error:
        instead = f"edit {path} yourself." if edit else "give the text: sweep note NAME TEXT."
        raise ConfigError(f"{error.message}. Set EDITOR, or {instead}") from error
    except OSError as error:
        raise ExperimentError(f"{path} cannot be written: {error.strerror or error}.") from error
    say(reader, "note", f"added to {path}", as_json)


def read_notes(root: Path) -> dict[str, str]:
    """Return what was written down about a sweep (`sweep note`), by file name: `notes.md` first."""
    files = [path for path in root.iterdir() if path.suffix in (".md", ".txt") and path.is_file()]
    mine = [path for path in files if not path.name.startswith((".", "pbt_"))]  # a scheduler's own log is no note
    mine.sort(key=lambda path: (path.name != NOTES, path.name))
    return {path.name: text for path in mine if (text := path.read_text(encoding="utf-8", errors="replace").strip())}


def _is_terminal() -> bool:
    return sys.stdin.isatty()
