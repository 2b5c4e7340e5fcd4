"""The trials of an experiment as figures show them: what became of each, its value, what is said of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sweep import checks
from sweep.core.ranking import beats, rankable, shown_objectives
from sweep.core.results import flatten
from sweep.errors import ConfigError, MetricError, nearest
from sweep.figures.parameters import varying_names
from sweep.figures.style import FATES, Look, graph_objects, lines_of, number_text, plain, rounded, some
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

_MOST_FAILED = 50
_PARAMETERS_SHOWN = 6


@dataclass(frozen=True)
class Chosen:
    """The metric by which trials are compared, and its mode; `mode` may be empty where nothing is ranked. The note says
    that it is one of several that nobody chose."""

    metric: str
    mode: str
    note: str = ""

    @property
    def shown(self) -> str:
        """The metric for titles."""
        return plain(self.metric, 40)


def chosen_metric(
    reader: ExperimentReader,
    defaults: tuple[str | None, str | None],
    metric: str | None,
    mode: str | None,
    *,
    is_ranked: bool = True,
) -> Chosen:
    """Return the metric and the mode that are meant: those given, completed by the defaults; of several objectives the
    first.

    Args:
        defaults: metric and mode where none is given.
        is_ranked: a mode is needed, too.

    Raises:
        ConfigError: one of them is not known.
    """
    if metric is not None and not isinstance(metric, str):
        checks.refuse("metric", metric, "the name of one metric, such as 'loss' or 'eval/acc'")
    given, objectives = metric, reader.objectives
    metric = metric or defaults[0]
    note = ""
    if not metric and objectives:
        metric = next((name for name, goal in objectives if goal != "obs"), objectives[0][0])
        note = f"The first of {len(objectives)} objectives: {plain(shown_objectives(objectives), 200)}."
    modes = {name: one for name, one in objectives if one != "obs"}
    own = defaults[1] if given is None or given == defaults[0] or given not in modes else None
    if not is_ranked and given not in (None, defaults[0]):
        own = None  # another metric may have another goal, and only its curves are shown
    mode = mode or own or modes.get(metric or "")
    if mode:
        checks.mode(mode)
    if not metric or (is_ranked and not mode):
        missing = " and ".join(name for name, value in (("metric", metric), ("mode", mode)) if not value)
        raise ConfigError(
            f"no {missing} {'is' if len(missing) < 10 else 'are'} known; give metric='...' and mode='min' or 'max' "
            "here or to the run."
        )
    return Chosen(metric, mode or "", note)


class Field:
    """The trials of an experiment and the value of each by one metric: that of its last report.

    Attributes:
        rows: all trials, ordered by number.
        values: number of the trial to its last value, NaN and infinities included; trials without a number are missing.
    """

    def __init__(self, reader: ExperimentReader, chosen: Chosen | None) -> None:
        self.reader, self.chosen = reader, chosen
        self.rows: tuple[TrialRow, ...] = reader.trials()
        number_of = {row.trial_id: row.number for row in self.rows}
        self.values: dict[int, float] = {}
        if chosen is not None:
            for trial_id, _, value in reader.values(chosen.metric, last_only=True):
                if trial_id in number_of:  # else it began just now
                    self.values[number_of[trial_id]] = value

    @cached_property
    def ranked(self) -> dict[int, float]:
        """The values by which a trial can be best: finite ones."""
        return {number: value for number, value in self.values.items() if rankable(value) is not None}

    def need_values(self) -> None:
        """Raise a MetricError unless some trial has a finite number."""
        if self.ranked or self.chosen is None:
            return
        metric, names = self.chosen.metric, self.reader.metric_names()
        known = nearest(metric, names) if names else self.why_nothing()
        if metric in names:
            known = "All that was reported under it last is NaN, infinite or no number."
        raise MetricError(f"no trial of {self.reader.name} has a usable number under {metric!r}. {known}")

    def why_nothing(self) -> str:
        """Say in one sentence why there are no reports."""
        failed = sum(row.status == "ERROR" for row in self.rows)
        if self.rows and all(row.is_ended for row in self.rows):
            return f"Nothing was reported: of {some(len(self.rows), 'trial')}, which have all ended, {failed} failed."
        return "Nothing was reported yet: call this again when there are reports."

    def why_not(self, names: Sequence[str]) -> str:
        """Say in one sentence why no trial has a finite number under each of these names."""
        reported = self.reader.metric_names()
        wrong = [name for name in names if name not in (*reported, "training_iteration", "time_total_s")]
        if not reported:
            return self.why_nothing()
        if wrong:
            return nearest(wrong[0], reported)
        return "All that was reported under them is NaN, infinite or no number."

    def named(self, trials: Any) -> list[TrialRow]:
        """Return the trials of these numbers or ids, ordered by number.

        Raises:
            ConfigError: there is no such trial, or none is named.
        """
        if isinstance(trials, (str, bytes)) or not isinstance(trials, Iterable):
            checks.refuse("trials", trials, "a list of numbers or ids of trials, such as [0, 7]")
        rows = {row.number: row for row in map(self.reader.trial, trials)}
        if not rows:
            raise ConfigError("trials=[] names no trial; give numbers or ids of trials, or leave it out.")
        return [rows[number] for number in sorted(rows)]

    def best(self) -> int | None:
        """Return the number of the best trial, the first of equals; None without a mode or a value."""
        if self.chosen is None or not self.chosen.mode:
            return None
        best: int | None = None
        for number, value in self.ranked.items():
            if best is None or beats(value, self.ranked[best], self.chosen.mode):
                best = number
        return best

    def thinned(self, rows: Sequence[TrialRow], most: int) -> tuple[list[TrialRow], str]:
        """Return at most so many trials, ordered by number, and what was left out; an empty text where nothing was.

        The best third, failed ones up to 50, and of the others an even spread.
        """
        if len(rows) <= most:
            return list(rows), ""
        kept: dict[int, TrialRow] = {}
        ranked = [row for row in rows if row.number in self.ranked]
        parts = []
        if self.chosen is not None and self.chosen.mode and ranked:
            ranked.sort(key=lambda row: self.ranked[row.number], reverse=self.chosen.mode == "max")
            kept |= {row.number: row for row in ranked[: most // 3]}
            parts.append(f"the best {len(kept):,}")
        failed = [row for row in rows if row.status == "ERROR" and row.number not in kept]
        failed = spread(failed, min(_MOST_FAILED, (most - len(kept)) // 2))
        if failed:
            kept |= {row.number: row for row in failed}
            parts.append(f"{len(failed):,} that failed")
        others = [row for row in rows if row.number not in kept and row.status != "ERROR"]
        kept |= {row.number: row for row in spread(others, most - len(kept))}
        parts.append("a spread of the others")
        shown = [kept[number] for number in sorted(kept)]
        listed = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
        return shown, f"{len(shown):,} of {some(len(rows), 'trial')}: {listed}."

    def about(self, row: TrialRow) -> str:
        """Return what hovers say of a trial: number, fate and reason, config."""
        look = FATES[row.state]
        lines = [f"<b>trial {row.number:05d}</b> {look.name}"]
        if row.reason:
            lines.append(f"<i>{lines_of(row.reason)}</i>")
        if self.chosen is not None and row.number in self.values:
            lines.append(f"{self.chosen.shown}: {number_text(self.values[row.number])}")
        return "<br>".join([*lines, *self.config_lines(row)])

    def config_lines(self, row: TrialRow) -> list[str]:
        """Return the first parameters that vary, and their values, each on a line."""
        flat = flatten(row.config)
        names = [name for name in self.varying if name in flat]
        lines = [f"{self.varying[name]} = {value_text(flat[name])}" for name in names[:_PARAMETERS_SHOWN]]
        return lines + [f"and {len(names) - _PARAMETERS_SHOWN} more"] * (len(names) > _PARAMETERS_SHOWN)

    @cached_property
    def varying(self) -> dict[str, str]:
        """The flattened names of the parameters that the space varies, each as it is shown; all, if that is unknown."""
        return {name: plain(name, 30) for name in varying_names(self.reader, self.rows)}


def value_text(value: object) -> str:
    """Return one value of a config for people."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return plain(value, 40)


