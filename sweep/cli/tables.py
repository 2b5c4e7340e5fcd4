"""Print lists as a table for people, or as JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from sweep.callbacks.formats import clean, fit, text, width_of

__all__ = ["format_option", "json_text", "jsonable", "print_rows"]

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
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_csv_cell(row.get(name)) for name in columns] for row in rows)
    elif not rows:
        click.echo(empty)
    else:
        _print_table(rows, columns)


def json_text(value: Any) -> str:
    """Return JSON that every reader accepts: NaN and infinities as texts, unknown objects as their repr."""
    return json.dumps(jsonable(value), indent=2, ensure_ascii=False)


def jsonable(value: Any) -> Any:
    """Return `value` in terms of strict JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return repr(value)


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_text(value) if isinstance(value, (dict, list, tuple)) else value


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
        note = f"({len(hidden)} more columns: {', '.join(map(clean, hidden))}; --columns chooses, --format csv has all)"
        click.echo(fit(note, limit or 10_000), err=True)
