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
from typing import Any

import click

from sweep.cli.ranges import parse_literal
from sweep.core.values import is_held, printed, shown, shown_int, sound_text
from sweep.display.formats import clean, fit, text, width_of
from sweep.errors import ConfigError, nearest

__all__ = [
    "FILES",
    "ListCommand",
    "Selection",
    "Table",
    "format_option",
    "is_filled",
    "json_text",
    "jsonable",
    "print_rows",
    "print_table",
    "selection_options",
]

FILES = (".csv", ".json", ".parquet", ".pkl")
_MAX_CELL = 40

format_option = click.option(
    "--format",
    "-f",
    "style",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How the list is printed.",
)


@dataclass(frozen=True)
class Table:
    """A list with all its columns.

    Attributes:
        columns: those that are shown when none are chosen, in order.
        more: those that are there when they are asked for.
        aliases: other names of columns.
        texts: columns whose values are compared as texts, whatever they look like.
        silent: columns that a table leaves out without a word when `is_telling` says so.
        is_telling: whether a table shows a column unasked; None: one that is not empty.
    """

    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[str]
    more: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    texts: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    is_telling: Callable[[str, Sequence[Mapping[str, Any]]], bool] | None = None

    def column(self, name: str) -> str:
        """Return the column that is meant by `name`.

        Raises:
            ConfigError: there is none; the nearest and all others are named.
        """
        known = [*self.columns, *self.more]
        for candidate in (
            name,
            name.removeprefix("config/"),
            f"config/{name}",
            name.replace(".", "/"),
            self.aliases.get(name, name),
        ):
            if candidate in known:
                return candidate
        raise ConfigError(f"{name!r} is no column. {nearest(name, known).replace('Known: ', 'Columns: ')}")


@dataclass(frozen=True)
class Selection:
    """What of a list is wanted, and how.

    Attributes:
        sort: columns to sort by, the first counts most; `-COLUMN` downwards.
        is_descending: all of them downwards.
        filters: conditions that must all hold.
        columns: which, in this order; empty: the usual ones.
        limit: at most so many rows; None: all.
        output: a file to write the list to as well; None: none.
        style: table, json or csv.
    """

    sort: tuple[str, ...] = ()
    is_descending: bool = False
    filters: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    limit: int | None = None
    output: str | None = None
    style: str = "table"


