"""Metrics in files that grow while a program runs: CSV files, lines of JSON and event files of TensorBoard."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from sweep.programs.events import read_events
from sweep.programs.naming import TIMES, time_name

_MOST_BYTES, _MOST_BYTES_AT_END = 1_000_000, 64_000_000  # of one file in one poll, and when the program has ended
_MOST_FILES, _MOST_DIRECTORIES, _DEEPEST = 1_000, 5_000, 8
_REMEMBERED_BYTES = 4_000_000  # of a CSV file: its rows are compared if it is written anew
_TAIL = 64  # bytes
_TICK_S = 0.05  # the time of a file can lag behind the clock
_YOUNG_S = 2.0  # a directory that changed so lately may change again without a new time
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
        self._began = began - _TICK_S
        # Depth, time of the last change, and how many polls to wait: it takes a while to go through a large one.
        self._directories: dict[str, tuple[int, int, int]] = {}
        self._files: dict[str, _File] = {report: _Json(report)} if report else {}
        for directory in directories:
            self._scan(os.path.abspath(directory), 0)

    def poll(self, *, is_last: bool = False) -> Iterator[tuple[dict[str, Any], float | None, str]]:
        """Give what has come since the last call: values, the step of an event (else it is among them), the file.

        An unfinished line waits, unless `is_last`: the program has ended. At most 1 MB of a file is read at once.
        """
        for directory, (depth, changed, wait) in list(self._directories.items()):
            if wait and not is_last:
                self._directories[directory] = (depth, changed, wait - 1)
            elif _changed(directory) != changed or time.time() - changed / 1e9 < _YOUNG_S:
                self._scan(directory, depth)
        for file in list(self._files.values()):
            for values, step in file.more(is_last):
                yield values, step, file.path

    def _scan(self, directory: str, depth: int) -> None:
        changed, count = _changed(directory), 0
        self._directories[directory] = (depth, changed, 0)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    count += 1
                    if entry.name.endswith((".csv", ".jsonl")) or "tfevents" in entry.name:
                        self._follow(entry)
                    elif entry.is_dir(follow_symlinks=False) and self._is_entered(entry, depth):
                        self._scan(entry.path, depth + 1)
        except OSError:  # it is gone, or not ours to read
            return
        self._directories[directory] = (depth, changed, count // 10_000)

    def _is_entered(self, entry: os.DirEntry[str], depth: int) -> bool:
        is_hidden = entry.name.startswith(".") or entry.name in _UNREAD
        is_new = entry.path not in self._directories
        return is_new and not is_hidden and depth < _DEEPEST and len(self._directories) < _MOST_DIRECTORIES

    def _follow(self, entry: os.DirEntry[str]) -> None:
        if entry.is_file(follow_symlinks=False):
            self.follow(entry.path, is_old=entry.stat(follow_symlinks=False).st_mtime < self._began)

    def follow(self, path: str, *, is_old: bool = False) -> None:
        """Read one more file; of one that is old, what comes from now on."""
        if path in self._files or len(self._files) >= _MOST_FILES:
            return
        file = {"csv": _Csv, "jsonl": _Json}.get(path.rpartition(".")[2], _Events)(path)
        if is_old:
            file.skip()
        self._files[path] = file


def _changed(directory: str) -> int:
    try:
        return os.stat(directory).st_mtime_ns
    except OSError:
        return 0


class _File:
    """A file of lines and how far it has been read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._offset = 0
        self._tail = b""  # what stands before the offset, unless somebody writes the file anew
        self._seen: tuple[int, ...] = ()

    def skip(self) -> None:
        """Pass over what the file holds now."""
        try:
            with open(self.path, "rb") as stream:
                self._pass_to(stream, stream.seek(0, os.SEEK_END))
        except OSError:  # as in `more`
            pass

    def more(self, is_last: bool) -> list[_Values]:
        """Return what has come; nothing if the file is damaged or gone."""
        found: list[_Values] = []
        try:
            stat = os.stat(self.path)
            seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns, is_last)
            if seen == self._seen:
                return found
            with open(self.path, "rb") as stream:
                stream.seek(self._offset - len(self._tail))
                if stat.st_size < self._offset or stream.read(len(self._tail)) != self._tail:
                    self._offset = 0
                most = _MOST_BYTES_AT_END if is_last else _MOST_BYTES
                is_all = stat.st_size - self._offset <= most
                found, end = self._read(stream, most, is_last)
                self._pass_to(stream, end)
            self._seen = seen if is_all else ()
        except OSError:  # it is gone, or not ours to read
            pass
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
        if self._offset < _REMEMBERED_BYTES and self._index <= len(self._rows):
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
