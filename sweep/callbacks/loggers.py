"""Write each trial's results where other tools look for them: `result.json`, `progress.csv`, TensorBoard events.

The files are copies for reading; the record is `sweep.db`. After a crash a logger completes its files from there. A
subclass of one of these runs in the driver; what they do themselves the scribe does in their place, by the record.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import threading
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

from sweep.callbacks.base import in_either_form
from sweep.callbacks.log_text import csv_line, csv_row, json_line, params_text, read_csv, to_json, write_to
from sweep.callbacks.logger_base import LoggerCallback, number_of, required, step_of
from sweep.core.results import AUTO_FILLED, TrialResult, flatten
from sweep.core.trial import Trial
from sweep.core.values import as_float, printed
from sweep.errors import refuse_unknown
from sweep.record.encoding import decode, decode_metrics
from sweep.record.files import write_atomically
from sweep.record.space import lacks_space
from sweep.storage.shared import open_record

_MAX_WRITERS = 64
_MAX_WAITING = 4_000_000  # characters that may wait to be written
_FLUSH_S = 1.0
# Lines may be missing from the files of trials that had ended when the driver died: flushing takes a second, the queue
# in front of the callbacks some more. Older files are not looked at.
_RECENT_S = 15.0  # reports this much older than the newest were flushed long before the driver died


class _Appender:
    """Appends to many files: what is written is collected and reaches its file within `flush_s`, or when it is closed.

    A file is open only for the moment of writing, so a short trial costs one open, write and close, and any number of
    trials may run. Flushing has a thread of its own, so that the last lines before a long silence appear too; it lives
    while there is something to flush, and where the kernel allows none everything is written at once. An error there is
    raised by the next `write`. What a full disk does not take is kept, and written when there is room.
    """

    def __init__(self, flush_s: float = _FLUSH_S) -> None:
        self._flush_s = flush_s
        self._lock = threading.Lock()
        self._waiting: dict[str, list[bytes]] = {}
        self._num_waiting = 0  # bytes
        self._not_before = 0.0  # on the monotonic clock: the disk was full just now
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def write(self, path: str, text: str) -> None:
        """Append `text` to `path`; its directory is made when it is not there."""
        with self._lock:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            data = text.encode()
            self._waiting.setdefault(path, []).append(data)
            self._num_waiting += len(data)
            has_thread = self._thread is not None or self._over.is_set() or self._start_thread()
        if (self._num_waiting > _MAX_WAITING or not has_thread) and time.monotonic() >= self._not_before:
            self.flush()

    def _start_thread(self) -> bool:
        self._thread = threading.Thread(target=self._run, name="sweep-log-flush", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no process or thread is free
            self._thread = None
        return self._thread is not None

    def close(self, path: str) -> None:
        """Write out what one file still waits for, as far as there is room."""
        with self._lock:
            self._write_out([path])

    def flush(self) -> None:
        """Hand everything written so far to the operating system, as far as there is room."""
        with self._lock:
            self._write_out(list(self._waiting))

    def close_all(self) -> None:
        """Write everything out and end the thread; `write` may still be called, and `close` then writes it out.

        Raises:
            OSError: the disk is full, and what it did not take is lost.
        """
        self._over.set()
        thread = self._thread
        if thread is not None:
            thread.join()
        self.flush()
        if self._waiting:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), next(iter(self._waiting)))

    def _run(self) -> None:
        while True:
            self._over.wait(self._flush_s)
            try:
                self.flush()
            except OSError as error:  # a directory that is gone, a broken disk: raised where it can be shown
                self._error = error
            with self._lock:
                if self._over.is_set() or not self._waiting:
                    self._thread = None
                    return

    def _write_out(self, paths: Sequence[str]) -> None:
        for path in paths:
            data = bytearray().join(self._waiting.pop(path, ()))
            if not data:
                continue
            self._num_waiting -= len(data)
            try:
                write_to(path, data, os.O_APPEND)
            except OSError as error:
                if not lacks_space(error):
                    raise
                self._waiting[path] = [bytes(data)]
                self._num_waiting += len(data)
                self._not_before = time.monotonic() + self._flush_s


@in_either_form
class _FileLogger(LoggerCallback):
    """A logger with one text file of lines per trial."""

    _file_name: str
    _num_header_lines = 0

    def __init__(self) -> None:
        self._files = _Appender()
        self._repair_to: int | None = None  # the last event up to which files are to be completed; None: nothing is

    def setup(self, *, experiment_dir: str, plan: Any, num_trials: int | None, **info: Any) -> None:
        """Take the directory; after a restart (`resumed=True`) note up to where the files should be complete."""
        super().setup(experiment_dir=experiment_dir, plan=plan, num_trials=num_trials, **info)
        self._root = str(self.layout.root)
        if info.get("resumed"):
            with closing(open_record(self.layout.root)) as connection:
                (self._repair_to,) = connection.execute("SELECT coalesce(max(seq), 0) FROM result").fetchone()

    def on_trial_start(self, trial: Trial) -> None:
        """Complete old files first: here rather than in `setup`, where the driver would wait for it."""
        self._repair_once()
        super().on_trial_start(trial)

    def on_trial_result(self, trial: Trial, result: TrialResult) -> None:
        if self._repair_to is not None:
            self._repair_once()
        super().on_trial_result(trial, result)

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """Write everything out."""
        self._repair_once()
        self._files.close_all()

    def log_trial_pause(self, trial: Trial) -> None:
        self._forget(trial)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._forget(trial)

    def _forget(self, trial: Trial) -> None:
        """Write out what is kept of a trial, and drop it."""
        self._files.close(self._path(trial.id))

    def _path(self, trial_id: str) -> str:
        return f"{self._root}/{trial_id}/{self._file_name}"

    @abstractmethod
    def _complete(self, path: Path, config: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> None:
        """Make the file what it is after these reports, keeping what is right in it."""

    def _repair_once(self) -> None:
        seq, self._repair_to = self._repair_to, None
        if seq is None:
            return
        with closing(open_record(self.layout.root)) as connection:
            found = connection.execute(
                "SELECT t.trial_id, t.config, t.status, coalesce(r.number, 0), coalesce(r.wall, 0.0) FROM trial t"
                " LEFT JOIN (SELECT trial_id, count(*) number, max(wall) wall FROM result WHERE seq <= ?"
                " GROUP BY trial_id) r ON t.trial_id = r.trial_id",
                (seq,),
            ).fetchall()
            newest = max((row[4] for row in found), default=0.0)
            wrong = {
                trial_id: config
                for trial_id, config, status, count, wall in found
                if (status not in ("TERMINATED", "ERROR") or wall >= newest - _RECENT_S)
                and count
                and self._num_lines(self.layout.trial(trial_id) / self._file_name) != count + self._num_header_lines
            }
            for trial_id, _, status, count, _ in found:
                if not count and status not in ("TERMINATED", "ERROR"):  # what it reported was taken by a power cut
                    (self.layout.trial(trial_id) / self._file_name).unlink(missing_ok=True)
            reports = connection.execute(
                "SELECT trial_id, metrics FROM result WHERE seq <= ? AND trial_id IN (SELECT value FROM json_each(?))"
                " ORDER BY trial_id, seq",
                (seq, json.dumps(list(wrong))),
            )
            for trial_id, rows in groupby(reports, itemgetter(0)):
                path = self.layout.trial(trial_id) / self._file_name
                path.parent.mkdir(exist_ok=True)
                self._complete(path, decode(wrong[trial_id]), [decode_metrics(metrics) for _, metrics in rows])

    @staticmethod
    def _num_lines(path: Path) -> int:
        """Count whole lines; -1 for a file that is missing or damaged at its end."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return -1
        return data.count(b"\n") if data.endswith(b"\n") and b"\0" not in data else -1