class ListCommand(click.Command):
    """A command that lists something; it takes Tune's `--desc True` and `--desc False` for `--desc` and nothing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what was typed."""
        kept: list[str] = []
        waiting = list(args)
        while waiting:
            word = waiting.pop(0)
            name, has_value, value = word.partition("=")
            if name == "--desc":
                if not has_value and waiting and waiting[0].lower() in ("true", "false"):
                    value = waiting.pop(0)
                if value.lower() == "false":
                    continue
                word = "--desc" if value.lower() in ("", "true") else word
            kept.append(word)
        return super().parse_args(ctx, kept)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a list; it gets them as one argument, `chosen`."""

    @functools.wraps(command)
    def with_selection(
        *,
        sort: str | None,
        desc: bool,
        filters: tuple[str, ...],
        columns: str | None,
        limit: int | None,
        output: str | None,
        style: str,
        **others: Any,
    ) -> Any:
        chosen = Selection(_names(sort), desc, filters, _names(columns), limit, output, style)
        if output is not None:
            _check_suffix(output)
        return command(chosen=chosen, **others)

    options = (
        click.option("--sort", metavar="A,B,...", help="Sort by columns, -COLUMN downwards; missing values come last."),
        click.option("--desc", is_flag=True, help="Downwards: the largest first."),
        click.option(
            "--filter",
            "filters",
            multiple=True,
            metavar="'COLUMN OP VALUE'",
            help="Only rows for which this holds; OP is <, <=, =, ==, !=, >= or >. May be given again.",
        ),
        click.option("--columns", metavar="A,B,...", help="Which columns, in this order."),
        click.option("--limit", metavar="N", type=click.IntRange(min=0), help="At most so many rows."),
        click.option("--output", "-o", metavar="FILE", help=f"Also write the list to a file: {', '.join(FILES)}."),
        format_option,
    )
    decorated: Callable[..., Any] = with_selection
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def print_table(table: Table, chosen: Selection, *, empty: str) -> None:
    """Print what is chosen of a table, and write it to a file when one is named.

    Raises:
        ConfigError: an unknown column, a condition that cannot be read, a file that cannot be written.
    """
    rows = list(table.rows)
    for condition in chosen.filters:
        column, holds = _condition(condition, table)
        rows = [row for row in rows if holds(row.get(column))]
    if chosen.is_descending and not chosen.sort:
        rows.reverse()
    for name in reversed(chosen.sort):  # sorting is stable, so the first column counts most
        column = table.column(name.removeprefix("-"))
        rows = _sorted(rows, column, downwards=chosen.is_descending or name.startswith("-"))
    rows = rows[: chosen.limit]
    columns = list(dict.fromkeys(map(table.column, chosen.columns))) or list(table.columns)
    if chosen.output is not None:
        _write(rows, columns, chosen.output)
    left_out: list[str] = []
    if not chosen.columns and chosen.style == "table" and rows:
        is_telling = table.is_telling or is_filled
        left_out = [name for name in columns if not is_telling(name, rows)]
        columns = [name for name in columns if name not in left_out]
    print_rows(rows, columns, chosen.style, empty=empty)
    named = [name for name in left_out if name not in table.silent]
    if named:
        _note(f"(empty columns left out: {', '.join(map(clean, named))})")


def is_filled(column: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any row has something in a column."""
    return any(row.get(column) not in (None, "") for row in rows)


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], style: str, *, empty: str = "nothing to show"
) -> None:
    """Print rows; in a table a terminal's width is never exceeded: the last columns are left out, and that is said.

    Args:
        columns: which, and in which order; a row may lack some.
        style: table, json (a list of objects) or csv. Numbers are rounded in tables only.
        empty: what a table without rows says.
    """
    if style == "json":
        click.echo(json_text([{name: row.get(name) for name in columns} for row in rows]))
    elif style == "csv":
        _write_csv(rows, columns, sys.stdout)
    elif not rows:
        click.echo(empty)
    else:
        _print_table(rows, columns)


def json_text(value: Any) -> str:
    """Return JSON that every reader accepts: NaN and infinities as texts, unknown objects as their repr."""
    return sound_text(json.dumps(jsonable(value), indent=2, ensure_ascii=False))


