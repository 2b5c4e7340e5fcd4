"""The text of log files: lines of JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from functools import partial
from typing import Any

from sweep.core.literals import jsonable

plain = partial(jsonable, is_strict=False)  # NaN and infinities stay what they are, as in Tune's files


def to_json(value: Any) -> str:
    """Return `value` as JSON text on one line, as `plain` would have it."""
    try:
        return json.dumps(value, default=plain)
    except (TypeError, ValueError):  # keys that JSON does not know, whole numbers beyond what Python prints
        return json.dumps(plain(value))


def csv_line(values: Iterable[Any]) -> str:
    """Return one line of CSV, in which a carriage return is quoted, too."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(values)
    return line.getvalue()[:-2] + "\n"
