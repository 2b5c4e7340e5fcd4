"""A whole experiment as users read it: the best trial, every result, dataframes."""

from __future__ import annotations

import math
import os
import warnings
from collections import UserDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from sweep import checks
from sweep.core.config import level_of_caller
from sweep.core.ranking import best_of
from sweep.core.results import ANONYMOUS_METRIC, TrialResult, flatten, without_index
from sweep.errors import CheckpointError, ConfigError, MetricError, SweepError, refuse_unknown
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results import winners
from sweep.results.frames import event_frame, history_frame, result_frame, trial_frame
from sweep.results.notebook import experiment_page
from sweep.results.optuna_study import to_study
from sweep.results.views import Choice, Result, TrialView, full_result, several_objectives
from sweep.storage.fetch import open_storage_for_reading
from sweep.storage.filesystems import local_filesystem

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    from optuna.storages import BaseStorage

    from sweep.checkpoints.store import Checkpoint
    from sweep.figures.plots import Plots


class RecordedSweep:
    """What the analysis of an experiment and the grid of its results have in common: tables, and the best trial.

    Both are sequences of the trials' results, in the order of their numbers.

    Attributes:
        interrupted: Ctrl-C, or a signal, ended the run that has returned this.
    """

    interrupted = False
    _is_full = False  # what `dataframe()` shows unless it is told

    def __init__(self, reader: ExperimentReader, default_metric: str | None, default_mode: str | None) -> None:
        self._reader = reader
        self._objectives = reader.objectives
        self.default_metric = default_metric
        self.default_mode = default_mode

    def __len__(self) -> int:
        return len(self._reader.trials())

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...

    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        rows = self._reader.trials()
        if isinstance(index, slice):
            return [Result(row, self._reader) for row in rows[index]]
        return Result(rows[index], self._reader)

    def __iter__(self) -> Iterator[Result]:
        return iter(self[:])

    def __repr__(self) -> str:
        reader, by = self._reader, (self.default_metric, self.default_mode)
        parts = [f"{reader.name}: {len(self)} trials ({winners.shown_counts(reader) or 'none yet'})"]
        parts += winners.about_best(reader, *by, winners.best_by_last(reader, *by)) if len(self) else []
        parts += ["no driver runs it"] if reader.state() == "crashed" else []
        return f"{type(self).__name__}({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        return experiment_page(self._reader, self.default_metric, self.default_mode)

    @property
    def experiment_path(self) -> str:
        """Directory of the experiment."""
        return str(self._reader.root)

    @property
    def filesystem(self) -> Any:
        """The fsspec file system on which `experiment_path` lies: that of this machine."""
        return local_filesystem()

    @property
    def plot(self) -> Plots:
        """Figures: `plot.history()`, `plot.curves()` and others, each a `plotly.graph_objects.Figure`; printed, it says
        which of them suit this experiment."""
        from sweep.figures.plots import Plots

        return Plots(self._reader, self.default_metric, self.default_mode)

    def dataframe(
        self,
        metric: str | None = None,
        mode: str | None = None,
        *,
        style: str = "sweep",
        full: bool | None = None,
    ) -> pd.DataFrame:
        """Return one row per trial, ordered by number, with a RangeIndex (docs/reference/dataframes.md).

        Columns: number, trial_id, state, the metrics, `config/...`, training_iteration, time_total_s, stopped_early and
        reason.

        Args:
            metric, mode: show each trial's best report ever by them instead of its last, the last where none has a
                number under the metric; without trials that have reported nothing. A mode, or the sweep's own metric,
                is completed by the defaults; another metric alone shows the last reports, as in Tune.
            style: `sweep`, `ray` (Ray's full set of columns first), `optuna` (as `study.trials_dataframe()`) or `wandb`
                (as W&B's export of runs).
            full: with further columns of `style="sweep"`: times, attempts, resources, errors, processes, directories.
                None: without them, but for what `sweep.tune.run` returned, where Tune has them.

        Raises:
            ConfigError: a mode that is not min or max, the sweep's metric without any mode, an unknown style.
        """
        chosen = None
        modes: dict[str | None, str | None] = {**dict(self._objectives), self.default_metric: self.default_mode}
        if metric is not None and (mode or modes.get(metric, "obs")) in (None, "obs"):
            chosen = {}  # as in Tune: without a mode none is best
        elif metric is not None or mode is not None:
            metric, mode = self.chosen_metric(metric, mode)
            best = winners.best_reports(self._reader, metric, mode, infinite=True)
            chosen = self._reader.reports_at({trial_id: seq for trial_id, (seq, _) in best.items()})
        is_full = self._is_full if full is None else full
        shown = metric or self.default_metric or (None if self._objectives else self._reader.metric)
        return trial_frame(self._reader, chosen=chosen, style=style, metric=shown, full=is_full)

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: str | None = None, *, style: str = "sweep"
    ) -> pd.DataFrame:
        """Return `dataframe(metric=filter_metric, mode=filter_mode, full=True)`: all columns, under the name that
        Tune's `ResultGrid` has."""
        return self.dataframe(filter_metric, filter_mode, style=style, full=True)

    def history(self, *, config: bool = False) -> pd.DataFrame:
        """Return one row per report: number, trial_id, step, time_s (of driving), the metrics, attempt, time_total_s,
        timestamp, wall; with `config` the columns `config/...` as well."""
        return history_frame(self._reader, config=config)

    def events(self) -> pd.DataFrame:
        """Return one row per recorded event: what happened, to which trial, and what the sweep did about it."""
        return event_frame(self._reader)

    def to_html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        compare: RecordedSweep | str | os.PathLike[str] | Sequence[RecordedSweep | str | os.PathLike[str]] = (),
    ) -> str:
        """Write the experiment as one page that needs nothing else and opens without a network; `sweep html` does it.

        Args:
            path: a file; None: none is written.
            compare: another experiment, or its directory, to be shown beside it, or several.

        Returns:
            the path of the file; without one the page's text.

        Raises:
            ConfigError: plotly is not installed, or the file cannot be written.
        """
        from sweep.page.build import rendered, write_page
        from sweep.page.subject import Subject

        others = [compare] if isinstance(compare, (RecordedSweep, str, os.PathLike)) else compare
        readers = [one._reader if isinstance(one, RecordedSweep) else ExperimentReader(one) for one in (self, *others)]
        subjects = [Subject(reader, self.default_metric, self.default_mode) for reader in readers]
        return rendered(subjects) if path is None else str(write_page(subjects, path))

    def to_optuna(
        self,
        storage: str | os.PathLike[str] | BaseStorage | None = None,
        study_name: str | None = None,
        *,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
    ) -> optuna.Study:
        """Return the experiment as a study of Optuna, for its plots and importances, with all trials as they stand now.

        Each report is an intermediate value; what was stopped early is PRUNED, what failed or has no number under the
        metric FAIL. The whole table is in docs/how-to/come-from-optuna.md.

        Args:
            storage: also write it there: a URL such as `sqlite:///study.db`, a storage of Optuna, or the path of a
                journal, which is made. Only trials that have ended are written, and each once: called again it adds
                what has ended since.
            study_name: None: the experiment's name.
            metric, mode: the objective, or several as two lists; None: those of the sweep.

        Raises:
            ConfigError: no metric or mode is known, the study of that name is of another experiment or has other
                directions, or the storage cannot be opened (a ValueError).
        """
        if metric is None and not self._objectives and self._reader.metric is None:
            metric, mode = self.default_metric, mode or self.default_mode
        return to_study(self._reader, metric, mode, storage, study_name)

    def chosen_metric(self, metric: str | None = None, mode: str | None = None) -> tuple[str, str]:
        """Return the metric and the mode by which trials are compared: these, completed by the defaults.

        Raises:
            ConfigError: one of them is not known, or there are several objectives and none is named (a ValueError).
        """
        metric = metric or self.default_metric
        if not metric and self._objectives:
            raise ConfigError(several_objectives(self._objectives, "get_pareto_trials()"))
        modes = {name: one for name, one in self._objectives if one != "obs"}
        mode = mode or self.default_mode or modes.get(metric or "")
        return winners.known_objective(metric, mode)

    def _best(self, metric: str, mode: str, scope: str, is_finite_only: bool) -> tuple[TrialRow, float]:
        checks.one_of("scope", scope, winners.SCOPES)
        found = winners.scores(self._reader, metric, mode, scope, infinite=not is_finite_only)
        best = best_of(found, mode, infinite=not is_finite_only)
        if best is None:
            raise winners.no_number(self._reader, metric)
        return self._reader.snapshot().by_id[best[0]], best[1]

    def _front(self, metric: Sequence[str] | None, mode: Sequence[str] | None) -> list[TrialRow]:
        metrics = list(metric or (name for name, _ in self._objectives))
        modes = list(mode or (one for _, one in self._objectives))
        if len(metrics) < 2 or len(metrics) != len(modes) or isinstance(metric, str):
            raise ConfigError(
                f"the objectives are metric={metric or metrics!r}, mode={mode or modes!r}; expected two lists of equal "
                "length such as metric=['error', 'latency'], mode=['min', 'min'], here or given to the run."
            )
        for one in set(modes) - {"obs"}:
            checks.mode(one)
        return [row for row, _ in winners.front_of(self._reader, metrics, modes)]


