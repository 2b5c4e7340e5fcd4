"""Follow the record of a sweep and write its log files: whatever they say is made from the record, here alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.history import Fact
from sweep.core.messages import Exited, ExitKind, Hook, Reported, Started, Suggested
from sweep.core.resources import Resources
from sweep.core.results import TrialResult, date_str
from sweep.core.trial import Cause, CheckpointRef, Trial
from sweep.logs.files import Files
from sweep.logs.text import csv_columns, csv_line, csv_row, json_line, params_text, to_json, widened_csv
from sweep.record.access import Reading, open_for_following
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
        is_complete: the files say everything up to it; otherwise they are compared with the record.
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


class _Known:
    """What is known of a trial that has not ended.

    Attributes:
        text: the config as JSON; empty: not made yet.
        written: the config that is in its `params.json`.
        source: the checkpoint that its attempt was started from.
        said: how its last attempt ended.
        columns: of its `progress.csv`; None: as the file says.
    """

    __slots__ = ("attempt", "columns", "config", "count", "metrics", "said", "source", "text", "written")

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.take(config)
        self.written: Mapping[str, Any] | None = None
        self.attempt = self.count = 0
        self.source: CheckpointRef | None = None
        self.said = ""
        self.columns: dict[str, None] | None = None
        self.metrics: Mapping[str, Any] = {}

    def take(self, config: Mapping[str, Any]) -> None:
        """Go on with another config."""
        self.config, self.text = config, ""


class Follower:
    """Writes what the record says into log files.

    The record is read from its beginning, to know the config that each trial has. What had happened up to `job.seq` is
    in the files, or is written again and compared with them.

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
        # How an exploit came about is told by all that was before.
        self._start = job.seq if job.is_complete and "policies" not in job.kinds else 0
        self._is_told = False  # what is read now is in the files
        self._is_comparing = self._start < job.seq
        self._files = Files(self._once, is_comparing=self._is_comparing)
        self._trials: dict[str, _Known] = {}
        self._names: set[str] = set()  # of all trials, while files are compared
        self._policies = self._open_policies()
        self._board = self._open_board()
        self._num_board_errors = 0

    def follow(self, upto: int, goes_on: Callable[[], bool] = lambda: True) -> bool:
        """Write everything up to an event; whether all of it is written.

        Args:
            goes_on: asked now and then; when it says no, the rest is left.
        """
        with closing(open_for_following(self._job.database)) as record:
            for last in (min(self._start, upto), min(self._job.seq, upto), upto):
                while self.position < last:
                    is_full = self._files.num_waiting > _MOST_WAITING and not self._flush()
                    if is_full or not goes_on():
                        return False
                    self._read(record, last)
                if not self._flush():
                    return False
                if self._is_comparing and self.position >= self._job.seq:
                    self._settle()
        return True

    def close(self) -> None:
        """Close what is open; what waits is not written."""
        if self._board is not None:
            self._board.close_all()

    # --- what happened -----------------------------------------------------------------------------------------------

    def _read(self, record: Reading, last: int) -> None:
        self._is_told = self.position < self._start
        kinds = _OF_METRICS if self._is_told else _OF_REPORTS
        last = min(last, self.position + _ROUND)
        facts = read_facts(
            record,
            after=self.position,
            before=last + 1,
            trust=False,
            with_arrays=True,
            with_results=not kinds.isdisjoint(self._job.kinds),
        )
        with closing(facts):
            for fact in facts:
                self.position = fact.seq
                self._take(fact)
        self.position = last

    def _take(self, fact: Fact) -> None:
        match fact.event:
            case Reported(trial_id) if fact.metrics is not None and fact.is_judged:
                self._report(trial_id, fact.seq, fact.metrics)
            case Suggested(trial_id, config) if isinstance(config, Mapping):
                known = self._trials[trial_id] = _Known(config)
                known.columns = None if self._is_told else {}
                if self._is_comparing:
                    self._names.add(trial_id)
            case Started(trial_id, attempt):
                self._started(trial_id, attempt)
            case Exited(trial_id, _, ended) if ended.kind is not ExitKind.NEEDS_MORE:
                self._known(trial_id).said = ended.traceback or ended.error
        for row in fact.caused or ():
            match row:
                case ["Start", trial_id, attempt, _, *later]:
                    known = self._known(trial_id)
                    known.attempt, known.source = attempt, None
                    if later:
                        if later[0] is not None:  # another one than before
                            known.take(later[0])
                        known.source = CheckpointRef.parse(later[2])
                case ["Notify", hook, trial_id, *why]:
                    self._notified(Hook(hook), trial_id, fact, *why)

    def _known(self, trial_id: str) -> _Known:
        """Return what is known of a trial; of one that goes on after its end, its start tells the config."""
        if trial_id not in self._trials:
            self._trials[trial_id] = _Known({})
        return self._trials[trial_id]

    def _report(self, trial_id: str, seq: int, metrics: Mapping[str, Any]) -> None:
        known = self._known(trial_id)
        known.metrics = metrics
        known.count += 1
        if "json" in self._job.kinds and not self._is_told:
            known.text = known.text or to_json(known.config)
            self._files.append(self._path(trial_id, "result.json"), json_line(metrics, known.text))
        if "csv" in self._job.kinds and not self._is_told:
            self._add_row(self._path(trial_id, "progress.csv"), known, csv_row(metrics))
        if self._board is not None and seq > self._job.seq:
            board, count = self._board, known.count
            self._show(lambda: board.report(trial_id, metrics, count))

    def _add_row(self, path: str, known: _Known, row: Mapping[str, Any]) -> None:
        """Append a row; a key that is new adds a column, which is empty in the rows before."""
        if known.columns is None:
            known.columns = csv_columns(self._files.said(path))
        if not known.columns:
            known.columns = dict.fromkeys(row)
            self._files.append(path, csv_line(known.columns))
        elif new := row.keys() - known.columns.keys():
            known.columns |= dict.fromkeys(row)
            self._files.replace(path, widened_csv(self._files.said(path), known.columns, len(new)))
        self._files.append(path, csv_line(map(row.get, known.columns)))

    def _started(self, trial_id: str, attempt: int) -> None:
        known = self._known(trial_id)
        if known.attempt not in (attempt, 0):  # it is what an attempt says that is gone
            return
        if self._policies is not None:
            result = TrialResult(dict(known.metrics))
            trial = Trial(trial_id, known.config, _NOTHING, started_from=known.source, last_result=result)
            self._policies.started(trial)
        if "json" in self._job.kinds and known.written is not known.config:
            known.written = known.config
            if not self._is_told:
                self._files.replace(self._path(trial_id, "params.json"), params_text(known.config))

    def _notified(
        self, hook: Hook, trial_id: str, fact: Fact, number: int = 0, reason: str = "", cause: str = ""
    ) -> None:
        known = self._known(trial_id)
        has_failed = hook in (Hook.ERROR, Hook.RETRY) and cause != Cause.DAMAGED
        if has_failed and "errors" in self._job.kinds and not self._is_told:
            text = f"Failure # {max(number, 1)} (occurred at {date_str(fact.wall)})\n{known.said or reason}\n\n"
            self._files.append(self._path(trial_id, ERROR_FILE), text)
        is_end = hook in (Hook.COMPLETE, Hook.ERROR)
        if self._board is not None and fact.seq > self._job.seq and (is_end or hook is Hook.PAUSE):
            board = self._board
            if is_end:
                self._show(lambda: board.end(trial_id, known.config, known.metrics))
            else:
                self._show(lambda: board.close(trial_id))
        if is_end and known.attempt:  # one that comes back has its config in its start
            del self._trials[trial_id]

    # --- files -------------------------------------------------------------------------------------------------------

    def _path(self, trial_id: str, name: str) -> str:
        return f"{self._job.root}/{trial_id}/{name}"

    def _flush(self) -> bool:
        is_written = self._files.flush()
        if self._files.shortage is not None:
            self._once(
                f"log files in {self._job.root} cannot be written ({self._files.shortage.strerror}): what is missing "
                "is written when there is room, at the latest by a resume"
            )
        return is_written

    def _settle(self) -> None:
        """End the comparison: what the record does not know since a power cut goes."""
        self._is_comparing = False
        job, ids, self._names = self._job, self._names, set()
        names = [name for kind in job.kinds for name in _FILES.get(kind, ())]
        paths = [self._path(trial_id, name) for trial_id in ids for name in names]
        if self._policies is not None:
            paths += self._policies.paths(ids)
        self._files.settle(paths)

    def _open_policies(self) -> PolicyFiles | None:
        if "policies" not in self._job.kinds:
            return None
        from sweep.logs.policies import PolicyFiles

        return PolicyFiles(self._job.root, self._files, self._job.changed, self._job.variables)

    def _open_board(self) -> Board | None:
        if "tensorboard" not in self._job.kinds:
            return None
        from sweep.logs.tensorboard import Board

        return Board(self._job.root)

    def _show(self, call: Callable[[], None]) -> None:
        """Have something written for TensorBoard; what that package raises concerns nobody else."""
        if self._num_board_errors >= _MAX_ERRORS:
            return
        try:
            call()
        except Exception as error:  # of a package that is not ours
            self._num_board_errors += not lacks_space(error)
            self._once(f"TensorBoard's events cannot be written: {type(error).__name__}: {error}")

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)
