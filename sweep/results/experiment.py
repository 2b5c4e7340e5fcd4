"""What an experiment shows of itself as a whole, whether one holds its analysis or the grid of its results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from sweep import checks
from sweep.core.ranking import Objectives, best_of, shown_objectives
from sweep.core.trial import STATES
from sweep.errors import ConfigError, MetricError, nearest
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.frames import event_frame, history_frame, trial_frame
from sweep.results.notebook import analysis_page
from sweep.results.optuna_study import to_study
from sweep.results.scopes import SCOPES, best_reports, scores
from sweep.results.views import Result, local_filesystem, result_of, results_of, several_objectives
from sweep.results.winners import best_by_last, better_earlier, front_of, objectives_front

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    from optuna.storages import BaseStorage

    from sweep.figures.plots import Plots


_MAX_SHOWN = 5  # trials of a Pareto set


class Experiment:
    """What the analysis of an experiment and the grid of its results have in common: tables, and the best trial.

    Both are sequences of the trials' results, in the order of their numbers.

    Attributes:
        interrupted: Ctrl-C, or a signal, ended the run that has returned this.
    """

    # What others call it, without the underscore of scikit-learn: what is written here.
    _elsewhere: Mapping[str, str] = {
        "best_params": "best_config",
        "best_hyperparameters": "best_config",
        "best_value": "best_result[metric]",
        "best_score": "best_result[metric]",
        "best_metric": "best_result[metric]",
        "best_trials": "get_pareto_trials()",
        "get_trials": "trials",
        "trials_dataframe": 'dataframe(style="optuna")',
        "df": "dataframe()",
        "to_dataframe": "dataframe()",
    }
    interrupted = False
    _is_full = False  # what `dataframe()` shows unless it is told

    def __init__(self, reader: ExperimentReader, default_metric: str | None, default_mode: str | None) -> None:
        self._reader = reader
        self._objectives: Objectives = reader.objectives
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
            return results_of(self._reader, rows[index])
        try:
            row = rows[index]
        except IndexError:
            raise IndexError(f"there is no result {index}: the experiment has {len(rows)} trials.") from None
        return result_of(self._reader, row)

    def __iter__(self) -> Iterator[Result]:
        return iter(self[:])

    def __getattr__(self, name: str) -> Any:
        known = [one for one in dir(type(self)) if not one.startswith("_")]
        if name.startswith("_") or name in known:  # a property that failed says so itself
            return object.__getattribute__(self, name)
        there = self._elsewhere.get(name.rstrip("_"))
        hint = f"Write {there}." if there else nearest(name, known)
        raise AttributeError(f"{type(self).__name__} has no {name!r}. {hint}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_summary(self)})"

    def _repr_html_(self) -> str:
        return analysis_page(self)

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
            style: `sweep`, `ray` (Ray's full set of columns first) or `optuna` (as `study.trials_dataframe()`).
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
            best = best_reports(self._reader, metric, mode, infinite=True)
            chosen = self._reader.reports_at({trial_id: seq for trial_id, (seq, _) in best.items()})
        shown = metric or self.default_metric or self._reader.metric
        is_full = self._is_full if full is None else full
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
        compare: Experiment | str | os.PathLike[str] | Sequence[Experiment | str | os.PathLike[str]] = (),
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

        subjects = [Subject(self._reader, self.default_metric, self.default_mode)]
        for one in [compare] if isinstance(compare, (Experiment, str, os.PathLike)) else compare:
            reader = one._reader if isinstance(one, Experiment) else ExperimentReader(one)
            subjects.append(Subject(reader, self.default_metric, self.default_mode))
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
        if not metric or not mode:
            missing = " and ".join(name for name, value in (("metric", metric), ("mode", mode)) if not value)
            raise ConfigError(
                f"no {missing} {'is' if len(missing) < 10 else 'are'} known; give metric='...' and mode='min' or 'max' "
                "here or to the run; on the command line --metric and --goal."
            )
        return metric, checks.mode(mode)

    def _best(self, metric: str, mode: str, scope: str, is_finite_only: bool) -> tuple[TrialRow, float]:
        """Return the best trial and its value.

        Raises:
            MetricError: no trial has a usable number.
        """
        checks.one_of("scope", scope, SCOPES)
        found = scores(self._reader, metric, mode, scope, infinite=not is_finite_only)
        best = best_of(found, mode, infinite=not is_finite_only)
        if best is not None:
            return self._reader.snapshot().by_id[best[0]], best[1]
        names = self._reader.metric_names()
        known = nearest(metric, names) if names else "Nothing was reported yet."
        if metric in names:
            known = "All that was reported under it is NaN, infinite or no number."
        raise MetricError(f"no trial of {self._reader.name} has a usable number under {metric!r}. {known}")

    def _front(self, metric: Sequence[str] | None, mode: Sequence[str] | None) -> list[TrialRow]:
        metrics = list(metric or (name for name, _ in self._objectives))
        modes = list(mode or (one for _, one in self._objectives))
        if len(metrics) < 2 or len(metrics) != len(modes) or isinstance(metric, str):
            raise ConfigError(
                f"the objectives are metric={metric or metrics!r}, mode={mode or modes!r}; expected two lists of equal "
                "length such as metric=['error', 'latency'], mode=['min', 'min'], here or given to the run."
            )
        for one in modes:
            if one != "obs":
                checks.mode(one)
        return [row for row, _ in front_of(self._reader, metrics, modes)]


def _summary(analysis: Experiment) -> str:
    """Say what there is and what is best, with the scope that was used; of several objectives the Pareto set."""
    reader = analysis._reader
    trials = reader.trials()
    counts = Counter(row.state for row in trials)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "none yet"
    text = f"{reader.name}: {len(trials)} trials ({states})"
    if analysis._objectives and not analysis.default_metric:
        front = objectives_front(reader)
        shown = [
            f"{row.number:05d} ({', '.join(f'{value:.6g}' for value in values.values())})"
            for row, values in front[:_MAX_SHOWN]
        ]
        text += (
            f"; Pareto set by {shown_objectives(analysis._objectives)}: {len(front)} trials, get_pareto_trials(): "
            + ", ".join([*shown, *(["..."] if len(front) > _MAX_SHOWN else [])])
        )
    elif not analysis.default_metric or not analysis.default_mode:
        text += ", no metric given"
    best = best_by_last(reader, analysis.default_metric, analysis.default_mode)
    earlier = better_earlier(reader, analysis.default_metric, analysis.default_mode)
    if best is not None:
        text += (
            f"; best {best.metric}={best.value:.6g} ({best.mode}, trial {best.row.number:05d}, "
            "scope='last': by the last report of each trial)"
        )
    if earlier is not None:
        text += (
            f"; at an earlier step {earlier.metric}={earlier.value:.6g} (trial {earlier.row.number:05d} at step "
            f"{earlier.step}, scope='all')"
        )
    return text + ("; no driver runs it" if reader.state() == "crashed" else "")