def spread(rows: Sequence[TrialRow], most: int) -> list[TrialRow]:
    """Return at most so many, evenly taken from first to last."""
    if len(rows) <= most:
        return list(rows)
    if most < 2:
        return list(rows[:most])
    step = (len(rows) - 1) / (most - 1)
    return [rows[round(index * step)] for index in range(most)]


def by_fate(rows: Collection[TrialRow]) -> dict[str, list[TrialRow]]:
    """Return the trials by what became of them, in the order of `FATES`, without fates that none had."""
    found: Mapping[str, list[TrialRow]] = {fate: [] for fate in FATES}
    for row in rows:
        found[row.state].append(row)
    return {fate: some_rows for fate, some_rows in found.items() if some_rows}


def marks(
    field: Field,
    rows: Sequence[TrialRow],
    look: Look,
    places: Sequence[Mapping[int, Any]],
    *,
    texts: Mapping[int, str] | None = None,
    marker: Mapping[str, Any],
    **trace: Any,
) -> Any:
    """Return a mark for each trial.

    Args:
        look: name, colour and symbol.
        places: on each axis, two or three of them, by number of the trial.
        texts: what hovers say, by number; None: what is known of the trial.
        marker, trace: what else plotly is told of marks and of the trace.
    """
    columns = {axis: [rounded(at[row.number]) for row in rows] for axis, at in zip("xyz", places, strict=False)}
    shape = graph_objects().Scatter if len(places) == 2 else graph_objects().Scatter3d
    return shape(
        **columns,
        mode="markers",
        name=look.name,
        marker={"color": look.color, "symbol": look.symbol, **marker},
        customdata=[[row.number] for row in rows],
        hovertext=[field.about(row) if texts is None else texts[row.number] for row in rows],
        hoverinfo="text",
        **trace,
    )


class Lines:
    """The lines of several trials in one trace."""

    def __init__(self) -> None:
        self._points: list[tuple[Any, Any, int, str, float]] = []

    def add(self, number: int, x: Any, y: Any, text: str, size: float) -> None:
        """Go on to a point of a trial: its place, what a hover says, the size of its mark."""
        self._points.append((x, y, number, text, size))

    def end(self) -> None:
        """End a line, so that the next point begins another."""
        if self._points and self._points[-1][0] is not None:
            self._points.append((None, None, self._points[-1][2], "", 0))

    def trace(self, look: Look, *, width: float, outline: float = 0, text_key: str = "hovertext", **trace: Any) -> Any:
        """Return the trace; `outline` is the width of the lines around marks."""
        points = self._points[:-1] if self._points and self._points[-1][0] is None else self._points
        x, y, numbers, texts, sizes = ([point[i] for point in points] for i in range(5))
        return graph_objects().Scatter(
            x=x,
            y=y,
            mode="lines+markers",
            name=look.name,
            line={"color": look.color, "dash": look.dash, "width": width},
            marker={"color": look.color, "symbol": look.symbol, "size": sizes, "line": {"width": outline}},
            customdata=[[number] for number in numbers],
            **{text_key: texts},
            **trace,
        )
