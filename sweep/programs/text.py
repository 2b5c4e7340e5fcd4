"""Metrics in what a training program prints, line by line, whatever the program is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from sweep.errors import ConfigError
from sweep.programs.naming import LETTER, TIMES, named, number_in, numbers_in, pairs_in, plain, time_name

_LONGEST, _LONGEST_JSON = 4_000, 1_000_000  # characters of a line that are read

# No expression may take more than linear time: a program can print anything.
_CONTROL = re.compile(r"\x08|\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)?|.)")
_HINT = re.compile(r"\d|\b(?:nan|NaN|NAN|inf|Inf)\b")
_BARRED = re.compile(r"\s*+[|│┃].*[|│┃]\s*+$")
_BAR = re.compile(r"\d%\||\d/\d+ \[[=>.]|━")


class Found(NamedTuple):
    """The numbers of one line, or of one table, by the names they were printed with. Words for time are spelt as in
    `TIMES`. `kind`: `json` (or a dict of Python), `bar` (of progress, printed often; it may say nothing), or `text`.
    """

    values: dict[str, float]
    kind: str = "text"


class Lines:
    """Reader of the lines of one stream; it remembers the head of a table, and the rows of one that has not ended.

    Args:
        pattern: a regular expression with groups `key`, `value` and perhaps `step`; nothing else counts then.

    Raises:
        ConfigError: the pattern is no such expression.
    """

    def __init__(self, pattern: str | None = None) -> None:
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"the pattern {pattern!r} is no regular expression: {error}.") from error
        if self._pattern and not {"key", "value"} <= self._pattern.groupindex.keys():
            raise ConfigError(f"the pattern {pattern!r} lacks key or value; expected (?P<key>\\w+): (?P<value>\\S+).")
        self._candidate = self._header = ""  # a line that could be the head of a table, and that of the last row
        self._section = ""
        self._rows: dict[str, float] = {}  # of a table of keys and values that has not ended

    def read(self, line: str) -> list[Found]:
        """Return what a line says, in order. Never raises."""
        if "\x1b" in line or "\b" in line:
            line = _CONTROL.sub("", line[:_LONGEST_JSON])
        if self._pattern is not None:
            return list(_matches(self._pattern, line[:_LONGEST]))
        if ("|" in line or "│" in line or "┃" in line) and _BARRED.match(line[:_LONGEST]):
            return self._barred(line[:_LONGEST].strip())
        if _HINT.search(line, 0, _LONGEST) is None:
            if LETTER.search(line, 0, _LONGEST):
                self._candidate = line[:_LONGEST]
            return self._ended() if self._rows else []
        return [*self._ended(), *((_dict(line) if "{" in line else None) or self._text(line[:_LONGEST]))]

    def _text(self, line: str) -> list[Found]:
        values, _ = pairs_in(line)
        is_bar = _BAR.search(line) is not None
        if values:
            return [Found(values, "bar" if is_bar else "text")]
        return self._row(line) or ([Found({}, "bar")] if is_bar else [])

    def _barred(self, line: str) -> list[Found]:
        """Read a row between bars: of keys and values, which are reported when their table ends, or below a head."""
        cells = [cell.strip() for cell in re.split("[|│┃]", line[1:-1])]
        number = number_in(cells[-1])
        if len(cells) != 2 or not cells[0] or number_in(cells[0]) is not None or (cells[1] and number is None):
            return [*self._ended(), *self._text("\t".join(cells))]
        if number is None:
            self._section = cells[0] if cells[0].endswith("/") else ""
        else:
            self._rows[(self._section if line[1:3] == "  " else "") + time_name(cells[0])] = number
        return []

    def _ended(self) -> list[Found]:
        rows, self._rows, self._section = self._rows, {}, ""
        return [Found(rows)] if rows else []

    def _row(self, line: str) -> list[Found]:
        """Read a row of numbers below a head with their names, in columns of blanks, tabs or commas."""
        line = re.split(r"(?<!\d)\d++%\|", line, maxsplit=1)[0]
        for header in (self._candidate, self._header):
            if header and (values := _columns(header, line)):
                self._header = header
                return [Found(values)]
        if LETTER.search(line):  # its names may have digits
            self._candidate = line
        return []


def same_name(a: str, b: str) -> bool:
    """Say whether two names of a metric differ only in case and in blanks, `_`, `-`, `/`, `.` and the like."""
    return a == b or plain(a) == plain(b)


def last_number(line: str) -> float | None:
    """Return the number of a line that has just one, as the last line of a program that prints its result."""
    numbers = numbers_in(_CONTROL.sub("", line[:_LONGEST]))
    return numbers[0] if len(numbers) == 1 else None


def _matches(pattern: re.Pattern[str], line: str) -> Iterator[Found]:
    for match in pattern.finditer(line):
        value, step = (number_in(match.groupdict().get(group) or "") for group in ("value", "step"))
        if match["key"] and value is not None:
            yield Found({match["key"].strip(): value} | ({} if step is None else {"step": step}))


def _dict(line: str) -> list[Found]:
    """Return the numbers of a JSON object or a Python dict, with the time that the text before it says."""
    start, end = line.find("{"), line.rfind("}", 0, _LONGEST_JSON)
    content = line[start : end + 1]
    for text in (content, re.sub(r"\b(?:None|True|False)\b", "null", content.replace("'", '"'))):
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            continue
        values, split = pairs_in(line[max(0, start - _LONGEST) : start])
        found = {name: values[name] for name in values.keys() & TIMES} | dict(_flat(inner, split))
        return [Found(found, "json")] if found else []
    return []


def _flat(inner: Any, split: str, path: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """Give the numbers of a JSON value, those of an inner object as `outer/inner`."""
    if isinstance(inner, dict) and depth < 5:
        for key, value in inner.items():
            yield from _flat(value, split, f"{path}/{key}" if path else str(key), depth + 1)
    elif path and not isinstance(inner, (bool, list)) and (number := number_in(str(inner)[:99])) is not None:
        yield named(time_name(path), split), number


def _columns(header: str, line: str) -> dict[str, float]:
    """Return the numbers of a row by the names above them; none if the two do not fit."""
    if separator := next((one for one in "\t,;" if one in header), ""):
        heads, cells = header.split(separator), line.split(separator)
    else:
        is_wide = re.search(r"\S\s\s+\S", header)
        names = list(re.finditer(r"\S+(?: \S+)*" if is_wide else r"\S+", header))
        tokens = list(re.finditer(r"\S+", line))
        heads, cells = [name[0] for name in names], [token[0] for token in tokens]
        if len(heads) != len(cells):  # a cell is empty, or a label stands before the first
            places = {name.start(): name[0] for name in names} | {-name.end(): name[0] for name in names}
            heads = [places.get(-token.end()) or places.get(token.start(), "") for token in tokens]
    label, values = "", dict[str, float]()
    for head, cell in zip(heads, cells, strict=False):
        name = time_name(head.strip(" :()\"'"))
        number = number_in(cell, name)
        if number is not None and LETTER.search(name):
            values.setdefault(name if name in TIMES else label + name, number)
        elif not values:  # of a class, say
            label += f"{cell.strip()} "
    return values if len(heads) == len(cells) and 1 < len(values) >= len(cells) / 2 else {}
