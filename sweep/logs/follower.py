"""Follow the record of a sweep and write its log files: whatever they say is made from the record, here alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.history import Fact
from sweep.core.messages import Exited, ExitKind, Hook, Reported, Suggested
from sweep.core.resources import Resources
from sweep.core.results import TrialResult, date_str
from sweep.core.trial import Cause, CheckpointRef, Trial
from sweep.logs.files import Files
from sweep.logs.text import csv_columns, csv_line, csv_row, json_line, params_text, to_json, widened_csv
from sweep.record.db import Reading, open_for_following
from sweep.record.facts import read_facts
from sweep.record.layout import ERROR_FILE
from sweep.record.space import lacks_space

if TYPE_CHECKING:
    from sweep.logs.policies import PolicyFiles
    from sweep.logs.tensorboard import Board

_ROUND = 500  # events that are read in one transaction
_MOST_WAITING = 4_000_000  # bytes, after which they are written before more is read
_MAX_ERRORS = 3
_OF_METRICS = {"tensorboard", "policies"}  # they tell of reports that were before, too
_OF_REPORTS = _OF_METRICS | {"json", "csv"}
_FILES = {"json": ("result.json", "params.json"), "csv": ("progress.csv",), "errors": (ERROR_FILE,)}
_NOTHING = Resources()


@dataclass(frozen=True)
class LogJob:
    """Which log files to write.

    Attributes:
        root: directory of the experiment, absolute.
        database: the record; it lies elsewhere where several machines see the directory.
        kinds: some of `json`, `csv`, `tensorboard`, `errors` and `policies`.
        seq: number of the last event of the runs before.
        is_complete: the files say everything up to it; otherwise all of them are written anew.
        changed: flattened config paths that population based training changes.
        variables: those that vary among trials; None: all.
    """

    root: str
    database: Path
    kinds: Collection[str]
    seq: int = 0
    is_complete: bool = True
    changed: Sequence[str] = ()
    variables: Sequence[str] | None = None


@dataclass(slots=True)
class _Known:
    """What is known of a trial that has not ended.

    Attributes:
        config_text: the config as JSON; empty: not made yet.
        failure: how its last attempt ended.
        columns: of its `progress.csv`; None: as the file says.
        metrics: of its last report.
        num_reports: that it has made.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    config_text: str = ""
    is_started: bool = False
    failure: str = ""
    columns: dict[str, None] | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    num_reports: int = 0


