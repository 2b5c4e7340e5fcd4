"""Follow the record of a sweep and write its log files: whatever they say is made from the record, here alone."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.history import Fact
from sweep.core.literals import jsonable
from sweep.core.messages import Exited, ExitKind, Hook, Reported, Suggested
from sweep.core.results import date_str, flatten
from sweep.core.trial import Cause, CheckpointRef
from sweep.record.db import connect_for_reading
from sweep.record.facts import read_facts
from sweep.record.files import write_atomically
from sweep.record.layout import ERROR_FILE
from sweep.record.space import lacks_space

if TYPE_CHECKING:
    from sweep.logs.policies import PolicyFiles

plain = partial(jsonable, is_strict=False)  # NaN and infinities stay what they are, as in Tune's files
_ROUND = 500  # events that are read in one transaction, and then written
_FILES = {"json": ("result.json", "params.json"), "csv": ("progress.csv",), "errors": (ERROR_FILE,)}


@dataclass(frozen=True)
class LogJob:
    """Which log files to write."""

    root: str  # directory of the experiment, absolute
    database: Path  # the record; it lies elsewhere where several machines see the directory
    kinds: Collection[str]  # some of json, csv, errors and policies
    seq: int = 0  # number of the last event of the runs before
    is_complete: bool = True  # the files say everything up to it; otherwise all of them are written anew
    changed: Sequence[str] = ()  # flattened config paths that population based training changes
    variables: Sequence[str] | None = None  # those that vary among trials; None: all


@dataclass(slots=True)
class _Known:
    """What is known of a trial that has not ended."""

    config: Mapping[str, Any] = field(default_factory=dict)
    is_started: bool = False
    failure: str = ""  # how its last attempt ended
    metrics: Mapping[str, Any] = field(default_factory=dict)  # of its last report


class Follower:
    """Writes what the record says into log files.

    The record is read from its beginning, to know the config that each trial has. What had happened up to `job.seq` is
    in the files already, unless they have to be written anew; so they have when a full disk did not take something.
    """

    def __init__(self, job: LogJob, say: Callable[[str], None]) -> None:
        self._job, self._say, self._said = job, say, set[str]()
        self._begin_at(job.seq if job.is_complete else 0)

    def _begin_at(self, num_written: int) -> None:
        """Read from the beginning; what is in the files already is not written."""
        self.position = 0  # number of the last event taken in
        self._num_written = num_written
        self._whole: dict[str, str] = {}  # what files are to say, by their paths in the experiment
        self._lines: dict[str, list[str]] = defaultdict(list)  # to be appended
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)  # the same, of tables
        self._trials: dict[str, _Known] = defaultdict(_Known)  # of one that goes on after its end, its start tells more
        self._policies: PolicyFiles | None = None
        if "policies" in self._job.kinds:
            from sweep.logs.policies import PolicyFiles

            self._policies = PolicyFiles(self._whole, self._lines, self._job.changed, self._job.variables)

    def follow(self, upto: int, goes_on: Callable[[], bool] = lambda: True) -> bool:
        """Write everything up to an event; whether all of it is written. Where `goes_on` says no, the rest is left."""
        try:
            with closing(connect_for_reading(self._job.database)) as record:
                while self.position < upto:
                    if not goes_on():
                        return False
                    is_old = self.position < self._num_written
                    last = min(upto, self.position + _ROUND, self._num_written if is_old else upto)
                    kinds = {"policies"} if is_old else {"policies", "json", "csv"}  # those that reports matter to
                    options: dict[str, Any] = {"with_results": not kinds.isdisjoint(self._job.kinds), "trust": "arrays"}
                    with closing(read_facts(record, after=self.position, before=last + 1, **options)) as facts:
                        for fact in facts:
                            self.position = fact.seq
                            self._take(fact)
                    self._flush()
                    self.position = last
        except OSError as error:
            if not lacks_space(error):
                raise
            self._say_once(
                f"log files in {self._job.root} cannot be written ({error.strerror}): they are written anew when there "
                "is room, at the latest by a resume"
            )
            self._begin_at(0)
            return False
        return True

    # --- what happened -----------------------------------------------------------------------------------------------

    def _take(self, fact: Fact) -> None:
        match fact.event:
            case Reported(trial_id) if fact.metrics is not None and fact.is_judged:
                self._report(trial_id, fact.metrics)
            case Suggested(trial_id, config) if isinstance(config, Mapping):
                self._trials[trial_id] = _Known(config)
                if self.position > self._num_written:  # there may be what another run has left of them
                    for name in (name for kind in self._job.kinds for name in _FILES.get(kind, ())):
                        with contextlib.suppress(OSError):
                            os.unlink(f"{self._job.root}/{trial_id}/{name}")
            case Exited(trial_id, _, ended) if ended.kind is not ExitKind.NEEDS_MORE:
                self._trials[trial_id].failure = ended.traceback or ended.error
        for row in fact.caused or ():
            match row:
                case ["Start", trial_id, _, _]:  # as it was suggested
                    self._start(trial_id, None, None)
                case ["Start", trial_id, _, _, config, _, source]:
                    self._start(trial_id, config, CheckpointRef.parse(source))
                case ["Notify", hook, trial_id, *why]:
                    self._notified(Hook(hook), trial_id, fact.wall, *why)

    def _report(self, trial_id: str, metrics: Mapping[str, Any]) -> None:
        known = self._trials[trial_id]
        known.metrics = metrics
        if self._is_wanted("json"):
            line = to_json({**metrics, "config": known.config})
            self._lines[f"{trial_id}/result.json"].append(f"{line}\n")
        if self._is_wanted("csv"):
            self._rows[f"{trial_id}/progress.csv"].append(flatten(metrics))

    def _start(self, trial_id: str, config: Mapping[str, Any] | None, source: CheckpointRef | None) -> None:
        """An attempt is started, with another config than before if there is one."""
        known = self._trials[trial_id]
        is_new = config is not None or not known.is_started
        known.config, known.is_started = known.config if config is None else config, True
        if self._policies is not None:
            self._policies.start(trial_id, known.config, source, known.metrics.get("training_iteration", 0))
        if is_new and self._is_wanted("json"):
            text = json.dumps(plain(known.config), indent=2, sort_keys=True)
            self._whole[f"{trial_id}/params.json"] = f"{text}\n"

    def _notified(
        self, hook: Hook, trial_id: str, wall: float, number: int = 0, reason: str = "", cause: str = ""
    ) -> None:
        known = self._trials[trial_id]
        if hook in (Hook.ERROR, Hook.RETRY) and cause != Cause.DAMAGED and self._is_wanted("errors"):
            text = f"Failure # {max(number, 1)} (occurred at {date_str(wall)})\n{known.failure or reason}\n\n"
            self._lines[f"{trial_id}/{ERROR_FILE}"].append(text)
        if hook in (Hook.COMPLETE, Hook.ERROR) and known.is_started:
            del self._trials[trial_id]

    # --- files -------------------------------------------------------------------------------------------------------

    def _is_wanted(self, kind: str) -> bool:
        """Whether files of this kind are to be told of what is read now."""
        return kind in self._job.kinds and self.position > self._num_written

    def _flush(self) -> None:
        for path, text in self._whole.items():
            self._write(path, text, is_anew=True)
        for path, lines in self._lines.items():
            self._write(path, "".join(lines))
        for path, rows in self._rows.items():
            self._add_rows(path, rows)
        for waiting in (self._whole, self._lines, self._rows):
            waiting.clear()

    def _add_rows(self, path: str, rows: list[dict[str, Any]]) -> None:
        """Append to a table; a key that is new adds a column, which is empty in the rows before."""
        columns: dict[str, None] = {}
        before: list[dict[str, Any]] = []
        is_anew = False
        if os.path.isfile(place := f"{self._job.root}/{path}"):
            with open(place, newline="", encoding="utf-8", errors="replace") as file:
                columns = dict.fromkeys(next(csv.reader(file), ()))
                is_anew = any(row.keys() - columns.keys() for row in rows)
                before = list(csv.DictReader(file, list(columns))) if is_anew else []
        has_header = bool(columns) and not is_anew
        for row in rows:
            columns |= dict.fromkeys(row)
        lines = [csv_line(map(row.get, columns)) for row in (*before, *rows)]
        self._write(path, "".join(lines if has_header else [csv_line(columns), *lines]), is_anew=is_anew)

    def _write(self, path: str, text: str, *, is_anew: bool = False) -> None:
        path = f"{self._job.root}/{path}"
        try:
            if not os.path.isdir(directory := os.path.dirname(path)):
                os.mkdir(directory)
            if is_anew:
                write_atomically(path, text.encode("utf-8", "replace"))
                return
            with open(path, "ab") as file:
                file.write(text.encode("utf-8", "replace"))
        except FileNotFoundError:
            pass  # the directory of an experiment that was deleted is not made anew; that ends the sweep, and is said
        except OSError as error:
            if lacks_space(error):
                raise
            self._say_once(f"{path} cannot be written, and is given up: {error.strerror or error}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


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
