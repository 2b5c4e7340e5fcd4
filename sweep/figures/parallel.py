"""Parallel coordinates: each trial a line through its parameters to its value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sweep.core.values import shown_range
from sweep.figures.parameters import Parameter, parameters, ticks_between, ticks_of_log
from sweep.figures.style import (
    GREY,
    LINE_SCALE,
    Figure,
    finish,
    graph_objects,
    one_line,
    plain,
    rounded,
    some,
    value_text,
)
from sweep.figures.trials import Field

_MOST = 500  # lines: of more none can be followed
_MOST_AXES = 8
_MOST_LETTERS = 14  # of a category, and of a name
_NARROW = 270  # pixels on which axes and their texts have to find room
_ROOM = 0.12  # of an axis, below it, for trials that lack the parameter


def draw_parallel(field: Field, names: Sequence[str] | None) -> Figure:
    """Return parallel coordinates; see `Plots.parallel`."""
    valued = field.valued()
    rows, note = field.thinned(valued, _MOST)
    shown, left_out = parameters(field.reader, rows, names, most=_MOST_AXES)
    numbers = [field.ranked[row.number] for row in rows]
    value = Parameter(field.metric, tuple(numbers), None, shown_range(numbers)[2])
    # The worse first, so that the better lines lie above them.
    order = sorted(range(len(rows)), key=lambda i: numbers[i], reverse=field.mode == "min")
    letters = min(_MOST_LETTERS, max(5, _NARROW // len(shown) // 6))
    axes = [_axis(one, order, letters) for one in (*shown, value)]
    ends = [numbers[order[round(part * (len(order) - 1))]] for part in (0, 0.5, 1)]
    bar = {
        "orientation": "h",
        "y": 0,
        "yanchor": "top",
        "ypad": 14,
        "thickness": 8,
        "outlinewidth": 0,
        "tickvals": [0, 0.5, 1],
        "ticktext": list(map(value_text, ends)),
        "tickfont": {"size": 10},
        "title": {"text": f"{field.shown}, from worst to best", "font": {"size": 11}, "side": "bottom"},
    }
    ranks = [rounded(place / len(order)) for place in range(len(order))]  # outliers change nothing
    trace = graph_objects().Parcoords(
        dimensions=axes,
        customdata=[[rows[i].number] for i in order],
        line={"color": ranks, "colorscale": LINE_SCALE, "cmin": 0, "cmax": 1, "colorbar": bar},
        labelfont={"size": 11},
        tickfont={"size": 10, "shadow": "none", "weight": 700},
        labelangle=-45,
        labelside="top",
        rangefont={"size": 1, "color": "rgba(0,0,0,0)"},
    )
    left, right = 20 + 6 * max(map(len, axes[0]["ticktext"])), max(40, 8 + 5 * len(axes[-1]["label"]))
    line = {"type": "line", "xref": "paper", "yref": "paper", "y0": 0, "y1": 1, "line": {"color": GREY}}
    places = [place / (len(axes) - 1) for place in range(len(axes))]
    return finish(
        [trace],
        "parallel",
        f"Parameters and {field.shown}",
        notes=[field.note, note or field.without(rows, "have no number"), *left_out],
        summary=f"Parallel coordinates of {some(len(rows), 'trial')}: {', '.join(one.title for one in shown)}, and "
        f"{field.shown}; deep blue lines are the better ones.",
        margin={"l": left, "r": right, "t": 120, "b": 70},
        height=540,
        shapes=[line | {"x0": x, "x1": x} for x in places],  # plotly's own axes are black
    )


def _axis(parameter: Parameter, order: Sequence[int], letters: int) -> dict[str, Any]:
    """Return an axis with a place of its own, below, for what trials lack."""
    values = [parameter.values[i] for i in order]
    if parameter.is_log:
        values = [None if value is None else math.log10(value) for value in values]
    known = [value for value in values if value is not None]
    if parameter.labels is not None:
        low, high = 0.0, float(max(len(parameter.labels) - 1, 1))
        ticks, texts = [float(i) for i in range(len(parameter.labels))], _distinct(parameter.labels, letters)
    else:
        low, high = (float(rounded(one) or 0) for one in ((min(known), max(known)) if known else (0, 1)))
        ticks, texts = ticks_of_log(low, high) if parameter.is_log else ticks_between(low, high, parameter.is_whole)
    if low == high:
        low, high = low - 0.5, high + 0.5
    absent = float(f"{low - _ROOM * min(high - low, 1e300):.6g}")
    if len(known) < len(values):
        ticks, texts, low = [absent, *ticks], ["absent", *texts], absent
    return {
        "label": plain(parameter.name, _MOST_LETTERS),
        "values": [rounded(absent if value is None else value) for value in values],
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": texts,  # of these plotly takes no tags and decodes no entities
    }


def _distinct(labels: Sequence[str], letters: int) -> list[str]:
    """Return short labels, each another one: plotly takes equal ones for the same place."""
    texts = [one_line(label, letters) for label in labels]
    return [f"{text} {texts[: i + 1].count(text)}" if texts.count(text) > 1 else text for i, text in enumerate(texts)]
