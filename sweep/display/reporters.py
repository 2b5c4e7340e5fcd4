"""Progress reporters under the names that Tune has for them, for `progress_reporter=`."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TextIO

from sweep import checks
from sweep.callbacks.base import Callback
from sweep.callbacks.observed import ObservedTrial
from sweep.core.ranking import rankable
from sweep.core.results import AUTO_FILLED, flatten
from sweep.core.trial import Status, Trial, shown_status
from sweep.display.button import is_in_notebook
from sweep.display.formats import aligned, clean, fit, text, width_of
from sweep.display.progress import Progress
from sweep.display.state import ViewState
from sweep.errors import ConfigError, refuse_unknown

_IN_PLACE_S = 0.5  # between two frames of what is redrawn in place
# Result keys that are shown when they are reported, and how they are called.
_DEFAULT_METRICS: Mapping[str, str] = {
    "mean_accuracy": "acc",
    "mean_loss": "loss",
    "training_iteration": "iter",
    "time_total_s": "total time (s)",
    "timesteps_total": "ts",
    "episode_reward_mean": "reward",
}
_ORDER = ("RUNNING", "STARTING", "STOPPING", "PAUSED", "PENDING", "TERMINATED", "ERROR")


class ProgressReporter(Callback):
    """Show how a sweep is doing in a way of one's own: override `report`, and `should_report` to say when.

    Both are called after batches of events, on the thread of the callbacks, and once at the end with `done=True`.
    """

    def should_report(self, trials: Sequence[Any], done: bool = False) -> bool:
        """Return whether `report` is to be called now."""
        return True

    def report(self, trials: Sequence[Any], done: bool, *sys_info: Any) -> None:
        """Show the trials; `sys_info` are texts about the machine."""
        raise NotImplementedError(f"{type(self).__name__} must define report(self, trials, done, *sys_info).")

    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        """Report, if wanted."""
        if self.should_report(trials, done=False):
            self.report(trials, False)

    def on_experiment_end(self, trials: Sequence[Trial]) -> None:
        """Report for the last time."""
        if self.should_report(trials, done=True):
            self.report(trials, True)


@refuse_unknown()
class CLIReporter(ProgressReporter, Progress):
    """Show a table with chosen columns: in place on a terminal, printed at most every `max_report_frequency` seconds
    elsewhere.

    Args:
        metric_columns: result keys, or a dict of result key -> label; None: Tune's usual ones that are reported, and
            the first `infer_limit` of the user's own.
        parameter_columns: the same for the config; None: the parameters that differ between trials.
        total_samples: ignored; the number of trials is known.
        max_progress_rows, max_error_rows: how many trials the tables show.
        max_column_length: longest cell.
        max_report_frequency: seconds between two tables where they are printed.
        infer_limit: how many of the user's metrics are shown when no columns were chosen.
        print_intermediate_tables: False: only the last table is printed where they are printed; None: all.
        metric, mode: what is optimised; from the run unless given here.
        sort_by_metric: the best trials first.

    Raises:
        ConfigError: columns or numbers that make no sense (a ValueError).
    """

    shows_ending = False
    _reported: Sequence[Any] = ()

    def __init__(
        self,
        *,
        metric_columns: Sequence[str] | Mapping[str, str] | None = None,
        parameter_columns: Sequence[str] | Mapping[str, str] | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        Progress.__init__(self, file=file, has_thread=False, table=self._tables)
        if mode is not None:
            checks.mode(mode)
        metrics = _labels("metric_columns", metric_columns)
        self._metrics = dict(_DEFAULT_METRICS) if metrics is None else metrics
        self._is_inferring = metrics is None
        self._parameters = _labels("parameter_columns", parameter_columns)
        self._max_rows = checks.whole("max_progress_rows", max_progress_rows, least=1)
        self._max_error_rows = checks.whole("max_error_rows", max_error_rows, least=1)
        self._max_length = checks.whole("max_column_length", max_column_length, least=1)
        self._infer_limit = infer_limit
        self._metric, self._mode = metric, mode or "max"
        self._is_sorted = sort_by_metric
        self._every_s = checks.seconds("max_report_frequency", max_report_frequency, is_zero_allowed=True)
        self._has_tables_between = print_intermediate_tables is not False
        self._report_clock = clock
        self._reported_at = -1e9
        self._root = ""

    def __getstate__(self) -> dict[str, Any]:
        drawn = {*vars(Progress()), "_reported"}
        return {name: value for name, value in vars(self).items() if name not in drawn}

    def __setstate__(self, settings: dict[str, Any]) -> None:
        Progress.__init__(self, has_thread=False, table=self._tables)
        vars(self).update(settings)

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Show one more result key, under the label `representation`.

        Raises:
            ConfigError: it is shown already (a ValueError).
        """
        _add(self._metrics, metric, representation)

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Show one more config key, under the label `representation`; from then on only those that were added.

        Raises:
            ConfigError: it is shown already (a ValueError).
        """
        self._parameters = self._parameters or {}
        _add(self._parameters, parameter, representation)

    def setup(self, **info: Any) -> None:
        """Begin to show."""
        self._root = str(info["experiment_dir"])
        if self._metric is None:
            self._metric, self._mode = info["plan"].metric, info["plan"].mode
        verbose = info.get("verbose")
        self.verbose = 1 if verbose is None else verbose
        Progress.setup(self, **info)
        if self.is_redrawn:
            self._every_s = min(self._every_s, _IN_PLACE_S)

    def should_report(self, trials: Sequence[Any], done: bool = False) -> bool:
        """Return whether enough time has passed since the last table; the last one is always shown."""
        now = self._report_clock()
        if done or now - self._reported_at >= self._every_s:
            self._reported_at = now
            return done or self._has_tables_between or self.is_redrawn
        return False

    def report(self, trials: Sequence[Any], done: bool, *sys_info: Any) -> None:
        """Show the tables."""
        self._reported = trials
        if done:
            Progress.on_experiment_end(self, trials)  # draws the last frame, too
        else:
            self.refresh()

    def _tables(self, view: ViewState) -> list[str]:
        """Return the table of the trials, a line for what it leaves out, and a table of the trials that failed."""
        trials = self._reported
        if not trials:
            return []
        shown, metrics = self._ordered(trials)[: self._max_rows], self._shown_metrics(trials)
        parameters = {name: name for name in view.varying} if self._parameters is None else self._parameters
        rows = [["trial name", "status", *map(clean, parameters.values()), *map(clean, metrics.values())]]
        for trial in shown:
            flat, last = flatten(trial.config), trial.last_result or {}
            values = [flat.get(name) for name in parameters] + [last.get(name) for name in metrics]
            cells = ["" if value is None else fit(text(value), self._max_length) for value in values]
            rows.append([_name_of(trial), shown_status(trial.status), *cells])
        lines = _ruled(rows, range(2, len(rows[0])))
        if len(trials) > len(shown):
            counts = Counter(shown_status(trial.status) for trial in trials)
            counts.subtract(shown_status(trial.status) for trial in shown)
            which = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()) if number)
            lines.append(f"... {len(trials) - len(shown)} more trials not shown ({which})")
        failed = [trial for trial in trials if trial.status is Status.ERROR or trial.failures]
        if failed:
            heads = ["trial name", "# failures", "error file"]
            some = [(_name_of(one), str(max(1, one.failures)), f"{self._root}/{one.id}/error.txt") for one in failed]
            lines += [f"Number of errored trials: {len(failed)}", *_ruled([heads, *some[: self._max_error_rows]])]
            lines += [f"... {len(failed) - self._max_error_rows} more"] * (len(failed) > self._max_error_rows)
        return lines

    def _ordered(self, trials: Sequence[Any]) -> list[Any]:
        """Return the trials in the order in which they are shown: those that run, or the best, first."""
        if not self._is_sorted or not self._metric:
            return sorted(trials, key=lambda trial: (_ORDER.index(trial.status), trial.number))
        sign = -1 if self._mode == "max" else 1
        values = [rankable((trial.last_result or {}).get(self._metric)) for trial in trials]
        ranks = sorted((value is None, sign * (value or 0), at) for at, value in enumerate(values))
        return [trials[at] for _, _, at in ranks]

    def _shown_metrics(self, trials: Sequence[Any]) -> dict[str, str]:
        """Return the metric columns that some trial has a value for; without a choice some of the user's own, too."""
        values = [pair for trial in trials[-200:] for pair in flatten(trial.last_result or {}).items()]
        reported = dict.fromkeys(key for key, value in values if isinstance(value, (int, float, str)))
        shown = {name: label for name, label in self._metrics.items() if name in reported}
        if self._is_inferring:
            own = [name for name in reported if name not in AUTO_FILLED and name not in shown]
            own.sort(key=lambda name: name != self._metric)
            shown |= {name: name for name in own[: self._infer_limit]}
        return shown


