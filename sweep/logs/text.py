"""The text of log files: lines of JSON and CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from sweep.core.results import flatten
from sweep.core.values import is_held, printed, shown_int

_encoder = json.JSONEncoder(default=lambda value: plain(value))
_MOST_ITEMS = 10_000  # of an array that is written out, with each report of its trial
_LONG = 100_000


def to_json(value: Any) -> str:
    """Return `value` as JSON text on one line, as `plain` would have it."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError):  # keys that JSON does not know, whole numbers beyond what Python prints
        return _encoder.encode(plain(value))


def json_line(result: Mapping[str, Any], config: str) -> str:
    """Return a line of `result.json`; `config` is JSON text already."""
    shown = to_json(dict(result))
    return f'{shown[:-1]}{", " if len(shown) > 2 else ""}"config": {config}}}\n'


def plain(value: Any) -> Any:
    """Return `value` in terms that JSON knows; what it does not know, and an array of very many items, as text."""
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int):
        return value if is_held(value) else shown_int(value)
    if isinstance(value, Mapping):
        return {printed(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    np = sys.modules.get("numpy")  # no value is one of numpy's before it was imported
    if np and isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "biufU":
        return plain(value.tolist()) if value.size <= _MOST_ITEMS else printed(value)
    return printed(value)


def params_text(config: Mapping[str, Any]) -> str:
    """Return what `params.json` says; on one line if that is very long, which Python encodes 20 times faster."""
    values = plain(config)
    text = json.dumps(values, sort_keys=True)
    return (json.dumps(values, indent=2, sort_keys=True) if len(text) <= _LONG else text) + "\n"


_SCALARS = frozenset({float, int, str, bool, type(None)})


def csv_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `progress.csv` says of a report, by column."""
    row = dict(result)
    if not _SCALARS.issuperset(map(type, row.values())):
        row = flatten(row)
    row.pop("config", None)
    return row


def csv_line(values: Iterable[Any]) -> str:
    """Return one line of CSV: what `csv.writer` gives, at a third of the time."""
    cells = []
    for value in values:
        kind = type(value)
        if kind is float or kind is int:
            cells.append(repr(value))
        elif value is None:
            cells.append("")
        else:
            cell = str(value)
            if '"' in cell:
                cell = cell.replace('"', '""')
                cells.append(f'"{cell}"')
            elif "," in cell or "\n" in cell or "\r" in cell:
                cells.append(f'"{cell}"')
            else:
                cells.append(cell)
    return ",".join(cells) + "\n" if len(cells) != 1 or cells[0] else '""\n'


def csv_columns(text: str) -> dict[str, None]:
    """Return the columns of a file, in order; none of an empty one."""
    return dict.fromkeys(next(csv.reader(_csv_lines(text)[:1]), []))


def widened_csv(text: str, columns: Iterable[str], number: int) -> str:
    """Return a file with another header, and `number` empty cells at the end of each row."""
    rows = _csv_lines(text)[1:]
    return "".join([csv_line(columns), *(f"{row}{',' * number}\n" for row in rows)])


def _csv_lines(text: str) -> list[str]:
    lines, parts, is_quoted = [], [], False
    for part in text.split("\n")[:-1]:
        parts.append(part)
        is_quoted ^= part.count('"') % 2 == 1
        if not is_quoted:  # else the line goes on
            lines.append("\n".join(parts))
            parts = []
    return lines
