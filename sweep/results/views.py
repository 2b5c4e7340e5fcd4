"""One trial as users read it: what it is (`TrialView`) and how it turned out (`Result`)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchers.errors import readable
from sweep import checks
from sweep.checkpoints.store import Checkpoint
from sweep.core.ranking import Objectives, best_of, shown_objectives
from sweep.core.reports import worth
from sweep.core.results import TrialResult, own_metrics, reported
from sweep.errors import CheckpointError, ConfigError, MetricError, SweepError, UserCodeError, refuse_unknown
from sweep.record.facts import Report
from sweep.record.importing import unpickle
from sweep.record.layout import ERROR_FILE
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow, trainable_name, variables_of
from sweep.results.frames import completed, result_frame
from sweep.results.notebook import trial_page
from sweep.results.trials import ExperimentInfo, ShownTrial
from sweep.results.winners import best_reports, metric_analysis, metric_n_steps
from sweep.storage.fetch import open_storage_for_reading
from sweep.storage.filesystems import local_filesystem

if TYPE_CHECKING:
    import pandas as pd


_Scored = tuple[Checkpoint, dict[str, Any]]  # a checkpoint that still exists, and the metrics it was taken at


class TrialView(ShownTrial):
    """One trial as it was when it was read; what is large is read when it is asked for.

    It can be pickled and read elsewhere without the trainable.
    """

    _facts: TrialRow

    def __init__(self, row: TrialRow, reader: ExperimentReader) -> None:
        meta = row.meta
        about = ExperimentInfo(str(reader.root), trainable_name(meta), variables_of(meta), attrgetter("name"))
        super().__init__(row, about)
        self._reader = reader

    def __repr__(self) -> str:
        names = ("trial_id", "number", "status", "reason", "attempt", "failures", "path")
        return f"TrialView({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (other.path, other._facts) == (self.path, self._facts)

    def __hash__(self) -> int:
        return hash(self.path)

    def _repr_html_(self) -> str:
        return trial_page(self)

    @property
    def reason(self) -> str:
        """Why it waits, why it ended, or that no driver runs it any more."""
        row = self._facts
        if not row.reason and row.status == "RUNNING" and self._reader.state() == "crashed":
            return "no driver runs it: it was running when its driver died"
        return row.reason

    @property
    def config(self) -> dict[str, Any]:
        """A copy of the decided config."""
        return self._facts.fresh_config()

    @property
    def last_result(self) -> dict[str, Any]:
        """The last report, nested, with `config`, `done` and the other filled-in fields; empty before the first.

        Of a trial that ran and ended in order without any: `trial_id`, `done`, `experiment_tag` and `config`.
        """
        return full_result(self._facts)

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """For each number that was reported, by its flattened name: max, min, avg, last, last-5-avg and last-10-avg.

        NaN is skipped by max and min and carries over into the averages.
        """
        return metric_analysis(self._reader, self.trial_id)

    @property
    def metric_n_steps(self) -> dict[str, dict[str, deque[float]]]:
        """For each number that was reported its last values: 5 under `"5"`, 10 under `"10"`."""
        return metric_n_steps(self._reader, self.trial_id)

    @property
    def max_failures(self) -> int:
        """Failures that it may have and still be started again; -1: unlimited."""
        return self._reader.plan().max_failures

    @property
    def error_file(self) -> str | None:
        """The file with the tracebacks of its failures; None when there is none."""
        path = os.path.join(self.path, ERROR_FILE)
        return path if os.path.exists(path) else None

    @property
    def error(self) -> SweepError | None:
        """Why the trial is in ERROR, None otherwise.

        A fault of the user's code is a `UserCodeError` with the class name and traceback of the original as text. Its
        `__cause__` is the original exception in what the run itself returned, and where the experiment was opened with
        `trust=True`: it is kept as a pickle, and loading that runs code which the experiment names. Otherwise, and when
        its class cannot be imported, there is no cause.
        """
        if self.status != "ERROR":
            return None
        ended, reason = self._reader.last_exit(self.trial_id), self._facts.reason
        if ended is None:
            return SweepError(reason or f"trial {self.trial_id} could not run")
        error = UserCodeError(ended.error or reason or ended.kind.value.lower())
        error.class_name, error.traceback = ended.class_name, ended.traceback
        if error.traceback:
            error.add_note(readable(error.traceback))
        if self._reader.is_trusted:
            error.__cause__ = _original(ended.pickled)
        return error

    @property
    def filesystem(self) -> Any:
        """The fsspec file system on which `path` lies: that of this machine, also of an experiment that was brought
        from elsewhere."""
        return local_filesystem()

    def get_error(self) -> str | None:
        """Return the traceback, else the reason, of a trial in ERROR; None otherwise. No pickle is loaded."""
        if self.status != "ERROR":
            return None
        ended = self._reader.last_exit(self.trial_id)
        return (ended and (ended.traceback or ended.error)) or self.reason

    def get_pickled_error(self) -> BaseException | None:
        """Return the user's own exception of a trial in ERROR; None when there is none, when it was not kept, or when
        the experiment is not trusted: see `Result.error`."""
        return getattr(self.error, "__cause__", None)


@dataclass(frozen=True)
class Choice:
    """Why a result was chosen as the best of `num_trials`; `value` is what was compared, as `scope` says."""

    metric: str
    mode: str
    scope: str
    value: float
    num_trials: int

    def __str__(self) -> str:
        by = f"by {self.metric} ({self.mode}, scope={self.scope!r})"
        return f"best of {self.num_trials} trials {by}: {self.value:.6g}"


@refuse_unknown()
class Result(TrialView):
    """How one trial turned out.

    `last` and `best` are its last and its best report: after an early stop, or when a model overfits, they differ.

    Attributes:
        choice: by what it was found to be the best; None when it was not asked for as the best.
    """

    def __init__(self, row: TrialRow, reader: ExperimentReader, choice: Choice | None = None) -> None:
        super().__init__(row, reader)
        self.choice = choice

    def __repr__(self) -> str:
        best, kept = self._best_report(), self._best_checkpoint()
        parts = [] if self.choice is None else [str(self.choice)]
        parts += [f"trial_id={self.trial_id!r}", f"status={self.status!r}", f"last={_own(self.last)}"]
        if best is not None and best.seq != self._facts.last_seq:
            parts.append(f"best={_own(best.metrics)}")
        parts.append(f"config={self._facts.config!r}")
        if self.status == "ERROR":
            parts.append(f"error={self._facts.reason}")
        if kept is not None:
            parts.append(f"best_checkpoint={kept[0].path!r} of {_own(kept[1])}")
        return readable(f"Result({', '.join(parts)}, path={self.path!r})")

    __str__ = __repr__

    def _repr_html_(self) -> str:
        best, kept = self._best_report(), self._best_checkpoint()
        checkpoint = self.checkpoint if kept is None else kept[0]
        metrics, path = None if best is None else best.metrics, None if checkpoint is None else checkpoint.path
        return trial_page(self, self.choice, metrics, path)

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None, *, trust: bool = False) -> Result:
        """Return the result of the trial whose directory is `path`.

        Args:
            path: the directory, a link to it, or its URI.
            storage_filesystem: of fsspec or pyarrow, on which it lies; None: this machine, or what the URI says.
            trust: as for `ExperimentAnalysis`: load what was pickled, which runs code from the experiment.

        Raises:
            ExperimentError: the directory does not lie in an experiment.
            ConfigError: the experiment has no such trial.
        """
        root: str | os.PathLike[str]
        root, name = os.path.split(os.fspath(path).rstrip("/"))
        if "://" in root or storage_filesystem is not None:
            root = open_storage_for_reading(root, storage_filesystem)
        else:
            directory = Path(path).expanduser().absolute()
            if directory.is_symlink():  # as `trial_dirname_creator` names it
                directory = directory.resolve()
            root, name = directory.parent, directory.name
        reader = ExperimentReader(root, trust=trust)
        return Result(reader.trial(name), reader)

    @property
    def metrics(self) -> dict[str, Any]:
        """The last report, nested, with `config`, `trial_id`, `done` and other filled-in fields; empty: none.

        Of a trial that ran and ended in order without any: `trial_id`, `done`, `experiment_tag` and `config`.
        """
        return full_result(self._facts)

    @property
    def last(self) -> dict[str, Any]:
        """The last report: the same as `metrics`."""
        return self.metrics

    @property
    def best(self) -> dict[str, Any] | None:
        """The best of all its reports, like `metrics`; None when there is no metric or it was not reported.

        By the metric and mode that `get_best_result` was given when this came from there, else by the sweep's own.

        Raises:
            ConfigError: the sweep has several objectives, and it was not chosen by one (a ValueError).
        """
        report = self._best_report(is_asked=True)
        return None if report is None else _filled(self._facts, report.metrics, report)

    best_metrics = best

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The kept checkpoint nearest to the best of all its reports, by the metric of `best`; None when there is none.

        Raises:
            ConfigError: as `best`.
        """
        found = self._best_checkpoint(is_asked=True)
        return None if found is None else found[0]

    @property
    def best_checkpoints(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """The checkpoints that still exist, each with the metrics it was taken at.

        Ordered by `checkpoint_score_attribute`, the best last; oldest first when the sweep had none.
        """
        layout, found = self._about.layout, self._reader.checkpoints(self.trial_id)
        kept = [(Checkpoint(layout.checkpoint(ref.path)), metrics) for ref, metrics in found]
        plan = self._reader.plan()
        return sorted(kept, key=lambda pair: worth(TrialResult(pair[1]), plan))

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """Return the kept checkpoint whose report was the best of all by `metric`, not the last; NaN is never best.

        Raises:
            ConfigError: `mode` is not min or max (a ValueError).
            CheckpointError: no checkpoint is kept (a RuntimeError).
            MetricError: none of their reports has a number under `metric` (a RuntimeError).
        """
        checks.mode(mode)
        kept = self.best_checkpoints
        if not kept:
            raise CheckpointError(
                f"trial {self.trial_id} has no checkpoint. Report one: sweep.report(metrics, checkpoint=...)."
            )
        best = _best_kept(kept, metric, mode, infinite=True)
        if best is None:
            raise MetricError(f"no report with a checkpoint of trial {self.trial_id} has a number under {metric!r}.")
        return best[0]

    @property
    def metrics_dataframe(self) -> pd.DataFrame:
        """One row per report: every key flattened with `/`, filled-in ones included, then `config/...`."""
        return result_frame(self._reader, self._facts)

    # --- inside ---

    def _metric_and_mode(self, is_asked: bool) -> tuple[str | None, str | None]:
        if self.choice is not None:
            return self.choice.metric, self.choice.mode
        if self._reader.objectives and is_asked:
            raise ConfigError(several_objectives(self._reader.objectives, "get_pareto_results()"))
        return (None, None) if self._reader.objectives else (self._reader.metric, self._reader.mode)

    def _best_report(self, *, is_asked: bool = False) -> Report | None:
        metric, mode = self._metric_and_mode(is_asked)
        if not metric or not mode:
            return None
        best = best_reports(self._reader, metric, mode, trial_id=self.trial_id)
        return self._reader.reports_at({trial_id: seq for trial_id, (seq, _) in best.items()}).get(self.trial_id)

    def _best_checkpoint(self, *, is_asked: bool = False) -> _Scored | None:
        metric, mode = self._metric_and_mode(is_asked)
        return _best_kept(self.best_checkpoints, metric, mode) if metric and mode else None


class TrainingResult(Result):
    """How the `fit()` of a trainer turned out: `metrics` has exactly what rank 0 reported last, as in Ray Train, and
    `metrics_dataframe` what is filled in, too."""

    @property
    def metrics(self) -> dict[str, Any]:
        """What was reported last; empty when nothing was."""
        return reported(self._facts.fresh_metrics() or {})


def _own(report: Mapping[str, Any]) -> str:
    return repr(own_metrics(report, "training_iteration"))


def _best_kept(kept: list[_Scored], metric: str, mode: str, *, infinite: bool = False) -> _Scored | None:
    best = best_of(((index, TrialResult(m).get(metric)) for index, (_, m) in enumerate(kept)), mode, infinite=infinite)
    return None if best is None else kept[best[0]]


def several_objectives(objectives: Objectives, call: str) -> str:
    """Say why nothing is best, and that `call` has what no other trial beats."""
    name, mode = objectives[0]
    return (
        f"the sweep has several objectives, {shown_objectives(objectives)}, so no single trial is best: {call} has "
        f"those that no other beats. Or name one: metric={name!r}, mode={mode!r}."
    )


def full_result(row: TrialRow) -> dict[str, Any]:
    """Return the last report with everything that is filled in; empty before the first.

    A trial that ran and ended as it should without any has, as in Tune, a result that says so.
    """
    metrics, report = row.fresh_metrics(), row.last_report
    if metrics is None or report is None:
        if row.status != "TERMINATED" or not row.attempt:
            return {}
        tag, config = row.experiment_tag, row.fresh_config()
        return {"trial_id": row.trial_id, "done": True, "experiment_tag": tag, "config": config}
    return _filled(row, metrics, report) | {"done": row.is_ended}


def _filled(row: TrialRow, metrics: dict[str, Any], report: Report) -> dict[str, Any]:
    return {**completed(row, metrics, report), "trial_id": row.trial_id, "config": row.fresh_config()}


def _original(pickled: bytes) -> BaseException | None:
    with suppress(Exception, SystemExit):  # whatever importing and building the user's class raises: the text must do
        loaded = unpickle(pickled)
        return loaded if isinstance(loaded, BaseException) else None
    return None
