"""One trial as users read it: what it is (`TrialView`) and how it turned out (`Result`)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sweep.core.results import AUTO_FILLED, flatten
from sweep.core.results import Result as Report
from sweep.core.trial import CheckpointRef
from sweep.errors import CheckpointError, ConfigError, MetricError, SweepError, UserCodeError, nearest
from sweep.store.checkpoints import Checkpoint
from sweep.store.reader import ExperimentReader, TrialRow

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Result",
    "TrialView",
    "best_of",
    "beats",
    "check_mode",
    "error_of",
    "full_result",
    "mean",
    "result_of",
    "view_of",
]

_Key = TypeVar("_Key")

# Numbers that say nothing about how good a trial is.
_NOT_ANALYSED = frozenset({"trial_id", "timestamp", "date", "pid", "hostname", "node_ip", "done", "experiment_tag"})


@dataclass(frozen=True)
class TrialView:
    """One trial as it was when it was read: a read-only view; what is large is read when it is asked for.

    Attributes:
        status: PENDING, RUNNING, PAUSED, TERMINATED or ERROR.
        reason: why it waits, or why it ended.
        attempt: starts so far. failures: faults of its own.
    """

    trial_id: str
    number: int
    status: str
    reason: str
    attempt: int
    failures: int
    path: str
    _row: TrialRow = field(repr=False)
    _reader: ExperimentReader = field(repr=False)

    @property
    def config(self) -> dict[str, Any]:
        """A copy of the decided config."""
        return self._row.fresh_config()

    @property
    def last_result(self) -> dict[str, Any]:
        """The last report, nested, with `config` and `done`; empty before the first."""
        return full_result(self._row)

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """For each number that was reported, by its flattened name: max, min, avg, last, last-5-avg and last-10-avg.

        NaN is skipped by max and min and carries over into the averages.
        """
        series: dict[str, list[float]] = {}
        for row in self._reader.results(self.trial_id):
            for key, value in flatten(row.metrics).items():
                if key not in _NOT_ANALYSED and isinstance(value, (int, float)):
                    series.setdefault(key, []).append(value)
        return {
            key: {
                "max": max((v for v in values if v == v), default=math.nan),
                "min": min((v for v in values if v == v), default=math.nan),
                "avg": mean(values),
                "last": values[-1],
                "last-5-avg": mean(values[-5:]),
                "last-10-avg": mean(values[-10:]),
            }
            for key, values in series.items()
        }

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Its latest checkpoint, or None."""
        return _checkpoint(self._reader, self._row.checkpoint)

    @property
    def logdir(self) -> str:
        """The same as `path`: the trial's directory."""
        return self.path

    @property
    def error(self) -> SweepError | None:
        """Why it is in ERROR; None otherwise."""
        return error_of(self._reader, self._row)


