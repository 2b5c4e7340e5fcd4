"""The trials of an experiment as figures show them: what became of each, its value, what is said of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from sweep import checks
from sweep.core.ranking import best_of, rankable
from sweep.core.results import flatten
from sweep.errors import ConfigError
from sweep.figures.parameters import varying_names
from sweep.figures.style import FATES, Look, graph_objects, lines_of, plain, rounded, some, value_text
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.winners import no_number

_PARAMETERS_SHOWN = 6
_T = TypeVar("_T")
Point = tuple[Any, Any, int, str, float]  # x, y, number of the trial, what a hover says, size of the mark


class Field:
    """The trials of an experiment and the value of each by one metric: that of its last report.

    The mode may be empty where nothing is ranked; `note` is what is to be said of the metric. Of `values`, by number of
    the trial and with NaN and infinities, `ranked` are the finite ones, by which a trial can be best.
    """

    def __init__(self, reader: ExperimentReader, metric: str = "", mode: str = "", note: str = "") -> None:
        self.reader, self.metric, self.mode, self.note = reader, metric, mode, note
        self.shown = plain(metric, 40)
        self.rows: tuple[TrialRow, ...] = reader.trials()
        last = reader.last_values(metric) if metric else {}
        self.values = {row.number: last[row.trial_id] for row in self.rows if row.trial_id in last}
        self.ranked = {number: value for number, value in self.values.items() if rankable(value) is not None}

    @cached_property
    def best(self) -> int | None:
        """The number of the best trial, the first of equals; None without a mode or a value."""
        found = best_of(self.ranked.items(), self.mode) if self.mode else None
        return None if found is None else found[0]

    @property
    def best_value(self) -> float | None:
        """The value of the best trial."""
        return None if self.best is None else self.ranked[self.best]

    def valued(self) -> list[TrialRow]:
        """Return the trials with a finite number; that there is none is a MetricError."""
        if not self.ranked:
            raise no_number(self.reader, self.metric)
        return [row for row in self.rows if row.number in self.ranked]

    def without(self, shown: Sequence[TrialRow], why: str) -> str:
        """Say how many trials are not shown; empty: all are."""
        missing = len(self.rows) - len(shown)
        return f"Without {some(missing, 'trial')} that {why}." if missing else ""

    def named(self, trials: Any) -> list[TrialRow]:
        """Return the trials of these numbers or ids, ordered by number."""
        if isinstance(trials, (str, bytes)) or not isinstance(trials, Iterable):
            checks.refuse("trials", trials, "a list of numbers or ids of trials, such as [0, 7]")
        rows = {row.number: row for row in map(self.reader.trial, trials)}
        if not rows:
            raise ConfigError("trials=[] names no trial; give numbers or ids of trials, or leave it out.")
        return [rows[number] for number in sorted(rows)]

    def thinned(self, rows: Sequence[TrialRow], most: int) -> tuple[list[TrialRow], str]:
        """Return at most so many trials, ordered by number, the best third and an even spread of the others; and what
        was left out, an empty text where nothing was."""
        if len(rows) <= most:
            return list(rows), ""
        ranked = [row for row in rows if row.number in self.ranked] if self.mode else []
        ranked.sort(key=lambda row: self.ranked[row.number], reverse=self.mode == "max")
        best = {row.number for row in ranked[: most // 3]}
        others = spread([row for row in rows if row.number not in best], most - len(best))
        kept = best | {row.number for row in others}
        which = f"the best {len(best):,} and a spread of the others" if best else "a spread"
        shown = [row for row in rows if row.number in kept]
        return shown, f"{len(shown):,} of {some(len(rows), 'trial')}: {which}."

    def about(self, row: TrialRow) -> str:
        """Return what hovers say of a trial: number, fate and reason, value, config."""
        lines = [f"<b>trial {row.number:05d}</b> {row.state}"]
        lines += [f"<i>{lines_of(row.reason)}</i>"] if row.reason else []
        lines += [f"{self.shown}: {value_text(self.values[row.number])}"] if row.number in self.values else []
        return "<br>".join([*lines, *self.config_lines(row)])

    def config_lines(self, row: TrialRow) -> list[str]:
        """Return the first parameters that vary, and their values, each on a line."""
        flat = flatten(row.config)
        names = [name for name in self._varying if name in flat]
        lines = [f"{self._varying[name]} = {value_text(flat[name])}" for name in names[:_PARAMETERS_SHOWN]]
        return lines + [f"and {len(names) - _PARAMETERS_SHOWN} more"] * (len(names) > _PARAMETERS_SHOWN)

    @cached_property
    def _varying(self) -> dict[str, str]:
        return {name: plain(name, 30) for name in varying_names(self.reader, self.rows)}


def spread(items: Sequence[_T], most: int) -> list[_T]:
    """Return at most so many, evenly taken from first to last."""
    if len(items) <= most or most < 2:
        return list(items[:most])
    step = (len(items) - 1) / (most - 1)
    return [items[round(index * step)] for index in range(most)]


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
    """Return a mark for each trial: `places` on two or three axes and the `texts` of hovers are by its number."""
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


def lines(strokes: Iterable[Sequence[Point]], look: Look, *, width: float, outline: float = 0, **trace: Any) -> Any:
    """Return lines in one trace, each through its points; `outline` is the width of the lines around marks."""
    points: list[Any] = []
    for stroke in strokes:
        points += [(None, None, points[-1][2], "", 0)] if stroke and points else []
        points += stroke
    x, y, numbers, texts, sizes = zip(*points, strict=True) if points else [()] * 5
    return graph_objects().Scatter(
        x=list(x),
        y=list(y),
        name=look.name,
        line={"color": look.color, "dash": look.dash, "width": width},
        marker={"color": look.color, "symbol": look.symbol, "size": list(sizes), "line": {"width": outline}},
        customdata=[[number] for number in numbers],
        hovertext=list(texts),
        **{"mode": "lines+markers", **trace},
    )
