"""Follow the record of a sweep and write its log files: the one code for that, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.failures import says_fell_back
from sweep.core.messages import Hook
from sweep.core.naming import experiment_tag
from sweep.core.resources import Resources
from sweep.core.results import TrialResult
from sweep.core.trial import Trial
from sweep.errors import ConfigError
from sweep.record.access import open_for_following
from sweep.record.following import (
    Began,
    Exited,
    Line,
    Notified,
    Report,
    Started,
    Suggested,
    config_of,
    last_report,
    read_rows,
    variables,
)
from sweep.record.layout import ExperimentLayout
from sweep.record.schema import last_seq
from sweep.record.space import lacks_space
from sweep.scribe.files import CsvFiles, ErrorFiles, JsonFiles, Live
from sweep.scribe.outbox import Outbox
from sweep.worker.wire import Follow

if TYPE_CHECKING:
    import sqlite3

    from sweep.callbacks.loggers import TBXLoggerCallback
    from sweep.scribe.policies import PolicyFiles


_ROUND = 2000  # events that are read in one transaction, and written in one round
_MAX_ERRORS = 3
_NOTHING = Resources()


class Follower:
    """Writes what the record says into log files, round by round.

    It reads the record from its beginning, for it must know the config that each trial has; what had happened up to
    `job.start` is in the files. From there up to `job.settle` a run that did not end in order may have written some of
    it: the files are compared with the record, go on where they end, and lose what the record does not know.

    Args:
        say: called with one line for the user, each only once.

    Attributes:
        position: number of the event up to which everything is taken in.
        written: the same, as far as it is in the files.
    """

    def __init__(self, job: Follow, say: Callable[[str], None]) -> None:
        self.job = job
        self.position = 0
        self.written = 0
        self._say = say
        self._said: set[str] = set()
        self._outbox = Outbox(self._once)
        self._root = job.root
        self._live: dict[str, Live] = {}
        self._json = JsonFiles(job.root, self._outbox) if "json" in job.files else None
        self._csv = CsvFiles(job.root, self._outbox) if "csv" in job.files else None
        self._errors = ErrorFiles(job.root, self._outbox) if "errors" in job.files else None
        self._policies = self._open_policies() if "policies" in job.files else None
        self._board = self._open_board() if "tensorboard" in job.files else None
        self._num_board_errors = 0
        self._lines = [files for files in (self._csv, self._json) if files is not None]
        self._heard: set[str] = set()  # trials with reports, while files are compared
        self._variables: list[str] | None = None
        self._is_comparing = job.settle > job.start
        for files in (*self._lines, *([self._errors] if self._errors else [])):
            files.is_comparing = self._is_comparing

    @property
    def wants_reports(self) -> bool:
        """Whether any file tells of reports."""
        return bool(self._lines) or self._board is not None

    @property
    def is_short(self) -> bool:
        """Whether the disk is full: what it did not take waits."""
        return self._outbox.shortage is not None

    def follow(self, upto: int | None = None) -> bool:
        """Write everything up to an event (None: that there is now), in this process; whether that is all written."""
        with closing(open_for_following(Path(self.job.database))) as connection:
            last = last_seq(connection) if upto is None else upto
            while self.written < last:
                self.advance(connection, last)
                if self.is_short:
                    return False
        return True

    def advance(self, connection: sqlite3.Connection, upto: int) -> None:
        """Do one round: read and write some of what comes next, no further than to an event."""
        self._outbox.flush()
        if self._outbox:
            self._complain(self._outbox.shortage)
            return
        job = self.job
        with_reports = self.wants_reports and self.position >= job.start
        if self.position < job.start:
            upto = min(upto, job.start)
        elif self._is_comparing and self.position < job.settle:
            upto = min(upto, job.settle)
        lines, last = read_rows(connection, self.position, upto, _ROUND, with_reports=with_reports)
        try:
            for line in lines:
                self.position = line.seq - 1  # all before it is told; only the first row of an event may raise
                self._tell(connection, line)
        except OSError as error:
            if not lacks_space(error):
                raise
            self._complain(error)  # the rest of this round comes again
            return
        if self._is_comparing and last >= job.settle:
            self._settle(connection)
        self.position = last
        self._outbox.flush()
        if not self._outbox:
            self.written = last
        else:
            self._complain(self._outbox.shortage)

    def close(self) -> None:
        """Close what is open; what waits is not written."""
        if self._board is not None:
            self._board.on_experiment_end([])

    # --- what happened -----------------------------------------------------------------------------------------------

    def _tell(self, connection: sqlite3.Connection, line: Line) -> None:
        is_told = line.seq <= self.job.start
        match line.row:
            case Report(trial_id) as report:
                self._report(self._known(connection, trial_id), line.seq, report)
            case Suggested(trial_id, config):
                self._live.setdefault(trial_id, Live()).take(config)
            case Began(trial_id, attempt, config, source):
                live = self._known(connection, trial_id)
                live.attempt, live.source = attempt, source
                if config is not None:
                    live.take(config)
            case Started(trial_id, attempt):
                live = self._known(connection, trial_id)
                if live.attempt in (attempt, 0):  # else it is what an attempt says that is gone
                    self._started(connection, trial_id, live, line.seq, is_told=is_told)
            case Exited(trial_id, said):
                self._known(connection, trial_id).said = said
            case Notified() as notified:
                self._notified(connection, notified, line, is_told=is_told)

    def _known(self, connection: sqlite3.Connection, trial_id: str) -> Live:
        live = self._live.get(trial_id)
        if live is None:
            live = self._live[trial_id] = Live()
            live.take(config_of(connection, trial_id))
        return live

    def _report(self, live: Live, seq: int, report: Report) -> None:
        trial_id, metrics = report.trial_id, None
        if self._is_comparing:
            self._heard.add(trial_id)
        for files in self._lines:
            if not files.is_there(trial_id):
                metrics = report.metrics() if metrics is None else metrics
                files.report(trial_id, live, metrics)
        live.num_reports += 1
        if self._board is not None and seq > self.job.boards_from:
            result = TrialResult(report.metrics() if metrics is None else metrics)
            self._show(lambda board: board.on_trial_result(self._trial(trial_id, live), result))

    def _started(self, connection: sqlite3.Connection, trial_id: str, live: Live, seq: int, *, is_told: bool) -> None:
        if self._policies is not None:
            if self._variables is None:
                self._variables = variables(connection)
            last = last_report(connection, trial_id, seq) if live.source is not None else None
            trial = self._trial(trial_id, live, last)
            tag = experiment_tag(trial.number, live.config, self._variables)
            self._policies.started(trial, tag, is_told=is_told)
        if is_told:
            live.params = live.config
        elif self._json is not None:
            self._json.started(trial_id, live)

    def _notified(self, connection: sqlite3.Connection, what: Notified, line: Line, *, is_told: bool) -> None:
        trial_id, live = what.trial_id, self._known(connection, what.trial_id)
        if what.hook in (Hook.ERROR, Hook.RETRY):
            live.num_failures += 1
            if self._errors is not None and not is_told and not says_fell_back(what.reason):
                said, number = live.said or what.reason, what.number if what.number >= 0 else live.num_failures
                self._errors.failed(trial_id, line.wall, said, number)
        if what.hook is Hook.RETRY:
            return
        if self._board is not None and line.seq > self.job.boards_from:
            if what.hook is Hook.PAUSE:
                self._show(lambda board: board.log_trial_pause(self._trial(trial_id, live)))
            else:
                trial = self._trial(trial_id, live, last_report(connection, trial_id, line.seq))
                self._show(lambda board: board.log_trial_end(trial))
        if what.hook is not Hook.PAUSE and live.attempt:  # one that comes back has its config in its start
            del self._live[trial_id]
            if self._csv is not None:
                self._csv.ended(trial_id)

    @staticmethod
    def _trial(trial_id: str, live: Live, last: dict[str, Any] | None = None) -> Trial:
        result = None if last is None else TrialResult(last)
        return Trial(
            trial_id,
            live.config,
            _NOTHING,
            attempt=live.attempt,
            started_from=live.source,
            count=live.num_reports,
            last_result=result,
        )

    # --- after a run that did not end in order -----------------------------------------------------------------------

    def _settle(self, connection: sqlite3.Connection) -> None:
        """End the comparison of files: take from them what the record does not know since a power cut."""
        self._is_comparing = False
        self._outbox.flush()
        unheard = self._live.keys() - self._heard
        if self._errors is not None:
            self._errors.settle()
        if self._json is not None:
            self._json.settle_params()
            for trial_id, number in self._json.surplus(unheard).items():
                self._json.cut(trial_id, number)
        if self._csv is not None and (surplus := self._csv.surplus(unheard)):
            for trial_id in surplus:
                self._csv.remove(trial_id)
            self._rewrite(connection, self._csv, surplus.keys())
        self._heard.clear()

    def _rewrite(self, connection: sqlite3.Connection, files: CsvFiles, trial_ids: Collection[str]) -> None:
        """Write files anew: which columns they have depends on all their rows."""
        position = 0
        while position < self.job.settle:
            lines, position = read_rows(connection, position, self.job.settle, _ROUND, with_reports=True)
            for _, _, row in lines:
                if isinstance(row, Report) and row.trial_id in trial_ids:
                    files.report(row.trial_id, Live(), row.metrics())

    # --- what goes wrong ---------------------------------------------------------------------------------------------

    def _open_policies(self) -> PolicyFiles:
        from sweep.scribe.policies import PolicyFiles

        return PolicyFiles(self._root, self._outbox, self.job.changed)

    def _open_board(self) -> TBXLoggerCallback | None:
        from sweep.callbacks.loggers import TBXLoggerCallback

        try:
            board = TBXLoggerCallback()
        except ConfigError as error:  # the driver found it, and this process does not
            self._once(str(error))
            return None
        board.layout = ExperimentLayout(Path(self._root))
        return board

    def _show(self, call: Callable[[TBXLoggerCallback], None]) -> None:
        """Have something written for TensorBoard; what that package raises concerns nobody else."""
        if self._board is None or self._num_board_errors >= _MAX_ERRORS:
            return
        try:
            call(self._board)
        except Exception as error:  # of a package that is not ours
            self._num_board_errors += not lacks_space(error)
            self._once(f"TensorBoard's events cannot be written: {type(error).__name__}: {error}")

    def _complain(self, error: OSError | None) -> None:
        if error is not None:
            self._once(
                f"log files in {self._root} cannot be written ({error.strerror}): what is missing is written when "
                "there is room, at the latest by a resume"
            )

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)
