"""The value of each trial over the trials or over time, and the best so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweep import checks
from sweep.core.ranking import beats
from sweep.figures.style import (
    BEST,
    FATES,
    Figure,
    axis_of_time,
    axis_of_values,
    finish,
    graph_objects,
    rounded,
    some,
    value_text,
    whole_ticks,
)
from sweep.figures.trials import Field, by_fate, marks
from sweep.record.rows import TrialRow

_MOST = 2000
_FLOOR = 0.03  # of the height: where trials are marked that have no number


def draw_history(field: Field, over: str) -> Figure:
    """Return the history; see `Plots.history`."""
    checks.one_of("over", over, ("trials", "time"))
    valued = {row.number for row in field.valued()}
    rows, note = field.thinned(field.rows, _MOST)
    at: dict[int, float] = {row.number: row.number for row in field.rows}
    divisor, unit = 1.0, ""
    if over == "time":
        at = {row.number: row.last_report.at for row in field.rows if row.last_report is not None}
        rows = [row for row in rows if row.number in at]
        divisor, unit = axis_of_time(max(at.values()))
    x_of = {number: rounded(place / divisor) for number, place in at.items()}
    known = by_fate([row for row in rows if row.number in valued])
    marker = {"size": 7, "opacity": 0.8}
    traces = [marks(field, found, FATES[fate], (x_of, field.ranked), marker=marker) for fate, found in known.items()]
    traces += _without_number(field, [row for row in rows if row.number not in valued and row.is_ended], x_of)
    improved: list[int] = []
    for number in sorted(valued, key=lambda number: (at[number], number)):
        if not improved or beats(field.ranked[number], field.ranked[improved[-1]], field.mode):
            improved.append(number)
    traces.append(_best_line(field, improved, x_of))
    axis, outside = axis_of_values(field.shown, field.ranked.values(), field.best_value)
    goal = "lowest" if field.mode == "min" else "highest"
    return finish(
        traces,
        "history",
        f"{field.shown} of each trial",
        notes=[field.note, note, outside],
        summary=f"{field.shown} of {some(len(valued), 'trial')} by their last reports; the {goal} is "
        f"{value_text(field.best_value)}, of trial {field.best}, after {some(len(improved), 'step')} of improvement.",
        xaxis={"title": f"{unit} of driving"} if unit else {"title": "trial"} | whole_ticks(0, len(field.rows)),
        yaxis=axis,
        yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
    )


def _without_number(field: Field, rows: Sequence[TrialRow], x_of: dict[int, Any]) -> list[Any]:
    """Return marks at the lower edge of trials that ended without a number: failed, NaN, infinite, never reported."""
    floor = {row.number: _FLOOR for row in rows}
    looks = {
        "ERROR": FATES["failed"]._replace(name="failed, no number", symbol="x-thin-open"),
        "TERMINATED": FATES["finished"]._replace(name="ended, no number", symbol="circle-x-open"),
    }
    kinds = [(look, [row for row in rows if row.status == status]) for status, look in looks.items()]
    return [marks(field, one, look, (x_of, floor), marker={"size": 8}, yaxis="y2") for look, one in kinds if one]


def _best_line(field: Field, improved: Sequence[int], x_of: dict[int, Any]) -> Any:
    numbers = [*improved, improved[-1]]
    return graph_objects().Scatter(
        x=[*(x_of[number] for number in improved), max(x_of.values())],
        y=[rounded(field.ranked[number]) for number in numbers],
        mode="lines+markers",
        line={"shape": "hv", "color": BEST, "width": 2.5},
        marker={"color": BEST, "symbol": "star", "size": [0] * (len(improved) - 1) + [14, 0]},  # the best trial's
        name="best so far",
        customdata=[[number] for number in numbers],
        hovertemplate="best so far: %{y:.4~g}<br>trial %{customdata[0]}<extra></extra>",
    )
