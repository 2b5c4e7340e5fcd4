"""A whole experiment as users read it: the best trial, every result, dataframes."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.core.config import level_of_caller
from sweep.core.results import ANONYMOUS_METRIC, TrialResult, flatten, without_index
from sweep.errors import CheckpointError, ConfigError, MetricError, SweepError, refuse_unknown
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.experiment import Experiment
from sweep.results.frames import result_frame
from sweep.results.scopes import SCOPES, scores
from sweep.results.views import (
    Choice,
    Result,
    TrialView,
    full_result,
    result_of,
    results_of,
    views_of,
)
from sweep.storage.fetch import open_storage_for_reading

if TYPE_CHECKING:
    import pandas as pd

    from sweep.checkpoints.store import Checkpoint


@refuse_unknown()
class ExperimentAnalysis(Experiment):
    """Read a whole experiment: the best trial, all configs, dataframes; also while it runs.

    Every access shows what is committed by then. "Best" means by the *last* report of each trial unless a scope says
    otherwise: `last`, `avg`, `last-5-avg`, `last-10-avg`, or `all` (the best report ever). NaN is never best, and the
    first trial is best of equals. Where a sweep has several objectives no single trial is best, unless one metric is
    named: `get_pareto_trials`.

    It can be pickled, and loaded in another process that sees the same directory, without the trainable.

    Args:
        experiment_checkpoint_path: directory of the experiment, its `sweep.db`, or its URI.
        storage_filesystem: of fsspec or pyarrow, on which it lies; None: this machine, or what the URI says.
        trials: ignored with a warning: all trials are in the record.
        default_metric, default_mode: used where a method is given none; None: what the sweep itself optimised, or
            nothing if it had several objectives.
        trust: give configs and reports with the objects that were put into them (functions, classes ...), and errors
            with the exceptions themselves. Loading them runs code from the experiment, so it is for experiments of
            one's own. Otherwise something stands for such a value that prints like it, and errors are texts. What a run
            returns has the exceptions of its trials in any case.

    Raises:
        ExperimentError: there is no experiment (a damaged or newer one likewise).
        ConfigError: `default_mode` is not min or max.
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        *,
        storage_filesystem: Any = None,
        trials: Any = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
        trust: bool = False,
    ) -> None:
        if trials is not None:
            warnings.warn("trials= is ignored: the experiment's record holds all its trials.", stacklevel=3)
        path = experiment_checkpoint_path
        if storage_filesystem is not None or "://" in os.fspath(path):
            path = open_storage_for_reading(path, storage_filesystem)
        reader = ExperimentReader(path, trust=trust)
        if default_mode is not None:
            checks.mode(default_mode, "default_mode")
        one, its_mode = (None, None) if reader.objectives else (reader.metric, reader.mode)
        mode_alone = default_mode is not None and default_metric is None and reader.metric is None
        super().__init__(reader, default_metric or (ANONYMOUS_METRIC if mode_alone else one), default_mode or its_mode)

    # --- all trials ---

    @property
    def trials(self) -> list[TrialView]:
        """All trials, ordered by number."""
        return views_of(self._reader, self._reader.trials())

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """`last_result` of each trial, by trial id: its last report."""
        return {row.trial_id: full_result(row) for row in self._reader.trials()}

    @property
    def results_df(self) -> pd.DataFrame:
        """The last report of each trial with Ray's columns, indexed by trial_id."""
        return self.dataframe(style="ray").set_index("trial_id")

    @property
    def trial_dataframes(self) -> Mapping[str, pd.DataFrame]:
        """One frame of all reports per trial, by trial id; each is read when it is asked for."""
        return _TrialFrames(self._reader)

    def fetch_trial_dataframes(self) -> Mapping[str, pd.DataFrame]:
        """Return `trial_dataframes`."""
        return self.trial_dataframes

    def stats(self) -> dict[str, Any]:
        """Return when the sweep was created and when something last happened to it, in UTC epoch seconds."""
        last = self._reader.last_event()
        return {"start_time": self._reader.meta.get("created"), "timestamp": None if last is None else last[2]}

    def runner_data(self) -> dict[str, Any]:
        """Return what is recorded of the experiment as a whole: name, space, metric, number of samples ..."""
        return dict(self._reader.meta)

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Return the config of each trial by trial id; with `prefix` flattened to `config/...` names."""
        configs = {row.trial_id: row.fresh_config() for row in self._reader.trials()}
        return {trial_id: flatten({"config": config}) for trial_id, config in configs.items()} if prefix else configs

    # --- the best trial ---

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> TrialView | None:
        """Return the best trial, the first of equals; None with a warning when no trial reported the metric.

        Failed trials that reported count as others. With a single trial that one is returned, whatever it reported.

        Args:
            scope: what of a trial counts: its `last` report, the mean of all (`avg`), of the last 5 or 10
                (`last-5-avg`, `last-10-avg`), or its best report (`all`).
            filter_nan_and_inf: leave out infinite values; NaN never wins either way.

        Raises:
            ConfigError: neither given nor known metric or mode, several objectives and no metric given, a bad mode or
                scope (a ValueError).
        """
        metric, mode = self.chosen_metric(metric, mode)
        checks.one_of("scope", scope, SCOPES)
        trials = self._reader.trials()
        if len(trials) == 1:
            return self._view(trials[0])
        try:
            return self._view(self._best(metric, mode, scope, filter_nan_and_inf)[0])
        except MetricError as error:
            warnings.warn(str(error), stacklevel=level_of_caller())
            return None

    def get_pareto_trials(
        self, metric: Sequence[str] | None = None, mode: Sequence[str] | None = None
    ) -> list[TrialView]:
        """Return the trials that no other beats in every objective, by their last reports, in their order.

        Trials with equal values are in it together; one that lacks an objective, or has NaN there, is not.

        Args:
            metric, mode: the objectives, as the run had them unless given; "obs" leaves one out.

        Raises:
            ConfigError: fewer than two objectives are known, or not as many modes as metrics (a ValueError).
        """
        return views_of(self._reader, self._front(metric, mode))

    def ranking(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> list[tuple[TrialView, float]]:
        """Return (trial, value) of all trials that have a finite value, best first, the earlier of equals first.

        Raises:
            ConfigError: as `get_best_trial`.
        """
        metric, mode = self.chosen_metric(metric, mode)
        found = scores(self._reader, metric, mode, checks.one_of("scope", scope, SCOPES))
        trials = {trial.trial_id: trial for trial in self.trials}
        finite = [(trials[trial_id], value) for trial_id, value in found if math.isfinite(value)]
        return sorted(finite, key=lambda item: item[1] if mode == "min" else -item[1])

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """Return the config of `get_best_trial`, or None with a warning."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else without_index(best.config)

    def get_best_checkpoint(self, trial: Any, metric: str | None = None, mode: str | None = None) -> Checkpoint | None:
        """Return the kept checkpoint of `trial` (a trial, a result, an id or a number) whose report was the best of
        all, not the last; None with a warning when there is none."""
        metric, mode = self.chosen_metric(metric, mode)
        row = self._row_of(trial)
        try:
            return result_of(self._reader, row).get_best_checkpoint(metric, mode)
        except (CheckpointError, MetricError) as error:
            warnings.warn(str(error), stacklevel=level_of_caller())
            return None

    def get_last_checkpoint(
        self, trial: Any = None, metric: str = "training_iteration", mode: str = "max"
    ) -> Checkpoint | None:
        """Return the latest checkpoint of `trial`, or of the best trial by `metric` when none is given; None with a
        warning when there is none."""
        found = self.get_best_trial(metric, mode) if trial is None else self._view(self._row_of(trial))
        checkpoint = None if found is None else found.checkpoint
        if checkpoint is None and found is not None:
            warnings.warn(f"trial {found.trial_id} has no checkpoint.", stacklevel=level_of_caller())
        return checkpoint

    def get_trial_checkpoints_paths(self, trial: Any, metric: str | None = None) -> list[tuple[str, Any]]:
        """Return (path, value) of the kept checkpoints of `trial`, `value` what its report has under `metric`.

        Args:
            trial: a trial, a result, an id or a number.
            metric: a key, or a path such as `eval/acc`; None: the default metric, else `training_iteration`.
        """
        key = metric or self.default_metric or self._reader.metric or "training_iteration"
        kept = result_of(self._reader, self._row_of(trial)).best_checkpoints
        return [(checkpoint.path, TrialResult(metrics).get(key)) for checkpoint, metrics in kept]

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str | None:
        """Return the directory of `get_best_trial`, or None with a warning."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.path

    @property
    def best_logdir(self) -> str | None:
        """The directory of `best_trial`."""
        return self.get_best_logdir()

    @property
    def best_trial(self) -> TrialView | None:
        """The best trial by its last report.

        Raises:
            ConfigError: no metric or mode is known, or there are several objectives (a ValueError);
                `get_best_trial(metric, mode)` takes them.
        """
        return self.get_best_trial()

    @property
    def best_config(self) -> dict[str, Any] | None:
        """The config of `best_trial`."""
        return self.get_best_config()

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The kept checkpoint of `best_trial` whose report was the best of all, not the last."""
        best = self.get_best_trial()
        return None if best is None else self.get_best_checkpoint(best)

    @property
    def best_result(self) -> dict[str, Any] | None:
        """The last report of `best_trial`."""
        best = self.get_best_trial()
        return None if best is None else best.last_result

    @property
    def best_result_df(self) -> pd.DataFrame:
        """`best_result` as a frame of one row, indexed by trial_id."""
        best = self.get_best_trial()
        frame = self.results_df
        return frame.loc[[] if best is None else [best.trial_id]]

    @property
    def best_dataframe(self) -> pd.DataFrame | None:
        """All reports of `best_trial`."""
        best = self.get_best_trial()
        return None if best is None else self.trial_dataframes[best.trial_id]

    # --- inside ---

    def _view(self, row: TrialRow) -> TrialView:
        return views_of(self._reader, [row])[0]

    def _row_of(self, trial: Any) -> TrialRow:
        if not isinstance(trial, (str, int)):
            known = getattr(trial, "trial_id", None)
            if not isinstance(known, str):
                raise ConfigError(f"{trial!r:.100} is no trial; expected a trial, a result, an id or a number.")
            return self._reader.trial(known)
        return self._reader.trial(Path(trial).name if isinstance(trial, str) else trial)


