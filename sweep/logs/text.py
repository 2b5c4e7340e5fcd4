"""The text of log files: lines of JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from sweep.core.values import is_held, printed, shown_int

_MOST_ITEMS = 10_000  # of an array that is written out, with each report of its trial


def to_json(value: Any) -> str:
    """Return `value` as JSON text on one line, as `plain` would have it."""
    try:
        return json.dumps(value, default=plain)
    except (TypeError, ValueError):  # keys that JSON does not know, whole numbers beyond what Python prints
        return json.dumps(plain(value))


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


def csv_line(values: Iterable[Any]) -> str:
    """Return one line of CSV, in which a carriage return is quoted, too."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(values)
    return line.getvalue()[:-2] + "\n"
