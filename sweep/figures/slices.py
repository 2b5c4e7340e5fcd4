"""The value of each trial over each of its parameters, one panel per parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sweep.figures.parameters import Parameter, parameters
from sweep.figures.style import FATES, Figure, axis_of_values, finish, plain, some, whole_ticks
from sweep.figures.trials import Field, by_fate, marks

_MOST_MARKS = 6000  # in all panels together
_MOST_PANELS = 12
_PANEL_HEIGHT = 210
_MOST_LETTERS = 12  # of a category


def draw_slice(field: Field, names: Sequence[str] | None) -> Figure:
    """Return the panels; see `Plots.slice`."""
    rows = field.valued()
    shown, notes = parameters(field.reader, rows, names, most=_MOST_PANELS)
    drawn, note = field.thinned(rows, max(300, _MOST_MARKS // len(shown)))
    if len(drawn) < len(rows):
        shown, _ = parameters(field.reader, drawn, [one.name for one in shown], most=_MOST_PANELS)
    columns = min(2, len(shown))
    has_words = any(len(label) > 6 for one in shown for label in one.labels or ())  # which need room below the axis
    panels = math.ceil(len(shown) / columns)
    room = (0.5 if has_words else 0.34) / (panels + 1)
    spacing = {"horizontal_spacing": 0.04, "vertical_spacing": room}
    layout = {}
    axis, outside = axis_of_values("", field.ranked.values(), field.best_value)
    for index, one in enumerate(shown):
        number = "" if index == 0 else str(index + 1)
        layout[f"xaxis{number}"] = axis_of(one, len(drawn))
        layout[f"yaxis{number}"] = axis | {"title": field.shown if index % columns == 0 else None}
    return finish(
        _traces(field, drawn, shown),
        "slice",
        f"{field.shown} over each parameter",
        notes=[field.note, note or field.without(rows, "have no number"), *notes, outside],
        summary=f"{field.shown} of {some(len(drawn), 'trial')} over {', '.join(one.title for one in shown)}, a panel "
        "for each.",
        subplots={"rows": panels, "cols": columns, "shared_yaxes": True, **spacing},
        height=130 + (_PANEL_HEIGHT + 40 * has_words) * panels + (60 if panels == 1 else 0),
        **layout,
    )


def axis_of(parameter: Parameter, num_trials: int) -> dict[str, Any]:
    """Return an axis on which the parameter's values stand as they are; the title says how many trials have it."""
    title = parameter.title
    if parameter.num_missing:
        title += f" (in {num_trials - parameter.num_missing:,} of {num_trials:,})"
    if parameter.labels is None:
        known = [value for value in parameter.values if value is not None]
        ticks = whole_ticks(min(known), max(known)) if parameter.is_whole and not parameter.is_log else {}
        return {"title": title, "type": "log" if parameter.is_log else "linear"} | ticks
    places, texts = list(range(len(parameter.labels))), [plain(label, _MOST_LETTERS) for label in parameter.labels]
    ends = {"range": [-0.5, len(texts) - 0.5], "zeroline": False}
    return {"title": title, "type": "linear", "tickvals": places, "ticktext": texts, **ends}


def _traces(field: Field, rows: Sequence[Any], shown: Sequence[Parameter]) -> list[Any]:
    abouts = {row.number: field.about(row) for row in rows}
    traces = []
    for panel, parameter in enumerate(shown):
        axis = "" if panel == 0 else str(panel + 1)
        known = [(row, value) for row, value in zip(rows, parameter.values, strict=True) if value is not None]
        place = {row.number: value if parameter.labels is None else _beside(value, row.number) for row, value in known}
        # A fate that none of them had is named all the same: the legend is of all panels.
        for fate, some_rows in by_fate(rows).items():
            traces.append(
                marks(
                    field,
                    [row for row in some_rows if row.number in place],
                    FATES[fate],
                    (place, field.ranked),
                    texts=abouts,
                    marker={"size": 6, "opacity": 0.75},
                    xaxis=f"x{axis}",
                    yaxis=f"y{axis}",
                    legendgroup=fate,
                    showlegend=panel == 0,
                )
            )
    return traces


def _beside(place: float, number: int) -> float:
    """Return a place beside that of a category, the same each time, so that equal values do not hide each other."""
    return place + ((number * 0.618034) % 1 - 0.5) * 0.4
