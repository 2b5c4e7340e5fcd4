"""From what a program logs and prints to reports: which source counts, what belongs to one step, when it is complete.

    hooks (wandb.log, add_scalar)   SWEEP_REPORT, CSV, events   what is printed
                 |                            |                       |
                 +------> take(values, step, source, is_whole) <------+ line(text)
                                              |
                            one report for each value of the metric

A report is made when the metric comes, with the latest values of all others. Values that come one by one are collected
until the step is complete: when it has all that the step before had, or when the next begins.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from searchers.errors import closest
from sweep.programs.files import Files
from sweep.programs.naming import TIMES, plain
from sweep.programs.place import REPORT_FILE
from sweep.programs.text import Lines, last_number, same_name

_SILENCE_S = 0.1  # after which the first step is taken as complete: later ones are compared with it
_PACE_S = 0.1  # between two reports of printed values where no metric was named
_FLOOD = 2000  # lines in a second; of those beyond, only what has the words of the metric's name is looked at
_MAX_NAMES = 500  # that are remembered
_PLACE = re.compile(r"\b(\d+)/(\d+)\b")  # where a progress bar is
_OF_EPOCHS = re.compile(r"epochs?(?:/s|\b(?!\s*\d))|s/epoch", re.IGNORECASE)  # a bar over them, not over batches
# The better source comes first; once it has given the metric, the others are not asked any more.
_RANKS = {"SWEEP_REPORT": 0, "json": 2, "text": 4}
_OF_LIBRARIES, _OF_FILES = 1, 3


class Feed:
    """Reports of one attempt.

    Attributes:
        num_reports: made so far.
        seen: by (source, name): how often it came, and what was last, for people.
        last_lines: what was printed last.
        has_library: whether a library that logs is in use, so that printed metrics may be copies of logged ones.
        deadline: when `tick` is to be called, on the clock of `time.monotonic`; None: it need not be.
    """

    def __init__(
        self,
        metric: str,
        report: Callable[[dict[str, Any], bool], None],
        *,
        pattern: str | None = None,
        has_library: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin.

        Args:
            metric: that is optimised; empty: none, and whatever comes is reported.
            report: called with the values of a report, and whether the program is at a later step already; what it
                raises passes through to the program.
            pattern: the user's own regular expression for lines.
            has_library: see above.
        """
        self.num_reports = 0
        self.seen: dict[tuple[str, str], tuple[int, Any]] = {}
        self.last_lines: deque[str] = deque(maxlen=6)
        self.deadline: float | None = None
        self._metric = metric
        self._report = report
        self.has_library = has_library
        self._lines = Lines(pattern)
        self._rank = max(_RANKS.values()) + 1  # of the source that counts
        self._source = ""
        self._latest: dict[str, Any] = {}
        self._step: dict[str, Any] = {}  # values of the step that is being collected, of one source
        self._step_source = ""
        self._complete: frozenset[str] = frozenset()  # what the last step with the metric had
        self._bar: Mapping[str, Any] = {}  # the last state of a progress bar
        self._bars: dict[bool, tuple[str, Mapping[str, Any]]] = {}  # where one over epochs, and one over batches, was
        self._copy: dict[str, Any] | None = None  # a printed step that waits: a library may give the same
        self._sent_at = -math.inf
        self._second, self._num_lines = -math.inf, 0
        self._words = plain(metric).split()
        self._lock = threading.RLock()

    def line(self, text: str) -> None:
        """Take one line that was printed."""
        if text.strip():
            self.last_lines.append(text[:500].rstrip())
        now = time.monotonic()
        if now > self._second + 1:
            self._second, self._num_lines = now, 0
        self._num_lines += 1
        if self._num_lines > _FLOOD and not (self._words and all(word in text.casefold() for word in self._words)):
            return
        for values, kind in self._lines.read(text):
            new = self._news(text, values) if kind == "bar" else values
            if new:
                self.take(new, source="json" if kind == "json" else "text", is_whole=kind == "json")

    def _news(self, text: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what counts of the state of a progress bar, which is printed many times: of a bar over batches what it
        says at its end, of one over epochs what it says whenever it has moved."""
        place = _PLACE.search(text)
        where = place[0] if place else ""
        is_full = "100%" in text or (place is not None and place[1] == place[2])
        is_of_epochs = _OF_EPOCHS.search(text) is not None
        was_at, known = self._bars.get(is_of_epochs, ("", {}))
        self._bars[is_of_epochs] = where, values
        self._bar = values or self._bar
        if not is_full and not is_of_epochs:
            return {}
        # Keras says once more where it is, with what it has validated.
        return {name: value for name, value in values.items() if where != was_at or name not in known}

    def take(
        self, values: Mapping[str, Any], step: float | None = None, source: str = "text", is_whole: bool = True
    ) -> None:
        """Take values that belong together, or a part of those of a step.

        Args:
            step: of the program's own counting.
            source: `text`, `json`, `SWEEP_REPORT`, a library, or the path of a file.
            is_whole: nothing more comes for this step.
        """
        with self._lock:
            given = {self._named(name): _whole(name, value) for name, value in values.items()}
            for name, value in given.items():
                if len(self.seen) < _MAX_NAMES or (source, name) in self.seen:
                    self.seen[source, name] = self.seen.get((source, name), (0, None))[0] + 1, value
            if self._counts(source):
                if step is not None and not any(map(is_time, given)):
                    given["step"] = step
                self._collect(given, source)
                if is_whole:
                    self._flush()
            elif _rank(source) == self._rank:
                self._latest.update((name, value) for name, value in given.items() if name != self._metric)

    def end(self, *, is_good: bool = True) -> None:
        """Nothing more comes; `is_good`: the program has not failed, so that a number alone may be its result."""
        with self._lock:
            self.line("")  # what a table has that was not closed
            if self._bar and not self.num_reports:
                self.take(self._bar, is_whole=False)
            self._flush()
            if self._copy is not None:
                self._send(self._copy)
            if is_good and self._metric and self.last_lines and not self.seen:
                number = last_number(self.last_lines[-1])
                if number is not None:
                    self._send({self._metric: number})

    def _named(self, name: str) -> str:
        """Return the metric's own name for what is spelt a little differently."""
        return self._metric if self._metric and name != self._metric and same_name(name, self._metric) else name

    def _counts(self, source: str) -> bool:
        """Whether no better source has given the metric; of two libraries, or files, it is the first."""
        rank = _rank(source)
        return rank < self._rank or (rank == self._rank and source == self._source)

    def _collect(self, given: Mapping[str, Any], source: str) -> None:
        """Add to the step that is being collected; what it has already, or another time, begins the next."""
        is_next = source != self._step_source or any(
            name in self._step and (not is_time(name) or self._step[name] != value) for name, value in given.items()
        )
        if is_next:
            self._flush(is_late=True)
            if not self._counts(source):  # what was collected may be the same, from a better one
                return
        self._step_source = source
        self._step.update(given)
        if self._metric not in self._step and self._metric:
            return
        if self._complete and self._complete <= self._step.keys():
            self._flush()
        elif not self._complete:
            self.deadline = time.monotonic() + _SILENCE_S

    def read(self, files: Files, *, is_last: bool = False) -> None:
        """Take what has come into files; `is_last`: the program has ended."""
        for values, step, path in files.poll(is_last=is_last):
            self.take(values, step, "SWEEP_REPORT" if os.path.basename(path) == REPORT_FILE else path)

    def tick(self) -> None:
        """Time has passed: the first step is complete when nothing more has come for it."""
        with self._lock:
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self._flush()

    def _flush(self, *, is_late: bool = False) -> None:
        """Make a report of the step that was collected if it has the metric."""
        step, self._step, self.deadline = self._step, {}, None
        self._latest.update(step)
        if self._metric:
            value = step.get(self._metric)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return
        elif all(map(is_time, step)):
            return
        self._complete = frozenset(name for name in step if not is_time(name))
        rank, text = _rank(self._step_source), _RANKS["text"]
        if rank == text < self._rank and self._copy is None and self.has_library():
            self._copy = dict(self._latest)
            return
        if not self._metric and rank == text and time.monotonic() < self._sent_at + _PACE_S:
            return
        copy, self._copy = self._copy, None
        self._rank, self._source = rank, self._step_source
        if copy is not None and rank == text:
            self._send(copy, is_late=True)
        self._send(self._latest, is_late=is_late)

    def _send(self, values: Mapping[str, Any], *, is_late: bool = False) -> None:
        self.num_reports += 1
        self._sent_at = time.monotonic()
        self._report(dict(values), is_late)

    def why_nothing(self) -> str:
        """Say what was seen in place of the metric, for the error of a program that ended without it."""
        names: dict[str, str] = {}
        for (source, name), (_, last) in self.seen.items():
            if isinstance(last, (int, float)) and math.isfinite(last) and not is_time(name):
                names.setdefault(name, source)
        shown = ", ".join(f"{name!r} ({source})" for name, source in list(names.items())[:12])
        near = closest(self._metric, names)
        found = f"It gave {shown}." if shown else "It gave no metric at all."
        found += f" Did you mean {near!r}?" if near else ""
        return f"{found}\nIts last lines:{self._lines_below()}" if self.last_lines else f"{found} It printed nothing."

    def said(self) -> str:
        """Return the last line that was printed, and below it some before."""
        return (
            f": {self.last_lines[-1].strip()}{self._lines_below()}" if self.last_lines else ", and it printed nothing"
        )

    def _lines_below(self) -> str:
        return "".join(f"\n    {line}" for line in self.last_lines)


def is_time(name: str) -> bool:
    """Whether a name counts steps; loggers put a part before it, `trainer/global_step`."""
    return name.rpartition("/")[2] in TIMES


def _whole(name: str, value: Any) -> Any:
    """Return an epoch that was read as a float as the whole number that it is."""
    return int(value) if is_time(name) and isinstance(value, float) and value.is_integer() else value


def _rank(source: str) -> int:
    return _RANKS.get(source, _OF_FILES if os.sep in source else _OF_LIBRARIES)