@dataclass(frozen=True)
class Result:
    """How one trial turned out.

    Attributes:
        metrics: the last report, nested, with `config`, `trial_id` and `done`; empty before the first.
        best_metrics: its best report by the sweep's own metric, likewise; None when there is no metric.
        path: the trial's directory.
    """

    metrics: dict[str, Any]
    path: str
    _row: TrialRow = field(repr=False, compare=False)
    _reader: ExperimentReader = field(repr=False, compare=False)

    def __repr__(self) -> str:
        shown = {key: value for key, value in self.metrics.items() if key in self._user_keys()}
        error = f", error={self.error!s}" if self._row.status == "ERROR" else ""
        return (
            f"Result(trial_id={self.trial_id!r}, status={self._row.status!r}, last={shown!r}, "
            f"config={self.config!r}{error}, path={self.path!r})"
        )

    def _user_keys(self) -> set[str]:
        return (self.metrics.keys() - AUTO_FILLED) | {"training_iteration"}

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> Result:
        """Return the result of the trial whose directory is `path`.

        Raises:
            ExperimentError: the directory does not lie in an experiment.
            ConfigError: the experiment has no such trial.
        """
        directory = Path(path).expanduser().absolute()
        reader = ExperimentReader(directory.parent)
        return result_of(reader, reader.trial(directory.name))

    @property
    def trial_id(self) -> str:
        """The trial's id."""
        return self._row.trial_id

    @property
    def config(self) -> dict[str, Any]:
        """A copy of the decided config."""
        return self._row.fresh_config()

    @property
    def best_metrics(self) -> dict[str, Any] | None:
        """The best report by the sweep's own metric; None when no metric was given or reported."""
        if self._row.best_seq is None:
            return None
        best = self._reader.metrics_at({self.trial_id: self._row.best_seq}).get(self.trial_id)
        return None if best is None else {**best, "config": self.config}

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The latest checkpoint, or None."""
        return _checkpoint(self._reader, self._row.checkpoint)

    @property
    def best_checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """The checkpoints that still exist, oldest first, each with the metrics it was taken at."""
        found = [(_checkpoint(self._reader, ref), m) for ref, m in self._reader.checkpoints(self.trial_id)]
        return [(checkpoint, metrics) for checkpoint, metrics in found if checkpoint is not None]

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """Return the kept checkpoint whose report was best by `metric`; NaN is never best.

        Raises:
            ConfigError: `mode` is not min or max (a ValueError).
            CheckpointError: no checkpoint is kept (a RuntimeError).
            MetricError: none of their reports has a number under `metric` (a RuntimeError).
        """
        check_mode(mode)
        kept = self.best_checkpoints
        if not kept:
            raise CheckpointError(
                f"trial {self.trial_id} has no checkpoint. Report one: sweep.report(metrics, checkpoint=...)."
            )
        best = best_of(((index, Report(m).get(metric)) for index, (_, m) in enumerate(kept)), mode)
        if best is None:
            names = {key for _, metrics in kept for key in flatten(metrics)}
            raise MetricError(
                f"no report with a checkpoint of trial {self.trial_id} has a number under {metric!r}. "
                + nearest(metric, names)
            )
        return kept[best[0]][0]

    @property
    def metrics_dataframe(self) -> pd.DataFrame:
        """One row per report: every key flattened with `/`, then `config/...`."""
        from sweep.store.frames import result_frame

        return result_frame(list(self._reader.results(self.trial_id)), self._row.config)

    @property
    def error(self) -> SweepError | None:
        """Why the trial is in ERROR, None otherwise.

        A fault of the user's code comes back as `UserCodeError` with the class name and traceback of the original, as
        text: reading an experiment loads no pickles and imports nothing of the user's.
        """
        return error_of(self._reader, self._row)


def view_of(reader: ExperimentReader, row: TrialRow) -> TrialView:
    path = str(reader.layout.trial(row.trial_id))
    return TrialView(
        row.trial_id, row.number, row.status, row.reason, row.attempt, row.failures, path, _row=row, _reader=reader
    )


def result_of(reader: ExperimentReader, row: TrialRow) -> Result:
    return Result(full_result(row), str(reader.layout.trial(row.trial_id)), _row=row, _reader=reader)


def full_result(row: TrialRow) -> dict[str, Any]:
    metrics = row.fresh_metrics()
    if metrics is None:
        return {}
    return {**metrics, "trial_id": row.trial_id, "done": row.is_ended, "config": row.fresh_config()}


def _checkpoint(reader: ExperimentReader, ref: CheckpointRef | None) -> Checkpoint | None:
    if ref is None:
        return None
    return Checkpoint(str(reader.root / ref.path))


def error_of(reader: ExperimentReader, row: TrialRow) -> SweepError | None:
    if row.status != "ERROR":
        return None
    ended = reader.last_exit(row.trial_id)
    if not ended:
        return SweepError(row.reason or f"trial {row.trial_id} could not run")
    error = UserCodeError(ended.get("error") or row.reason or str(ended.get("kind", "")).lower())
    error.class_name = ended.get("class_name") or ""
    error.traceback = ended.get("traceback") or ""
    if error.traceback:
        error.add_note(error.traceback)
    return error


def check_mode(mode: str) -> None:
    if mode not in ("min", "max"):
        raise ConfigError(f"mode is {mode!r}; expected 'min' or 'max'.")


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def beats(new: float, old: float, mode: str) -> bool:
    return new > old if mode == "max" else new < old


def best_of(scores: Iterable[tuple[_Key, Any]], mode: str, *, infinite: bool = True) -> tuple[_Key, float] | None:
    """Return the (key, value) that is best, the first of equals; NaN and what is no number never are."""
    best: tuple[_Key, float] | None = None
    for key, value in scores:
        if not isinstance(value, (int, float)) or value != value or (not infinite and math.isinf(value)):
            continue
        if best is None or beats(value, best[1], mode):
            best = (key, value)
    return best
