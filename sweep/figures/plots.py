"""`analysis.plot`: the figures of one experiment."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from searchers.errors import nearest
from sweep import checks
from sweep.core.ranking import rankable, shown_objectives
from sweep.errors import ConfigError
from sweep.figures.importance import LEAST
from sweep.figures.parameters import parameters
from sweep.figures.population import SCHEDULERS
from sweep.figures.style import plain
from sweep.figures.trials import Field, spread
from sweep.record.reader import ExperimentReader
from sweep.results.winners import known_objective, objectives_front

if TYPE_CHECKING:
    import plotly.graph_objects as go


_LOOKED_AT = 500  # trials, for whether a parameter varies
NAMES = tuple("history curves pareto parallel importance slice contour rungs population timeline".split())


class Plots:
    """Draw an experiment from its record, also while it runs; each method returns a `plotly.graph_objects.Figure`.

    Of several objectives a figure shows the first, and says so, or the one that `metric` names; `pareto` shows them
    together.

    Values are those of the last reports, as everywhere (`scope="last"`). What is too much for one figure is thinned,
    and the figure says how. Every mark that stands for a trial has the trial's number first in its `customdata`;
    `figure.layout.meta` holds `figure` (the method's name), `note` (what was thinned or left out) and `summary` (one
    sentence for those who do not see it), in both of which texts of the user are escaped as for HTML.

    Args:
        reader: of the experiment.
        metric, mode: where a method is given none.

    Raises:
        ConfigError: by every method: plotly is not installed; an argument is wrong, or a metric or mode is needed that
            is not known; this sweep has nothing of the kind.
        MetricError: by every method: there is nothing to show under that metric, or nothing yet.
    """

    def __init__(self, reader: ExperimentReader, metric: str | None = None, mode: str | None = None) -> None:
        self._reader = reader
        self._defaults = (metric, mode)

    def __repr__(self) -> str:
        calls = ", ".join(f"{name}()" for name in self.suited()) or "none yet, for lack of trials"
        return f"figures of {self._reader.name}: {calls}; of two parameters contour(x, y)"

    def __dir__(self) -> Iterator[str]:
        yield from (*NAMES, "suited")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"there is no figure {name!r}. {nearest(name, NAMES)}")

    def suited(self) -> list[str]:
        """Return the names of the figures that have something to show without arguments, in the order of a page."""
        reader, rows = self._reader, self._reader.trials()
        try:
            field = self._field(None, None)
        except ConfigError:
            field = Field(reader)
        valued = [row for row in rows if row.number in field.ranked]
        looked_at = spread(valued, _LOOKED_AT)
        shown = parameters(reader, looked_at, None, most=1000)[0] if any(row.config for row in looked_at) else []
        has_front = any(all(rankable(v) is not None for v in one.values()) for _, one in objectives_front(reader))
        best = {row.trial_id: row.best_seq for row in rows if row.best_seq is not None and not valued}
        had_numbers = any(rankable(report.get(field.metric)) is not None for report in reader.reports_at(best).values())
        has_something = {
            "history": valued,
            "curves": valued or had_numbers,
            "pareto": has_front and sum(mode != "obs" for _, mode in reader.objectives) > 1,
            "parallel": shown,
            "importance": len(valued) >= LEAST and any(not one.is_constant for one in shown),
            "slice": shown,
            "rungs": valued and any(row.was_stopped_early for row in rows),
            "population": reader.meta.get("scheduler") in SCHEDULERS and any(row.last_seq is not None for row in rows),
            "timeline": rows,
        }
        return [name for name, is_there in has_something.items() if is_there]

    def history(self, metric: str | None = None, mode: str | None = None, over: str = "trials") -> go.Figure:
        """Show the value of each trial and the best so far; failed ones and those without a number stand at the edge.

        Args:
            metric, mode: one of them is completed by the defaults.
            over: "trials" (by number) or "time" (when the last report was made, in time of driving).
        """
        return self._draw("history", self._field(metric, mode), over)

    def curves(
        self,
        metric: str | None = None,
        x: str = "training_iteration",
        trials: Sequence[int | str] | None = None,
        most: int = 300,
    ) -> go.Figure:
        """Show learning curves: a reported number over the steps, told apart by what became of the trial.

        Args:
            metric: any number that was reported, such as `eval/acc`.
            x: what it is shown over: another number that comes with each report, such as `time_total_s`, or `timestamp`
                for date and time on this machine's clock.
            trials: numbers or ids of the trials to show; None: at most `most`, the best among them.
            most: trials.
        """
        return self._draw("curves", self._field(metric, None, is_ranked=False), x, trials, most)

    def parallel(self, params: Sequence[str] | None = None, metric: str | None = None) -> go.Figure:
        """Show each trial as a line through its parameters to its value.

        Args:
            params: flattened names such as `opt/lr`, in the order of the axes; None: the first eight that vary.
        """
        return self._draw("parallel", self._field(metric, None), params)

    def importance(self, metric: str | None = None, evaluator: Any = None) -> go.Figure:
        """Show how much each parameter matters for the value, by an evaluator of Optuna.

        More than 1,000 trials are thinned evenly; of fewer than 20 there is no figure. Trials that were stopped early
        count with their last value.

        Args:
            evaluator: "ped_anova" (None), "fanova", "mean_decrease_impurity", or an object of `optuna.importance`. Only
                PED-ANOVA of Optuna 5 judges parameters that some trials lack, among those that have them; with others
                they are left out, and the figure says so.
        """
        return self._draw("importance", self._field(metric, None), evaluator)

    def slice(self, params: Sequence[str] | None = None, metric: str | None = None) -> go.Figure:
        """Show the value over each parameter, a panel for each; trials that lack it are not in its panel.

        Args:
            params: flattened names; None: the first twelve that vary.
        """
        return self._draw("slice", self._field(metric, None), params)

    def contour(self, x: str, y: str, metric: str | None = None) -> go.Figure:
        """Show areas of equal value over two parameters: between medians on a grid, and the trials.

        Args:
            x, y: flattened names of two parameters.
        """
        return self._draw("contour", self._field(metric, None), x, y)

    def pareto(self, metrics: Sequence[str] | None = None, modes: Sequence[str] | None = None) -> go.Figure:
        """Show two or three objectives against each other, and which trials no other beats in all that are shown.

        Args:
            metrics, modes: of the objectives; None: those of the sweep, of more than three the first three.
        """
        return self._draw("pareto", self._reader, metrics, modes)

    def rungs(
        self,
        metric: str | None = None,
        at: Sequence[float] | None = None,
        time_attr: str | None = None,
    ) -> go.Figure:
        """Show how many trials came to each rung with which values, who was stopped there, and how well ranks at one
        rung say those at another (Spearman): low ones mean that trials were stopped too early.

        Args:
            at: steps to compare, whether trials were stopped there or not; None: those at which trials were stopped.
            time_attr: the number in the reports that counts steps; None: the one that the scheduler goes by.
        """
        return self._draw("rungs", self._field(metric, None), at, time_attr)

    def population(self, params: Sequence[str] | None = None, metric: str | None = None) -> go.Figure:
        """Show which trial continued from which (population based training), and hyperparameters over the steps.

        Args:
            params: flattened names; None: those that were changed.
        """
        is_known = metric or self._defaults[0] or self._reader.objectives
        field = self._field(metric, None, is_ranked=False) if is_known else Field(self._reader)
        return self._draw("population", field, params)

    def timeline(self, trials: Sequence[int | str] | None = None, by: str | None = None, most: int = 200) -> go.Figure:
        """Show when trials waited and for what, started, ran, were paused and were tried again.

        Args:
            trials: numbers or ids; None: at most `most`.
            by: "trial" (a row for each) or "device" (a row for each device, share of one or lane of a process, and what
                it ran); None: "device" for lanes, else "trial".
            most: trials, by "trial".
        """
        metric, mode = self._defaults
        field = self._field(metric, mode) if metric and mode else Field(self._reader)
        return self._draw("timeline", field, trials, by, most)

    def _field(self, metric: str | None, mode: str | None, *, is_ranked: bool = True) -> Field:
        """Return the trials by the metric and the mode that are meant: those given, completed by the defaults; of
        several objectives the first. Without `is_ranked` no mode is needed."""
        if metric is not None and not isinstance(metric, str):
            checks.refuse("metric", metric, "the name of one metric, such as 'loss' or 'eval/acc'")
        objectives, default = self._reader.objectives, self._defaults
        modes: dict[str | None, str | None] = {name: one for name, one in objectives if one != "obs"}
        known, note = metric or default[0], ""
        if not known and modes:
            known = next(iter(modes))
            note = f"The first of {len(objectives)} objectives: {plain(shown_objectives(objectives), 200)}."
        modes |= {default[0]: default[1]} if default[1] else {}
        mode = mode or modes.get(known) or (default[1] if is_ranked else None)
        known, _ = known_objective(known, mode or (None if is_ranked else "min"))
        return Field(self._reader, known, mode or "", note)

    def _draw(self, name: str, *arguments: Any) -> go.Figure:
        module = importlib.import_module(f"sweep.figures.{'slices' if name == 'slice' else name}")
        figure: go.Figure = getattr(module, f"draw_{name}")(*arguments)
        return figure