def jsonable(value: Any) -> Any:
    """Return `value` in terms of strict JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if type(value) is int:
        return value if is_held(value) else shown_int(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return shown(value, 10_000)


# --- which rows ---

_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "!=": lambda a, b: a != b,
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "=": lambda a, b: a == b,
}


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name for part in (given or "").split(",") if (name := part.strip()))


def _condition(condition: str, table: Table) -> tuple[str, Callable[[Any], bool]]:
    match = re.fullmatch(r"\s*(.+?)\s*(<=|>=|!=|==|<|>|=)\s*(.*?)\s*", condition)
    if match is None:
        raise ConfigError(f"--filter {condition!r} is no condition; expected COLUMN OP VALUE, such as lr<0.01.")
    column, compare = table.column(match[1]), _OPERATORS[match[2]]
    wanted: Any = match[3].strip("'\"") if column in table.texts else parse_literal(match[3])
    is_order = match[2] in ("<", "<=", ">", ">=")

    def holds(value: Any) -> bool:
        if column == "trial" and str(wanted).isdigit():
            return compare(int(value), int(wanted))
        if value is None or wanted is None:
            return not is_order and compare(value, wanted)
        is_number = isinstance(value, (int, float)) and isinstance(wanted, (int, float))
        if is_order and not is_number and not (isinstance(value, str) and isinstance(wanted, str)):
            return False
        return compare(value, wanted) if is_number else compare(text(value), text(wanted))

    return column, holds


def _sorted(rows: list[Mapping[str, Any]], column: str, *, downwards: bool) -> list[Mapping[str, Any]]:
    def is_missing(row: Mapping[str, Any]) -> bool:
        value = row.get(column)
        return value is None or value != value or value == ""

    numbers = [row for row in rows if isinstance(row.get(column), (int, float)) and not is_missing(row)]
    texts = [row for row in rows if not isinstance(row.get(column), (int, float)) and not is_missing(row)]
    numbers.sort(key=lambda row: row[column], reverse=downwards)
    texts.sort(key=lambda row: str(row[column]), reverse=downwards)
    return numbers + texts + [row for row in rows if is_missing(row)]


# --- files ---


def _check_suffix(output: str) -> None:
    suffix = Path(output).suffix.lower()
    if suffix not in FILES:
        raise ConfigError(
            f"--output {output}: {suffix or 'a name without suffix'} is no kind of file that can be written; expected "
            f"one of {', '.join(FILES)}."
        )


def _write(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: str) -> None:
    path = Path(output).expanduser().absolute()
    chosen = [{name: row.get(name) for name in columns} for row in rows]
    try:
        match path.suffix.lower():
            case ".csv":
                with io.StringIO() as content:
                    _write_csv(chosen, columns, content)
                    path.write_text(content.getvalue(), encoding="utf-8")
            case ".json":
                path.write_text(json_text(chosen) + "\n", encoding="utf-8")
            case ".pkl":
                _frame(chosen, columns).to_pickle(path)
            case _:
                _frame(chosen, columns).to_parquet(path)
    except ImportError as error:
        package = "pyarrow" if path.suffix.lower() == ".parquet" else "pandas"
        raise ConfigError(f"--output {output} needs {package}: pip install {package}, or write .csv.") from error
    except OSError as error:
        raise ConfigError(f"--output {output} cannot be written: {error.strerror or error}.") from error
    counts = [f"{len(some)} {word}{'s' * (len(some) != 1)}" for some, word in ((rows, "row"), (columns, "column"))]
    _note(f"(wrote {' and '.join(counts)} to {path})")


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    from sweep.results.frames import metrics_frame

    return metrics_frame(rows, columns)


def _write_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], file: Any) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(sound_text, columns))
    writer.writerows([_csv_cell(row.get(name)) for name in columns] for row in rows)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return json_text(value)
    return sound_text(printed(value)) if isinstance(value, (str, int)) else value


# --- tables ---


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    cells = {name: [fit(text(row.get(name)), _MAX_CELL) for row in rows] for name in columns}
    cells[columns[-1]] = [text(row.get(columns[-1])) for row in rows]  # a reason, often: cut by the terminal only
    widths = {name: max(width_of(clean(name)), *map(width_of, cells[name])) for name in columns}
    is_number = {name: all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in columns}
    limit = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    shown, used = list(columns), 0
    if limit is not None:
        for index, name in enumerate(columns):
            used += widths[name] + 2
            if used - 2 > limit and index:
                fits = limit - (used - widths[name] - 2)
                shown = list(columns[: index + 1]) if fits >= 8 and not is_number[name] else list(columns[:index])
                break
    for number in range(-1, len(rows)):
        parts = []
        for name in shown:
            cell = clean(name) if number < 0 else cells[name][number]
            pad = " " * (widths[name] - width_of(cell))
            parts.append(pad + cell if is_number[name] else cell + pad)
        line = "  ".join(parts).rstrip()
        click.echo(line if limit is None else fit(line, limit))
    hidden = [name for name in columns if name not in shown]
    if hidden:
        _note(f"({len(hidden)} more columns: {', '.join(map(clean, hidden))}; --columns chooses, --format csv has all)")


def _note(line: str) -> None:
    """Say something about a list where it does not get into what a program reads."""
    click.echo(fit(line, 2_000), err=True)
