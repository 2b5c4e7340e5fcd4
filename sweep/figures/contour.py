"""How two parameters together go with the value: areas of equal value, and the trials on them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sweep.core.values import shown_range
from sweep.errors import ConfigError, MetricError
from sweep.figures.parameters import Parameter, parameters
from sweep.figures.slices import axis_of
from sweep.figures.style import FATES, SCALE, Figure, finish, graph_objects, rounded, some
from sweep.figures.trials import Field, by_fate, marks

_MOST = 2000
_MOST_CELLS = 24  # on a side


def draw_contour(field: Field, x: str, y: str) -> Figure:
    """Return the areas; see `Plots.contour`."""
    if x == y:
        raise ConfigError(f"contour({x!r}, {y!r}) names one parameter twice; give two different ones.")
    valued = field.valued()
    both, _ = parameters(field.reader, valued, [x, y], most=2)
    having = [i for i in range(len(valued)) if None not in (both[0].values[i], both[1].values[i])]
    if not having:
        raise MetricError(f"no trial of {field.reader.name} has {x!r}, {y!r} and a number under {field.metric!r}.")
    rows = [valued[i] for i in having]
    across, up = (replace(one, values=tuple(one.values[i] for i in having)) for one in both)
    drawn, note = field.thinned(rows, _MOST)
    at = [dict(zip([row.number for row in rows], one.values, strict=True)) for one in (across, up)]
    marker = {"size": 7, "line": {"width": 1, "color": "rgba(255,255,255,0.7)"}}
    points = [marks(field, found, FATES[fate], at, marker=marker) for fate, found in by_fate(drawn).items()]
    texts = f"{field.shown} over {across.title} and {up.title}"
    return finish(
        [_areas(field, across, up, [field.ranked[row.number] for row in rows]), *points],
        "contour",
        texts,
        notes=[field.note, note or field.without(rows, "lack one of the two or a number")],
        summary=f"Areas of equal {texts}, with {some(len(drawn), 'trial')} on them.",
        xaxis=axis_of(across, len(rows)),
        yaxis=axis_of(up, len(rows)),
        height=480,
    )


def _areas(field: Field, across: Parameter, up: Parameter, numbers: Sequence[float]) -> Any:
    """Return what plotly draws between the medians of the cells of a grid; empty cells it fills from those around."""
    is_log = shown_range(numbers)[2]
    cells = min(_MOST_CELLS, max(4, round(1.5 * math.sqrt(len(numbers)))))
    x, x_of = _grid(across, cells)
    y, y_of = _grid(up, cells)
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    for one, other, number in zip(across.values, up.values, numbers, strict=True):
        found[x_of(one or 0.0), y_of(other or 0.0)].append(math.log10(number) if is_log else number)
    z: list[list[Any]] = [[None] * len(x) for _ in y]
    for (column, row), some_numbers in found.items():
        z[row][column] = rounded(statistics.median(some_numbers))
    title = f"{field.shown}<br>(powers of 10)" if is_log else field.shown
    font = {"font": {"size": 11}}
    return graph_objects().Contour(
        x=x,
        y=y,
        z=z,
        connectgaps=True,
        colorscale=SCALE,
        reversescale=field.mode == "min",
        opacity=0.75,
        line={"width": 0.5},
        colorbar={"title": {"text": title, **font}, "thickness": 12, "tickfont": {"size": 10}, "outlinewidth": 0},
        hoverinfo="skip",
    )


def _grid(parameter: Parameter, cells: int) -> tuple[list[Any], Any]:
    """Return the middles of the cells along a parameter, which are its values where these are few, and a function from
    a value to the number of its cell."""
    if parameter.labels is not None:
        return list(range(len(parameter.labels))), lambda value: int(value)
    distinct = sorted({value for value in parameter.values if value is not None})
    if len(distinct) <= cells:  # as in a grid search
        return [rounded(value) for value in distinct], distinct.index
    known = [math.log10(value) if parameter.is_log else value for value in distinct]
    low, high = min(known), max(known)
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = high / cells - low / cells  # which is finite, as the difference may not be
    middles = [low + (index + 0.5) * width for index in range(cells)]

    def cell(value: float) -> int:
        place = math.log10(value) if parameter.is_log else value
        return min(cells - 1, max(0, int(place / width - low / width)))

    return [rounded(10**middle if parameter.is_log else middle) for middle in middles], cell
