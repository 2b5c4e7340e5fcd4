"""Choose rows and columns of a list, and print it as a table for people, or as JSON or CSV for programs."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchers.errors import nearest, readable
from sweep.cli.conditions import condition_of
from sweep.core.literals import json_text
from sweep.core.values import sound_text
from sweep.display.formats import aligned, clean, fit, text, width_of
from sweep.errors import ConfigError
from sweep.record.reader import ExperimentReader

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]  # a row may lack some columns

FILES = (".csv", ".json", ".parquet", ".pkl")
_MAX_CELL = 40
_MIN_CELL = 8  # columns of a terminal that are worth the beginning of a text


def json_option(what: str = "Print one JSON object.") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option of every command that prints something; it gets `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def format_option(*styles: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options that say how something is printed; a command gets them as one argument, `style`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_style(style: str, as_json: bool, **options: Any) -> Any:
            return command(style="json" if as_json else style, **options)

        kinds = click.Choice(["table", *styles])
        how = "How it is printed."
        option = click.option("--format", "-f", "style", type=kinds, default="table", show_default=True, help=how)
        return option(json_option("Short for --format json.")(with_style))

    return decorate


@dataclass(frozen=True)
class Table:
    """A list with all its columns."""

    rows: Sequence[Row]
    columns: Sequence[str]  # those that are shown when none are chosen, in order
    more: Sequence[str] = ()  # those that are there when they are asked for
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of columns
    # Columns that a table leaves out without a word where no value passes; others that are empty it names.
    telling: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)

    def column(self, name: str) -> str:
        """Return the column that is meant by `name`."""
        known = [*self.columns, *self.more]
        meant = (name, name.removeprefix("config/"), f"config/{name}", name.replace(".", "/"), self.aliases.get(name))
        found = next((candidate for candidate in meant if candidate in known), None)
        if found is None:
            raise ConfigError(f"{name!r} is no column. {nearest(name, known).replace('Known: ', 'Columns: ')}")
        return found

    def is_telling(self, column: str, rows: Sequence[Row]) -> bool:
        """Whether a table of these rows shows a column by default."""
        passes = self.telling.get(column, lambda value: value not in (None, ""))
        return any(passes(row.get(column)) for row in rows)


class ListCommand(click.Command):
    """A command that lists something; it takes Tune's `--desc True` and `--desc False` for `--desc` and nothing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what was typed."""
        typed = "".join(f"{word}\0" for word in args)
        typed = re.sub(r"(?i)(?<![^\0])--desc[=\0]false\0", "", typed)
        typed = re.sub(r"(?i)(?<![^\0])--desc[=\0]true\0", "--desc\0", typed)
        return super().parse_args(ctx, typed.split("\0")[:-1])


def names(ctx: click.Context, parameter: click.Parameter, given: str | None) -> list[str]:
    return [name for part in (given or "").split(",") if (name := part.strip())]


