"""Metrics in files that grow while a program runs: CSV files, lines of JSON and event files of TensorBoard."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from sweep.programs.events import read_events
from sweep.programs.naming import TIMES, time_name

_MOST_BYTES, _MOST_BYTES_AT_END = 1_000_000, 64_000_000  # of one file in one poll, and when the program has ended
_MOST_FILES, _MOST_DIRECTORIES = 1_000, 5_000
_MOST_ENTRIES = 5_000  # that are looked through at each poll; of twice as many, at every second, and so on
_REMEMBERED_ROWS = 50_000  # of a CSV file: they are compared if it is written anew
_TAIL = 64  # bytes
_TICK_S = 0.05  # the time of a file can lag behind the clock
_UNREAD = frozenset(("__pycache__", "node_modules", "site-packages"))

_Values = tuple[dict[str, Any], float | None]


class Files:
    """Reader of what a program writes into files below some directories. Make it before the program starts.

    What a file held before `began` is not read. Links are not followed, hidden directories not entered.

    Args:
        began: seconds since the epoch.
        report: the file of `SWEEP_REPORT`, of lines of JSON; none if empty.
    """

    def __init__(self, directories: Sequence[str], began: float, report: str = "") -> None:
        self._directories, self._began = directories, began - _TICK_S
        self._files: dict[str, _File] = {report: _Json(report)} if report else {}
        self._num_waits = 0
        self._scan()

    def poll(self, *, is_last: bool = False) -> Iterator[tuple[dict[str, Any], float | None, str]]:
        """Give what has come since the last call: values, the step of an event (else it is among them), the file.

        An unfinished line waits, unless `is_last`: the program has ended. At most 1 MB of a file is read at once.
        """
        self._num_waits -= 1
        if self._num_waits < 0 or is_last:
            self._scan()
        for file in list(self._files.values()):
            for values, step in file.more(is_last):
                yield values, step, file.path

    def _scan(self) -> None:
        """Look for new files; where there is much to look through, that is done at few polls."""
        count = 0
        for top in self._directories:
            for directory, inner, names in itertools.islice(os.walk(os.path.abspath(top)), _MOST_DIRECTORIES):
                count += 10 + len(inner) + len(names)
                inner[:] = [name for name in inner if not name.startswith(".") and name not in _UNREAD]
                for name in names:
                    if name.endswith((".csv", ".jsonl")) or "tfevents" in name:
                        self._find(os.path.join(directory, name))
        self._num_waits = count // _MOST_ENTRIES

    def _find(self, path: str) -> None:
        if path not in self._files:
            with contextlib.suppress(OSError):  # it is gone
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    self.follow(path, is_old=status.st_mtime < self._began)

    def follow(self, path: str, *, is_old: bool = False) -> None:
        """Read one more file; of one that is old, what comes from now on."""
        if path in self._files or len(self._files) >= _MOST_FILES:
            return
        file = {"csv": _Csv, "jsonl": _Json}.get(path.rpartition(".")[2], _Events)(path)
        if is_old:
            file.skip()
        self._files[path] = file


class _File:
    """A file of lines and how far it has been read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._tail = b""  # what stands before the offset, unless somebody writes the file anew
        self._seen: tuple[int, ...] = ()

    def skip(self) -> None:
        """Pass over what the file holds now."""
        with contextlib.suppress(OSError), open(self.path, "rb") as stream:  # as in `more`
            self._pass_to(stream, stream.seek(0, os.SEEK_END))

    def more(self, is_last: bool) -> list[_Values]:
        """Return what has come; nothing if the file is damaged, gone or not ours to read."""
        found: list[_Values] = []
        with contextlib.suppress(OSError):
            status = os.stat(self.path)
            seen = (status.st_ino, status.st_size, status.st_mtime_ns, is_last)
            if seen == self._seen:
                return found
            with open(self.path, "rb") as stream:
                stream.seek(self._offset - len(self._tail))
                if status.st_size < self._offset or stream.read(len(self._tail)) != self._tail:
                    self._offset = 0
                most = _MOST_BYTES_AT_END if is_last else _MOST_BYTES
                is_all = status.st_size - self._offset <= most
                found, end = self._read(stream, most, is_last)
                self._pass_to(stream, end)
            self._seen = seen if is_all else ()
        return found

    def _pass_to(self, stream: BinaryIO, offset: int) -> None:
        self._offset = offset
        stream.seek(max(0, offset - _TAIL))
        self._tail = stream.read(min(_TAIL, offset))

    def _read(self, stream: BinaryIO, most: int, is_last: bool) -> tuple[list[_Values], int]:
        stream.seek(self._offset)
        data = stream.read(most)
        if not is_last:
            data = data[: data.rfind(b"\n") + 1 or len(data) // most * most]  # a line of 1 MB is given up
        lines = data.decode(errors="replace").lstrip("\ufeff").split("\n")
        found = [self._line(line) for line in lines if line.strip()]
        return [(values, None) for values in found if values], self._offset + len(data)

    def _line(self, line: str) -> dict[str, Any]:
        raise NotImplementedError


class _Json(_File):
    def _line(self, line: str) -> dict[str, Any]:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}


class _Csv(_File):
    """A table below a line with names. Of one written anew, as loggers do to add columns, changes count."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._names: list[str] = []
        self._delimiter = ","
        self._rows: list[dict[str, str]] = []  # the first ones, as they were last
        self._index = 0

    def skip(self) -> None:
        super().skip()
        if self._offset:
            with open(self.path, errors="replace") as stream:
                while not self._names and (line := stream.readline(_MOST_BYTES)):
                    self._line(line)

    def _read(self, stream: BinaryIO, most: int, is_last: bool) -> tuple[list[_Values], int]:
        if not self._offset:
            self._names, self._index = [], 0
        return super()._read(stream, most, is_last)

    def _line(self, line: str) -> dict[str, Any]:
        if line[0] == "#":  # as in Stable-Baselines' monitor.csv
            return {}
        if not self._names:
            self._delimiter = max(",;\t", key=line.count)
            self._names = ["" if _float(cell) is not None else time_name(cell) for cell in self._cells(line)]
            return {}
        row = {name: cell for name, cell in zip(self._names, self._cells(line), strict=False) if name and cell}
        known = self._rows[self._index] if self._index < len(self._rows) else {}
        if not known.items() <= row.items():  # another table
            known = {}
            del self._rows[self._index :]
        if self._index < _REMEMBERED_ROWS:
            self._rows[self._index : self._index + 1] = [row]
        self._index += 1
        new = {name: _float(cell) for name, cell in row.items() if name in TIMES or name not in known}
        values = {name: number for name, number in new.items() if number is not None}
        return {} if values.keys() <= TIMES else values

    def _cells(self, line: str) -> list[str]:
        try:
            return [cell.strip() for cell in next(csv.reader([line], delimiter=self._delimiter))]
        except csv.Error:
            return []


class _Events(_File):
    def _read(self, stream: BinaryIO, most: int, is_last: bool) -> tuple[list[_Values], int]:
        return read_events(stream, self._offset, most)


def _float(cell: str) -> float | None:
    try:
        return float(cell.replace(",", "."))
    except ValueError:
        return None