def own_analysis(root: Path) -> ExperimentAnalysis:
    """Return the analysis of an experiment that this process has run, or is about to go on with."""
    analysis = ExperimentAnalysis(root)
    analysis._reader.claim()
    return analysis


@refuse_unknown()
class ResultGrid(Experiment):
    """The results of all trials, in order of their numbers: index it, iterate over it, ask it for the best.

    Args:
        analysis: what it reads through.
    """

    def __init__(self, analysis: ExperimentAnalysis) -> None:
        super().__init__(analysis._reader, analysis.default_metric, analysis.default_mode)
        self.interrupted = analysis.interrupted
        self._experiment_analysis = analysis  # the name by which Tune's users reach it

    _elsewhere = dict.fromkeys(
        ("best_params", "best_config", "best_hyperparameters"), "get_best_result(metric, mode).config"
    ) | dict.fromkeys(
        ("best_value", "best_score", "best_metric", "best_result", "best_trial"), "get_best_result(metric, mode)"
    )

    @property
    def errors(self) -> list[SweepError]:
        """Why each trial in ERROR is there, as `Result.error` says it."""
        return [error for result in self if (error := result.error) is not None]

    @property
    def num_errors(self) -> int:
        """How many trials are in ERROR."""
        return sum(row.status == "ERROR" for row in self._reader.trials())

    @property
    def num_terminated(self) -> int:
        """How many trials are TERMINATED."""
        return sum(row.status == "TERMINATED" for row in self._reader.trials())

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """Return the result of the best trial; scopes as in `ExperimentAnalysis.get_best_trial`.

        Its repr says by what it was chosen, and which kept checkpoint is nearest to its best report.

        Raises:
            ConfigError: no metric or mode is known, several objectives and no metric given, a bad mode or scope (a
                ValueError).
            MetricError: no trial has a usable number under the metric (a RuntimeError).
        """
        if len(self) == 1:
            return self[0]
        metric, mode = self.chosen_metric(metric, mode)
        row, value = self._best(metric, mode, scope, filter_nan_and_inf)
        return result_of(self._reader, row, Choice(metric, mode, scope, value, len(self)))

    def get_pareto_results(
        self, metric: Sequence[str] | None = None, mode: Sequence[str] | None = None
    ) -> list[Result]:
        """Return the results of `ExperimentAnalysis.get_pareto_trials`."""
        return results_of(self._reader, self._front(metric, mode))


class _TrialFrames(Mapping[str, "pd.DataFrame"]):
    """Frames by trial id, each read when it is asked for, so that 10,000 trials cost nothing until then."""

    def __init__(self, reader: ExperimentReader) -> None:
        self._reader = reader

    def __getitem__(self, trial_id: str) -> pd.DataFrame:
        return result_frame(self._reader, self._reader.snapshot().by_id[trial_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._reader.snapshot().by_id)

    def __len__(self) -> int:
        return len(self._reader.trials())

    def __repr__(self) -> str:
        return f"<dataframes of {len(self)} trials by trial id>"