def writable(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Return the name of a file, if its end says of what kind it is."""
    if given is not None and Path(given).suffix.lower() not in FILES:
        raise ConfigError(f"--output {given}: its name ends in no kind of file; expected one of {', '.join(FILES)}.")
    return given


_SELECTION = (
    click.option("--sort", metavar="A,B,...", callback=names, help="By columns, -COLUMN downwards; missing last."),
    click.option("--desc", is_flag=True, help="Downwards: the largest first."),
    click.option(
        "--filter",
        "filters",
        multiple=True,
        metavar="'COLUMN OP VALUE'",
        help="Only rows for which this holds; OP is <, <=, =, ==, !=, >= or >. May be given again.",
    ),
    click.option("--columns", metavar="A,B,...", callback=names, help="Which columns, in this order."),
    click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most so many rows."),
    click.option(
        "--output", "-o", metavar="FILE", callback=writable, help=f"Also write the list to a file: {', '.join(FILES)}."
    ),
    format_option("json", "csv"),
)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a list, which `print_table` takes."""
    for option in reversed(_SELECTION):
        command = option(command)
    return command


def print_table(
    table: Table,
    *,
    empty: str,
    sort: Sequence[str],
    desc: bool,
    filters: Sequence[str],
    columns: Sequence[str],
    limit: int | None,
    output: str | None,
    style: str,
) -> None:
    """Print what is chosen of a table, and write it to a file when one is named; the arguments are the options."""
    rows = list(table.rows)
    for condition in filters:
        rows = list(filter(condition_of(condition, table)[1], rows))
    if desc and not sort:
        rows.reverse()
    for name in reversed(sort):  # sorting is stable, so the first column counts most
        rows = _sorted(rows, table.column(name.removeprefix("-")), downwards=desc or name.startswith("-"))
    rows = rows[:limit]
    shown = list(dict.fromkeys(map(table.column, columns))) or list(table.columns)
    if output is not None:
        _write(rows, shown, Path(output).expanduser().absolute(), output)
    left_out: list[str] = []
    if not columns and style == "table" and rows:
        left_out = [name for name in shown if not table.is_telling(name, rows)]
    print_rows(rows, [name for name in shown if name not in left_out], style, empty=empty)
    if named := [clean(name) for name in left_out if name not in table.telling]:
        _note(f"(empty columns left out: {', '.join(named)})")


def print_rows(rows: Sequence[Row], columns: Sequence[str], style: str, *, empty: str = "nothing to show") -> None:
    """Print rows; in a table a terminal's width is never exceeded: the last columns are left out, and that is said."""
    if style == "json":
        emit(json_text([{name: row.get(name) for name in columns} for row in rows]) + "\n")
    elif style == "csv":
        emit(_csv_text(rows, columns))
    elif not rows:
        click.echo(empty)
    else:
        _print_table(rows, columns)


def emit(content: str) -> None:
    """Print what programs read as it is; on a terminal without what would steer that."""
    sys.stdout.write(readable(content) if sys.stdout.isatty() else content)


def say(reader: ExperimentReader, verb: str, said: str, as_json: bool) -> None:
    """Print what came of something that was asked of a sweep."""
    facts = {"experiment": reader.name, "verb": verb, "said": sound_text(said)}
    emit(f"{json.dumps(facts, ensure_ascii=False) if as_json else clean(said)}\n")


# --- which rows ---


def _sorted(rows: Sequence[Row], column: str, *, downwards: bool) -> list[Row]:
    """Return the numbers and the texts, each in order, then what is missing."""
    numbers: list[Row] = []
    texts: list[Row] = []
    missing: list[Row] = []
    for row in rows:
        value = row.get(column)
        is_missing = value in (None, "") or value != value
        (missing if is_missing else numbers if isinstance(value, (int, float)) else texts).append(row)
    numbers.sort(key=lambda row: row[column], reverse=downwards)
    texts.sort(key=lambda row: str(row[column]), reverse=downwards)
    return numbers + texts + missing


# --- files ---


def _write(rows: Sequence[Row], columns: Sequence[str], path: Path, given: str) -> None:
    from sweep.results.frames import metrics_frame

    chosen = [{name: row.get(name) for name in columns} for row in rows]
    match path.suffix.lower():
        case ".csv":
            write_file(path, given, _csv_text(chosen, columns))
        case ".json":
            write_file(path, given, json_text(chosen) + "\n")
        case _:
            write_file(path, given, metrics_frame(chosen, columns))
    _note(f"(wrote {len(rows)} rows and {len(columns)} columns to {path})")


def write_file(path: Path, given: str, content: str | pd.DataFrame) -> None:
    """Write a text, or a dataframe as one of `FILES`, to where the user has said by `given`."""
    kind = path.suffix.lower()
    try:
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif kind == ".csv":
            content.to_csv(path, index=False)
        elif kind == ".json":
            shown = content.astype(object).where(content.notna(), None)
            path.write_text(json_text(shown.to_dict("records")) + "\n", encoding="utf-8")
        elif kind == ".pkl":
            content.to_pickle(path)
        else:
            content.to_parquet(path)
    except ImportError as error:
        raise ConfigError(f"--output {given} needs pyarrow: pip install pyarrow, or write .csv.") from error
    except OSError as error:
        raise ConfigError(f"--output {given} cannot be written: {error.strerror or error}.") from error


def _csv_text(rows: Sequence[Row], columns: Sequence[str]) -> str:
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(map(sound_text, columns))
    writer.writerows([_csv_cell(row.get(name)) for name in columns] for row in rows)
    return content.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return sound_text(value)
    return value if value is None or isinstance(value, float) else json_text(value)


# --- tables ---


def _print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    cells = {name: [clean(name), *(fit(text(row.get(name)), _MAX_CELL) for row in rows)] for name in columns}
    last = columns[-1]  # a reason, often: cut by the terminal only
    cells[last][1:] = [text(row.get(last)) for row in rows]
    numbers = {name for name in columns if all(isinstance(row.get(name), (int, float, type(None))) for row in rows)}
    shown, room = list(columns), math.inf if limit is None else limit
    for index, name in enumerate(columns):
        width = max(map(width_of, cells[name]))
        if width > room and index:
            shown = shown[: index + (room >= _MIN_CELL and name not in numbers)]
            break
        room -= width + 2
    right = {index for index, name in enumerate(shown) if name in numbers}
    lines = aligned(list(zip(*(cells[name] for name in shown), strict=True)), right)
    for line in lines:  # each by itself: a reader of only the first few closes the pipe
        click.echo(line if limit is None else fit(line, limit))
    hidden = [clean(name) for name in columns if name not in shown]
    if hidden:
        _note(f"({len(hidden)} more columns: {', '.join(hidden)}; --columns chooses, --format csv has all)")


def _note(line: str) -> None:
    """Say something about a list where it does not get into what a program reads."""
    click.echo(fit(line, 2_000), err=True)
