"""What each kind of log file makes of the record, row by row; all of them go on from what is in their files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sweep.callbacks.log_text import csv_line, csv_row, json_line, params_text, read_csv, to_json
from sweep.core.trial import CheckpointRef
from sweep.record.derived_fields import date_str
from sweep.record.files import write_atomically
from sweep.record.layout import ERROR_FILE
from sweep.scribe.outbox import Outbox

_FAILURE = re.compile(rb"^Failure # \d+ \(occurred at ", re.MULTILINE)


class Live:
    """What is known of a trial that has not ended.

    Attributes:
        source: the checkpoint of another trial that its attempt was started from.
        said: how its last attempt ended.
    """

    __slots__ = ("attempt", "config", "num_failures", "num_reports", "params", "said", "source", "text")

    def __init__(self) -> None:
        self.config: Mapping[str, Any] = {}
        self.text: str | None = None  # of the config, as JSON
        self.attempt = 0
        self.source: CheckpointRef | None = None
        self.params: Mapping[str, Any] | None = None  # the config that is in its `params.json`
        self.said = ""
        self.num_failures = self.num_reports = 0  # that were seen

    def take(self, config: Mapping[str, Any]) -> None:
        """Go on with another config."""
        self.config, self.text = config, None


class _Lines:
    """A text file of lines per trial, with a line for each report.

    Attributes:
        is_comparing: files are compared with what they should say, and what they say already is not written again.
    """

    name: str

    def __init__(self, root: str, outbox: Outbox) -> None:
        self.is_comparing = False
        self._root = root
        self._outbox = outbox
        self._there: dict[str, int] = {}  # by trial: lines that are there and that the record was not seen to hold

    def path(self, trial_id: str) -> str:
        """Return the file of a trial."""
        return f"{self._root}/{trial_id}/{self.name}"

    def is_there(self, trial_id: str) -> bool:
        """Whether the file has the next report of a trial already."""
        if not self.is_comparing:
            return False
        left = self._there.get(trial_id)
        if left is None:
            left = self._count(trial_id)
        self._there[trial_id] = max(left - 1, 0)
        return left > 0

    def _count(self, trial_id: str) -> int:
        """Return the number of lines of a trial that are whole; what follows them is cut off."""
        raise NotImplementedError

    def surplus(self, unheard: Iterable[str]) -> dict[str, int]:
        """End the comparison; returns by trial how many lines nobody knows of.

        Args:
            unheard: trials that have not ended and of which no report is recorded.
        """
        for trial_id in unheard:
            if trial_id not in self._there:
                self._there[trial_id] = self._count(trial_id)
        self.is_comparing = False
        found = {trial_id: number for trial_id, number in self._there.items() if number}
        self._there = {}
        return found


class JsonFiles(_Lines):
    """`result.json`, a line per report, and `params.json`."""

    name = "result.json"

    def __init__(self, root: str, outbox: Outbox) -> None:
        super().__init__(root, outbox)
        self._params: dict[str, Mapping[str, Any]] = {}  # while files are compared

    def report(self, trial_id: str, live: Live, metrics: Mapping[str, Any]) -> None:
        """Append a line, with the config as it is now."""
        if live.text is None:
            live.text = to_json(live.config)
        self._outbox.append(self.path(trial_id), json_line(metrics, live.text))

    def started(self, trial_id: str, live: Live) -> None:
        """Write `params.json`, when the config is another one."""
        if live.params is not live.config:
            live.params = live.config
            if self.is_comparing:
                self._params[trial_id] = live.config  # the last one counts
            else:
                self._outbox.replace(self._params_path(trial_id), params_text(live.config))

    def settle_params(self) -> None:
        """Write each `params.json` that does not say what it should."""
        for trial_id, config in self._params.items():
            path, text = self._params_path(trial_id), params_text(config)
            with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
                if file.read() == text:
                    continue
            self._outbox.replace(path, text)
        self._params = {}

    def _params_path(self, trial_id: str) -> str:
        return f"{self._root}/{trial_id}/params.json"

    def _count(self, trial_id: str) -> int:
        path = self.path(trial_id)
        with suppress(FileNotFoundError), open(path, "rb") as file:
            data = file.read()
            whole = data[: (data[: data.find(b"\0")] if b"\0" in data else data).rfind(b"\n") + 1]
            if len(whole) < len(data):
                os.truncate(path, len(whole))
            return whole.count(b"\n")
        return 0

    def cut(self, trial_id: str, number: int) -> None:
        """Take the last lines away."""
        path = self.path(trial_id)
        with open(path, "rb") as file:
            kept = file.read().splitlines(keepends=True)[:-number]
        if kept:
            os.truncate(path, sum(map(len, kept)))
        else:
            os.unlink(path)


class CsvFiles(_Lines):
    """`progress.csv`: a row per report under a header; a key that appears later adds a column."""

    name = "progress.csv"

    def __init__(self, root: str, outbox: Outbox) -> None:
        super().__init__(root, outbox)
        self._columns: dict[str, dict[str, None]] = {}

    def report(self, trial_id: str, live: Live, metrics: Mapping[str, Any]) -> None:
        """Append a row.

        Raises:
            OSError: a column is to be added, and the disk is full; nothing was done.
        """
        path = self.path(trial_id)
        row = csv_row(metrics)
        columns = self._columns.get(trial_id)
        if columns is None:
            columns = self._columns[trial_id] = dict.fromkeys(next(iter(read_csv(path, limit=1)), []))
        if not columns:
            columns.update(dict.fromkeys(row))
            self._outbox.append(path, csv_line(columns))
        elif not row.keys() <= columns.keys():
            self._outbox.flush(path)
            if self._outbox.shortage is not None:
                raise self._outbox.shortage
            wider = columns | dict.fromkeys(row)
            rows = [list(wider), *read_csv(path)[1:]]
            write_atomically(path, "".join(csv_line([*old, *[""] * (len(wider) - len(old))]) for old in rows))
            self._columns[trial_id] = columns = wider
        self._outbox.append(path, csv_line(map(row.get, columns)))

    def ended(self, trial_id: str) -> None:
        """Forget a trial."""
        self._columns.pop(trial_id, None)

    def _count(self, trial_id: str) -> int:
        path = self.path(trial_id)
        with suppress(FileNotFoundError), open(path, "rb") as file:
            data = file.read()
            is_whole = data.endswith(b"\n") and b"\0" not in data and data.count(b'"') % 2 == 0  # no cell is open
            if is_whole:
                return len(read_csv(path)) - 1
            os.unlink(path)  # a cell may hold a line's end: what is whole cannot be told
        return 0

    def remove(self, trial_id: str) -> None:
        """Delete the file of a trial, which is written anew."""
        self._columns.pop(trial_id, None)
        with suppress(FileNotFoundError):
            os.unlink(self.path(trial_id))


class ErrorFiles:
    """`error.txt`: every failure of a trial, also those after which it is started again."""

    def __init__(self, root: str, outbox: Outbox) -> None:
        self.is_comparing = False
        self._root = root
        self._outbox = outbox
        self._known: dict[str, list[str]] = {}  # by file: what it should say, while files are compared

    def failed(self, trial_id: str, wall: float, said: str, number: int) -> None:
        """Append a failure."""
        path = f"{self._root}/{trial_id}/{ERROR_FILE}"
        text = f"Failure # {max(number, 1)} (occurred at {date_str(wall)})\n{said}\n\n"
        if self.is_comparing:
            self._known.setdefault(path, []).append(text)
        else:
            self._outbox.append(path, text)

    def settle(self) -> None:
        """End the comparison: append failures that are missing, or write all of them anew where one is cut off."""
        self.is_comparing = False
        for path, texts in self._known.items():
            data = b""
            with suppress(FileNotFoundError), open(path, "rb") as file:
                data = file.read()
            if data and not (data.startswith(b"Failure # ") and data.endswith(b"\n\n")):
                self._outbox.replace(path, "".join(texts))
            elif missing := texts[len(_FAILURE.findall(data)) :]:
                self._outbox.append(path, "".join(missing))
        self._known = {}
