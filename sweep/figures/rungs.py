"""What early stopping did: who came to which rung and who went on, and whether early ranks say late ones."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.core.values import as_float
from sweep.errors import ConfigError, MetricError
from sweep.figures.curves import Curve, curves_of
from sweep.figures.style import FATES, axis_of_values, finish, graph_objects, plain, rounded, some
from sweep.figures.trials import Field, Lines, by_fate, spread
from sweep.record.rows import TrialRow

if TYPE_CHECKING:
    import plotly.graph_objects as go


_MOST = 2000  # trials whose reports are read
_MOST_LINES = 300
_MOST_RUNGS = 8
_LEAST_PAIRS = 3  # trials at both rungs, for a rank correlation
_COMPARED = "Ranks are compared among trials that came to both rungs: the better ones, where others were stopped."


def found_rungs(rows: Sequence[TrialRow], time_attr: str) -> list[float]:
    """Return the steps at which trials were stopped early, and the last step of the others; where they are many, steps
    that double. Empty: no trial was stopped early."""
    steps = [(row, as_float((row.last_metrics or {}).get(time_attr))) for row in rows]
    known = [(row, step) for row, step in steps if step is not None and math.isfinite(step)]
    stops = sorted({step for row, step in known if row.was_stopped_early})
    if not stops:
        return []
    last = max((step for row, step in known if not row.was_stopped_early), default=stops[-1])
    if len(stops) >= _MOST_RUNGS:
        low = max(stops[0], last / 2 ** (_MOST_RUNGS - 2))
        doubled = [step for i in range(_MOST_RUNGS - 1) if (step := low * 2**i) < last] or [low]
        stops = sorted({step if step < 1 else float(math.floor(step)) for step in doubled})
    return [*stops, last] if last > stops[-1] else stops


def draw_rungs(field: Field, at: Sequence[float] | None, time_attr: str | None) -> go.Figure:
    """Return the rungs; see `Plots.rungs`."""
    assert field.chosen is not None
    field.need_values()
    time_attr = time_attr or str(field.reader.meta.get("time_attr") or "training_iteration")
    steps = _given(at) if at is not None else found_rungs(field.rows, time_attr)
    if not steps:
        raise ConfigError(
            f"no trial of {field.reader.name} was stopped early, so there are no rungs; name steps to compare: "
            "rungs(at=[1, 3, 9])."
        )
    reported = [row for row in field.rows if row.last_seq is not None]
    rows = spread(reported, _MOST)
    curves = curves_of(field.reader, rows, field.chosen.metric, time_attr)
    table = {number: [_value_at(curve, step) for step in steps] for number, curve in curves.items()}
    if not any(value is not None for values in table.values() for value in values):
        raise MetricError(
            f"no trial of {field.reader.name} has a number under {field.chosen.metric!r} at {time_attr} {steps[0]:g} "
            "or later; name other steps: rungs(at=[...]), or what counts them: time_attr='...'."
        )
    shown = spread([row for row in rows if row.number in table], _MOST_LINES)
    notes = []
    if len(rows) < len(reported):
        notes.append(f"Ranks of {len(rows):,} of {some(len(reported), 'trial')}, evenly chosen.")
    if len(shown) < len(rows):
        notes.append(f"{len(shown):,} of {some(len(reported), 'trial')} are drawn; the counts are of all.")
    counts = _counts(field.rows, steps, time_attr)
    correlations = _correlations(table, len(steps))
    is_compared = any(one is not None for row in correlations for one, _ in row)
    notes.append(_COMPARED if is_compared else f"Ranks at two rungs need {_LEAST_PAIRS} trials that came to both.")
    heights = [0.6, 0.4][: 1 + is_compared]
    figure = importlib.import_module("plotly.subplots").make_subplots(
        rows=len(heights), cols=1, row_heights=heights, vertical_spacing=0.17
    )
    traces = [_lines(field, fate, some_rows, table, steps) for fate, some_rows in by_fate(shown).items()]
    traces += [_heatmap(correlations, steps)] if is_compared else []
    texts = [
        f"{step:g}<br>{came:,} came<br>{stopped:,} out" for step, (came, stopped) in zip(steps, counts, strict=True)
    ]
    every = [value for values in table.values() for value in values if value is not None]
    axis, outside = axis_of_values(field.chosen.shown, every)
    notes += [outside] if outside else []
    return finish(
        traces,
        "rungs",
        f"{field.chosen.shown} at each rung",
        note=" ".join(notes),
        summary=_summary(field, steps, counts, correlations),
        figure=figure,
        xaxis={
            "tickvals": list(range(len(steps))),
            "ticktext": texts,
            "range": [-0.3, len(steps) - 0.7],
            "zeroline": False,
        },
        yaxis=axis,
        height=680 if is_compared else 440,
        **(_matrix_axes(steps, time_attr) if is_compared else {}),
    )


def _matrix_axes(steps: Sequence[float], time_attr: str) -> dict[str, Any]:
    shared = {
        "tickvals": list(range(len(steps))),
        "ticktext": [f"{step:g}" for step in steps],
        "showgrid": False,
        "zeroline": False,
    }
    title = f"{plain(time_attr, 30)}: rank correlation"
    return {"xaxis2": shared | {"title": title}, "yaxis2": shared | {"autorange": "reversed"}}


def _given(at: Sequence[float]) -> list[float]:
    steps = list(at) if isinstance(at, (list, tuple, range)) else []
    if not steps or not all(checks.is_number(step) for step in steps) or len(steps) > 2 * _MOST_RUNGS:
        checks.refuse("at", at, f"a list of 1 to {2 * _MOST_RUNGS} steps, such as [1, 3, 9, 27]")
    return sorted({float(step) for step in steps})


def _value_at(curve: Curve, step: float) -> float | None:
    """Return the first value at a step or after it: that by which a trial was judged; None: it did not get there."""
    for time, value, _ in curve:
        if time >= step:
            return value if math.isfinite(value) else None
    return None


def _counts(rows: Sequence[TrialRow], steps: Sequence[float], time_attr: str) -> list[tuple[int, int]]:
    """Return how many trials came to each rung, and how many were stopped there or before the next."""
    came, stopped = [0] * len(steps), [0] * len(steps)
    for row in rows:
        time = as_float((row.last_metrics or {}).get(time_attr))
        level = -1 if time is None else sum(time >= step for step in steps) - 1
        for index in range(level + 1):
            came[index] += 1
        if level >= 0 and row.was_stopped_early:
            stopped[level] += 1
    return list(zip(came, stopped, strict=True))


def _correlations(table: Mapping[int, Sequence[float | None]], num_steps: int) -> list[list[tuple[float | None, int]]]:
    """Return Spearman's rank correlation and the number of trials for each pair of rungs."""
    import pandas as pd

    frame = pd.DataFrame(list(table.values()), columns=range(num_steps), dtype="float64")
    found = frame.corr(method="spearman", min_periods=_LEAST_PAIRS).to_numpy()
    here = frame.notna().to_numpy().astype("int64")
    pairs = here.T @ here
    return [
        [(rounded(found[i, j]) if i != j else None, int(pairs[i, j])) for j in range(num_steps)]
        for i in range(num_steps)
    ]


