"""The value of each trial over the trials or over time, and the best so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.core.ranking import beats
from sweep.figures.style import (
    BEST,
    FATES,
    axis_of_time,
    axis_of_values,
    finish,
    graph_objects,
    number_text,
    rounded,
    some,
    whole_ticks,
)
from sweep.figures.trials import Field, by_fate, marks
from sweep.record.rows import TrialRow

if TYPE_CHECKING:
    import plotly.graph_objects as go


_MOST = 2000
_FLOOR = 0.03  # of the height: where trials are marked that have no number


def draw_history(field: Field, over: str) -> go.Figure:
    """Return the history; see `Plots.history`."""
    checks.one_of("over", over, ("trials", "time"))
    assert field.chosen is not None
    field.need_values()
    rows, note = field.thinned(field.rows, _MOST)
    at: dict[int, float] = {}
    divisor, unit = 1.0, ""
    if over == "time":
        at = times_of_last(field)
        rows = [row for row in rows if row.number in at]
        divisor, unit = axis_of_time(max(at.values(), default=0.0))
    x_of = {row.number: rounded(at[row.number] / divisor) if at else row.number for row in rows}
    marker = {"size": 7, "opacity": 0.8}
    known = by_fate([row for row in rows if row.number in field.ranked])
    traces = [marks(field, some, FATES[fate], (x_of, field.ranked), marker=marker) for fate, some in known.items()]
    lacking = [row for row in rows if row.number not in field.ranked and row.is_ended]
    traces += _without_number(field, lacking, x_of)
    improved = _improvements(field, at)
    traces.append(_best_line(field, improved, at, divisor))
    metric, best = field.chosen.shown, field.best()
    axis, outside = axis_of_values(metric, field.ranked.values(), None if best is None else field.ranked[best])
    summary = f"{metric} of {some(len(field.ranked), 'trial')} by their last reports"
    if best is not None:
        goal = "lowest" if field.chosen.mode == "min" else "highest"
        summary += (
            f"; the {goal} is {number_text(field.ranked[best])}, of trial {best}, after {some(len(improved), 'step')} "
            "of improvement"
        )
    return finish(
        traces,
        "history",
        f"{metric} of each trial",
        note=f"{note} {outside}".strip(),
        summary=summary + ".",
        xaxis={"title": f"{unit} of driving"}
        if over == "time"
        else {"title": "trial"} | whole_ticks(0, len(field.rows)),
        yaxis=axis,
        yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
    )


def times_of_last(field: Field) -> dict[int, float]:
    """Return when the last report of each trial was committed, in seconds of driving, by number."""
    return {row.number: row.last_report.at for row in field.reader.trials() if row.last_report is not None}


def _without_number(field: Field, rows: Sequence[TrialRow], x_of: dict[int, Any]) -> list[Any]:
    """Return marks at the lower edge of trials that ended without a number: failed, NaN, infinite, never reported."""
    kinds = {
        "failed": ("failed, no number", "x-thin-open", [row for row in rows if row.status == "ERROR"]),
        "finished": ("ended, no number", "circle-x-open", [row for row in rows if row.status != "ERROR"]),
    }
    floor = {row.number: _FLOOR for row in rows}
    return [
        marks(
            field,
            found,
            FATES[fate]._replace(name=name, symbol=symbol),
            (x_of, floor),
            marker={"size": 8},
            yaxis="y2",
        )
        for fate, (name, symbol, found) in kinds.items()
        if found
    ]


def _improvements(field: Field, at: dict[int, float]) -> list[int]:
    """Return the numbers of the trials that were the best so far, in order."""
    assert field.chosen is not None
    order = sorted((number for number in field.ranked if not at or number in at), key=lambda n: (at.get(n, n), n))
    found: list[int] = []
    for number in order:
        if not found or beats(field.ranked[number], field.ranked[found[-1]], field.chosen.mode):
            found.append(number)
    return found


def _best_line(field: Field, improved: Sequence[int], at: dict[int, float], divisor: float) -> Any:
    last = max(at.values(), default=0.0) if at else max((row.number for row in field.rows), default=0)
    x = [at[number] if at else number for number in improved] + [last]
    numbers = [*improved, improved[-1]]
    return graph_objects().Scatter(
        x=[rounded(value / divisor) for value in x] if at else x,
        y=[rounded(field.ranked[number]) for number in numbers],
        mode="lines+markers",
        line={"shape": "hv", "color": BEST, "width": 2.5},
        marker={"color": BEST, "symbol": "star", "size": [0] * (len(improved) - 1) + [14, 0]},  # the best trial's
        name="best so far",
        customdata=[[number] for number in numbers],
        hovertemplate="best so far: %{y:.4~g}<br>trial %{customdata[0]}<extra></extra>",
    )