@refuse_unknown()
class ExperimentAnalysis(RecordedSweep):
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
        return [TrialView(row, self._reader) for row in self._reader.trials()]

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
        return _TrialFrames({row.trial_id: (self._reader, row) for row in self._reader.trials()})

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
        checks.one_of("scope", scope, winners.SCOPES)
        trials = self._reader.trials()
        if len(trials) == 1:
            return TrialView(trials[0], self._reader)
        try:
            return TrialView(self._best(metric, mode, scope, filter_nan_and_inf)[0], self._reader)
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
        return [TrialView(row, self._reader) for row in self._front(metric, mode)]

    def ranking(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> list[tuple[TrialView, float]]:
        """Return (trial, value) of all trials that have a finite value, best first, the earlier of equals first.

        Raises:
            ConfigError: as `get_best_trial`.
        """
        metric, mode = self.chosen_metric(metric, mode)
        found = winners.scores(self._reader, metric, mode, checks.one_of("scope", scope, winners.SCOPES))
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
        try:
            return Result(self._row_of(trial), self._reader).get_best_checkpoint(metric, mode)
        except (CheckpointError, MetricError) as error:
            warnings.warn(str(error), stacklevel=level_of_caller())
            return None

    def get_last_checkpoint(
        self, trial: Any = None, metric: str = "training_iteration", mode: str = "max"
    ) -> Checkpoint | None:
        """Return the latest checkpoint of `trial`, or of the best trial by `metric` when none is given; None with a
        warning when there is none."""
        found = self.get_best_trial(metric, mode) if trial is None else TrialView(self._row_of(trial), self._reader)
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
        kept = Result(self._row_of(trial), self._reader).best_checkpoints
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
        return None if best is None else result_frame(self._reader, best._facts)

    # --- inside ---

    def _row_of(self, trial: Any) -> TrialRow:
        named = trial if isinstance(trial, (str, int)) else getattr(trial, "trial_id", None)
        if named is None:
            raise ConfigError(f"{trial!r:.100} is no trial; expected a trial, a result, an id or a number.")
        return self._reader.trial(Path(named).name if isinstance(named, str) else named)


def own_analysis(root: Path) -> ExperimentAnalysis:
    """Return the analysis of an experiment that this process has run, or is about to go on with."""
    analysis = ExperimentAnalysis(root)
    analysis._reader.claim()
    return analysis


@refuse_unknown()
class ResultGrid(RecordedSweep):
    """The results of all trials, in order of their numbers: index it, iterate over it, ask it for the best.

    Args:
        analysis: what it reads through.
    """

    def __init__(self, analysis: ExperimentAnalysis) -> None:
        super().__init__(analysis._reader, analysis.default_metric, analysis.default_mode)
        self.interrupted = analysis.interrupted
        self._experiment_analysis = analysis  # the name by which Tune's users reach it

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
        return Result(row, self._reader, Choice(metric, mode, scope, value, len(self)))

    def get_pareto_results(
        self, metric: Sequence[str] | None = None, mode: Sequence[str] | None = None
    ) -> list[Result]:
        """Return the results of `ExperimentAnalysis.get_pareto_trials`."""
        return [Result(row, self._reader) for row in self._front(metric, mode)]


class _TrialFrames(UserDict[str, Any]):
    """Frames by trial id, each read when it is asked for."""

    def __getitem__(self, trial_id: str) -> pd.DataFrame:
        return result_frame(*super().__getitem__(trial_id))