def _lines(
    field: Field,
    fate: str,
    rows: Sequence[TrialRow],
    table: Mapping[int, Sequence[float | None]],
    steps: Sequence[float],
) -> Any:
    lines = Lines()
    for row in rows:
        places = [index for index, value in enumerate(table[row.number]) if value is not None]
        about = field.about(row)
        for index in places:
            value = table[row.number][index]
            size = 8 if index == places[-1] else 4
            lines.add(row.number, index, rounded(value), f"{about}<br>at {steps[index]:g}: {value:.4g}", size)
        lines.end()
    return lines.trace(FATES[fate], width=1, opacity=0.8, hoverinfo="text", xaxis="x", yaxis="y")


def _heatmap(correlations: Sequence[Sequence[tuple[float | None, int]]], steps: Sequence[float]) -> Any:
    hovers = [
        [
            f"{steps[i]:g} and {steps[j]:g}: "
            + ("too few trials" if one is None else f"{one:.3f}")
            + f", {some(num, 'trial')}"
            for j, (one, num) in enumerate(row)
        ]
        for i, row in enumerate(correlations)
    ]
    texts = [["" if one is None else f"{one:.2f}<br>n={num}" for one, num in row] for row in correlations]
    return graph_objects().Heatmap(
        x=list(range(len(steps))),
        y=list(range(len(steps))),
        z=[[one for one, _ in row] for row in correlations],
        xaxis="x2",
        yaxis="y2",
        zmin=-1,
        zmax=1,
        colorscale=[[0, "#D55E00"], [0.5, "#c9c9c9"], [1, "#0072B2"]],
        showscale=False,
        text=texts,
        texttemplate="%{text}",
        textfont={"size": 10},
        hovertext=hovers,
        hoverinfo="text",
        xgap=2,
        ygap=2,
    )


def _summary(
    field: Field,
    steps: Sequence[float],
    counts: Sequence[tuple[int, int]],
    correlations: Sequence[Sequence[tuple[float | None, int]]],
) -> str:
    came = ", ".join(
        f"{count} came to {step:g} and {out} were stopped there"
        for step, (count, out) in zip(steps, counts, strict=True)
    )
    text = f"Of {some(len(field.rows), 'trial')} {came}"
    last = correlations[0][-1][0] if len(steps) > 1 else None
    if last is not None:
        text += f"; the ranks at the first and the last rung correlate with {last:.2f}"
    return text + "."