@refuse_unknown()
class JsonLoggerCallback(_FileLogger):
    """Write `result.json`, one JSON object per line and report, nested and with the config, and `params.json`.

    NaN and infinities are written as `NaN` and `Infinity`, as Python and Tune do; objects that JSON does not know as
    their text.
    """

    _file_name = "result.json"

    def __init__(self) -> None:
        super().__init__()
        self._configs: dict[str, tuple[Mapping[str, Any], str]] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Write `params.json`; again when a scheduler has changed the config."""
        path = f"{self.layout.root}/{trial.id}/params.json"
        write_to(path, bytearray(params_text(trial.config).encode()), os.O_TRUNC)

    def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
        """Append a line."""
        known = self._configs.get(trial.id)
        if known is None or known[0] is not trial.config:
            known = self._configs[trial.id] = (trial.config, to_json(trial.config))
        self._files.write(self._path(trial.id), json_line(result, known[1]))

    def _forget(self, trial: Trial) -> None:
        super()._forget(trial)
        self._configs.pop(trial.id, None)

    def _complete(self, path: Path, config: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> None:
        """Keep the whole lines that are there: they have the config as it was at that time."""
        try:
            lines = path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            lines = []
        kept = list(takewhile(lambda line: b"\0" not in line, lines))[: len(rows)]
        known = to_json(config)
        new = [json_line(row, known).encode() for row in rows[len(kept) :]]
        write_atomically(path, b"".join(line + b"\n" for line in kept) + b"".join(new))


@refuse_unknown()
class CSVLoggerCallback(_FileLogger):
    """Write `progress.csv`: one row per report, keys flattened with `/`, without the config.

    A key that appears later adds a column: the file is rewritten with it, and earlier rows are empty there.
    """

    _file_name = "progress.csv"
    _num_header_lines = 1

    def __init__(self) -> None:
        super().__init__()
        self._columns: dict[str, dict[str, None]] = {}

    def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
        """Append a row."""
        path = self._path(trial.id)
        row = csv_row(result)
        columns = self._columns.get(trial.id)
        if columns is None:
            columns = self._columns[trial.id] = dict.fromkeys(next(iter(read_csv(path, limit=1)), []))
        if not columns:
            columns.update(dict.fromkeys(row))
            self._files.write(path, csv_line(columns))
        elif not row.keys() <= columns.keys():
            self._files.close(path)
            columns.update(dict.fromkeys(row))
            rows = [list(columns), *read_csv(path)[1:]]
            write_atomically(path, "".join(csv_line([*old, *[""] * (len(columns) - len(old))]) for old in rows))
        self._files.write(path, csv_line(map(row.get, columns)))

    def _forget(self, trial: Trial) -> None:
        super()._forget(trial)
        self._columns.pop(trial.id, None)

    def _complete(self, path: Path, config: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> None:
        flat = [csv_row(row) for row in rows]
        columns = dict.fromkeys(key for row in flat for key in row)
        write_atomically(path, "".join(map(csv_line, [columns, *(map(row.get, columns) for row in flat)])))


@refuse_unknown()
class TBXLoggerCallback(LoggerCallback):
    """Write TensorBoard events with tensorboardX, one run per trial directory; the hyperparameters at its end.

    Numbers become scalars named by their flattened key, lists and arrays of one or two dimensions histograms, arrays of
    three, four and five dimensions an image, images and a video (left out when Pillow or moviepy is missing). The step
    is `timesteps_total` if reported, else `training_iteration`. After a crash at most the last second is missing; it is
    not filled in.

    Raises:
        ConfigError: tensorboardX is not installed.
    """

    def __init__(self) -> None:
        self._make = required("tensorboardX", "TBXLoggerCallback").SummaryWriter
        self._writers: OrderedDict[str, Any] = OrderedDict()

    def log_trial_result(self, iteration: int, trial: Trial, result: TrialResult) -> None:
        writer = self._writer(trial)
        step = step_of(result, iteration, trial.count)
        for name, value in flatten(result).items():
            if name not in AUTO_FILLED:
                _tensorboard_value(writer, name, value, step)

    def log_trial_pause(self, trial: Trial) -> None:
        self._close(trial.id)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Write the hyperparameters and close the writer."""
        numbers = {
            name: value
            for name, value in flatten(trial.last_result or {}).items()
            if as_float(value) is not None and name not in AUTO_FILLED
        }
        config = {
            name: value if isinstance(value, str) or as_float(value) is not None else printed(value)
            for name, value in flatten(trial.config).items()
        }
        if numbers and config:
            summaries = importlib.import_module("tensorboardX.summary")
            file_writer = self._writer(trial).file_writer
            for summary in summaries.hparams(hparam_dict=config, metric_dict=numbers):
                file_writer.add_summary(summary)
        self._close(trial.id)

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        for trial_id in list(self._writers):
            self._close(trial_id)

    def _writer(self, trial: Trial) -> Any:
        writer = self._writers.get(trial.id)
        if writer is None:
            writer = self._writers[trial.id] = self._make(str(self.layout.trial(trial.id)), flush_secs=_FLUSH_S)
            if len(self._writers) > _MAX_WRITERS:
                self._writers.popitem(last=False)[1].close()
        self._writers.move_to_end(trial.id)
        return writer

    def _close(self, trial_id: str) -> None:
        writer = self._writers.pop(trial_id, None)
        if writer is not None:
            writer.close()


def _tensorboard_value(writer: Any, name: str, value: Any, step: int) -> None:
    import numpy as np

    if (number := number_of(value)) is not None:
        writer.add_scalar(name, number, global_step=step)
        return
    if not isinstance(value, (list, tuple, np.ndarray)) or not len(value):
        return
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return
    if array.dtype.kind not in "biuf":
        return
    add: Callable[..., Any] = {3: writer.add_image, 4: writer.add_images, 5: writer.add_video}.get(
        array.ndim, writer.add_histogram
    )
    try:
        add(name, array, global_step=step)
    except Exception:  # pictures need Pillow, videos moviepy, histograms something finite: else they are left out
        return
