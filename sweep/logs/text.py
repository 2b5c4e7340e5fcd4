"""The text of log files: lines of JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sweep.core.results import flatten
from sweep.core.values import is_held, printed, shown_int

_encoder = json.JSONEncoder(default=lambda value: plain(value))
_MOST_ITEMS = 10_000  # of an array that is written out, with each report of its trial
_LONG = 100_000
_is_quoted = re.compile('[",\r\n]').search


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


def csv_line(values: Iterable[Any]) -> str:
    """Return one line of CSV: what `csv.writer` gives, but that a carriage return is quoted, too."""
    cells = ["" if value is None else str(value) for value in values]
    line = ",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' if _is_quoted(cell) else cell for cell in cells)
    return f"{line}\n" if cells != [""] else '""\n'


def csv_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `progress.csv` says of a report, by column."""
    row = flatten(result)
    row.pop("config", None)
    return row


def csv_columns(text: str) -> dict[str, None]:
    """Return the columns of a file, in order; none of an empty one."""
    return dict.fromkeys(next(csv.reader(io.StringIO(text, newline="")), []))


def widened_csv(text: str, columns: Collection[str]) -> str:
    """Return a file with more columns, which are empty in its rows."""
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    empty = [""] * len(columns)
    return "".join(map(csv_line, [columns, *([*row, *empty[len(row) :]] for row in rows)]))