@refuse_unknown(also=inspect.signature(CLIReporter).parameters)
class JupyterNotebookReporter(CLIReporter):
    """The same in a notebook's cell, where the table is redrawn in place.

    Args:
        overwrite: False: print table after table instead.
    """

    def __init__(self, overwrite: bool = True, **columns: Any) -> None:
        super().__init__(**columns)
        if is_in_notebook():
            self.style = "notebook" if overwrite else "lines"


def _add(columns: dict[str, str], name: str, label: str | None) -> None:
    if name in columns:
        raise ConfigError(f"the column {name!r} is there already.")
    columns[name] = label or name


def _labels(name: str, given: Sequence[str] | Mapping[str, str] | None) -> dict[str, str] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, (Mapping, Sequence)):
        raise ConfigError(f"{name} is {given!r:.100}; expected a list of names, or a dict of name -> label.")
    found = dict(given) if isinstance(given, Mapping) else {key: key for key in given}
    for key, label in found.items():
        if not isinstance(key, str) or not isinstance(label, str):
            raise ConfigError(f"{name} has {key!r}: {label!r}; expected texts.")
    return found


def _ruled(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a table with a rule below its heading."""
    rule = ["-" * max(map(width_of, column)) for column in zip(*rows, strict=True)]
    return aligned([rows[0], rule, *rows[1:]], right)


def _name_of(trial: Trial | ObservedTrial) -> str:
    return clean(trial if isinstance(trial, ObservedTrial) else trial.id)