class Follower:
    """Writes what the record says into log files.

    The record is read from its beginning, to know the config that each trial has. What had happened up to `job.seq` is
    in the files already, unless they have to be written anew.

    Args:
        say: called with one line for the user, each only once.

    Attributes:
        position: number of the event up to which everything is taken in.
    """

    def __init__(self, job: LogJob, say: Callable[[str], None]) -> None:
        self.position = 0
        self._job = job
        self._say = say
        self._said: set[str] = set()
        self._num_written = job.seq if job.is_complete else 0  # events that are in the files
        self._files = Files(self._say_once)
        self._trials: dict[str, _Known] = {}
        self._policies: PolicyFiles | None = None
        self._board: Board | None = None
        self._num_board_errors = 0
        if "policies" in job.kinds:
            from sweep.logs.policies import PolicyFiles

            self._policies = PolicyFiles(job.root, self._files, job.changed, job.variables)
        if "tensorboard" in job.kinds:
            from sweep.logs.tensorboard import Board

            self._board = Board(job.root)

    def follow(self, upto: int, goes_on: Callable[[], bool] = lambda: True) -> bool:
        """Write everything up to an event; whether all of it is written.

        Args:
            goes_on: asked now and then; when it says no, the rest is left.
        """
        with closing(open_for_following(self._job.database)) as record:
            for last in (min(self._num_written, upto), upto):
                while self.position < last:
                    is_full = self._files.num_waiting > _MOST_WAITING and not self._flush()
                    if is_full or not goes_on():
                        return False
                    self._read(record, last)
        return self._flush()

    def close(self) -> None:
        """Close what is open; what waits is not written."""
        if self._board is not None:
            self._board.close_all()

    # --- what happened -----------------------------------------------------------------------------------------------

    def _read(self, record: Reading, last: int) -> None:
        kinds = _OF_METRICS if self.position < self._num_written else _OF_REPORTS
        last = min(last, self.position + _ROUND)
        facts = read_facts(
            record,
            after=self.position,
            before=last + 1,
            trust="arrays",
            with_results=not kinds.isdisjoint(self._job.kinds),
        )
        with closing(facts):
            for fact in facts:
                self.position = fact.seq
                self._take(fact)
        self.position = last

    def _is_wanted(self, kind: str) -> bool:
        """Whether files of this kind are to be told of what is read now."""
        return kind in self._job.kinds and self.position > self._num_written

    def _take(self, fact: Fact) -> None:
        match fact.event:
            case Reported(trial_id) if fact.metrics is not None and fact.is_judged:
                self._report(trial_id, fact.metrics)
            case Suggested(trial_id, config) if isinstance(config, Mapping):
                self._begin(trial_id, config)
            case Exited(trial_id, _, ended) if ended.kind is not ExitKind.NEEDS_MORE:
                self._known(trial_id).failure = ended.traceback or ended.error
        for row in fact.caused or ():
            match row:
                case ["Start", trial_id, _, _]:  # as it was suggested
                    self._start(trial_id, None, None)
                case ["Start", trial_id, _, _, config, _, source]:
                    self._start(trial_id, config, CheckpointRef.parse(source))
                case ["Notify", hook, trial_id, *why]:
                    self._notified(Hook(hook), trial_id, fact.wall, *why)

    def _known(self, trial_id: str) -> _Known:
        """Return what is known of a trial; of one that goes on after its end, its start tells the config."""
        return self._trials.setdefault(trial_id, _Known())

    def _begin(self, trial_id: str, config: Mapping[str, Any]) -> None:
        known = self._trials[trial_id] = _Known(config)
        if self.position > self._num_written:
            known.columns = {}
        if self._num_written < self.position <= self._job.seq:  # there may be what another run has left of them
            for name in (name for kind in self._job.kinds for name in _FILES.get(kind, ())):
                self._files.remove(self._path(trial_id, name))

    def _report(self, trial_id: str, metrics: Mapping[str, Any]) -> None:
        known = self._known(trial_id)
        known.metrics = metrics
        known.num_reports += 1
        if self._is_wanted("json"):
            known.config_text = known.config_text or to_json(known.config)
            self._files.append(self._path(trial_id, "result.json"), json_line(metrics, known.config_text))
        if self._is_wanted("csv"):
            self._add_row(self._path(trial_id, "progress.csv"), known, csv_row(metrics))
        if self._board is not None and self.position > self._job.seq:
            board, count = self._board, known.num_reports
            self._show(lambda: board.report(trial_id, metrics, count))

    def _add_row(self, path: str, known: _Known, row: Mapping[str, Any]) -> None:
        """Append a row; a key that is new adds a column, which is empty in the rows before."""
        if known.columns is None:
            known.columns = csv_columns(self._files.text(path))
        if not known.columns:
            known.columns = dict.fromkeys(row)
            self._files.append(path, csv_line(known.columns))
        elif row.keys() - known.columns.keys():
            known.columns |= dict.fromkeys(row)
            self._files.replace(path, widened_csv(self._files.text(path), known.columns))
        self._files.append(path, csv_line(map(row.get, known.columns)))

    def _start(self, trial_id: str, config: Mapping[str, Any] | None, source: CheckpointRef | None) -> None:
        """An attempt is started, with another config than before if there is one."""
        known = self._known(trial_id)
        is_new = config is not None or not known.is_started
        known.is_started = True
        if config is not None:
            known.config, known.config_text = config, ""
        if self._policies is not None:
            result = TrialResult(dict(known.metrics))
            self._policies.start(Trial(trial_id, known.config, _NOTHING, started_from=source, last_result=result))
        if is_new and self._is_wanted("json"):
            self._files.replace(self._path(trial_id, "params.json"), params_text(known.config))

    def _notified(
        self, hook: Hook, trial_id: str, wall: float, number: int = 0, reason: str = "", cause: str = ""
    ) -> None:
        known = self._known(trial_id)
        if hook in (Hook.ERROR, Hook.RETRY) and cause != Cause.DAMAGED and self._is_wanted("errors"):
            text = f"Failure # {max(number, 1)} (occurred at {date_str(wall)})\n{known.failure or reason}\n\n"
            self._files.append(self._path(trial_id, ERROR_FILE), text)
        is_end = hook in (Hook.COMPLETE, Hook.ERROR)
        if self._board is not None and self.position > self._job.seq:
            board = self._board
            if is_end:
                self._show(lambda: board.end(trial_id, known.config, known.metrics))
            elif hook is Hook.PAUSE:
                self._show(lambda: board.close(trial_id))
        if is_end and known.is_started:  # one that comes back has its config in its start
            del self._trials[trial_id]

    # --- files -------------------------------------------------------------------------------------------------------

    def _path(self, trial_id: str, name: str) -> str:
        return f"{self._job.root}/{trial_id}/{name}"

    def _flush(self) -> bool:
        is_written = self._files.flush()
        if self._files.shortage is not None:
            self._say_once(
                f"log files in {self._job.root} cannot be written ({self._files.shortage.strerror}): what is missing "
                "is written when there is room, at the latest by a resume"
            )
        return is_written

    def _show(self, call: Callable[[], None]) -> None:
        """Have something written for TensorBoard; what that package raises concerns nobody else."""
        if self._num_board_errors >= _MAX_ERRORS:
            return
        try:
            call()
        except Exception as error:  # of a package that is not ours
            self._num_board_errors += not lacks_space(error)
            self._say_once(f"TensorBoard's events cannot be written: {type(error).__name__}: {error}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)
