"""What early stopping did: who came to which rung and who went on, and whether early ranks say late ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sweep import checks
from sweep.core.values import as_float
from sweep.errors import ConfigError, MetricError
from sweep.figures.curves import Curve, curves_of
from sweep.figures.style import FATES, Figure, axis_of_values, finish, graph_objects, plain, rounded, some
from sweep.figures.trials import Field, Point, by_fate, lines, spread
from sweep.record.rows import TrialRow

_MOST_LINES = 300
_MOST_RUNGS = 8
_LEAST_PAIRS = 3  # trials at both rungs, for a rank correlation
_COMPARED = "Ranks are compared among trials that came to both rungs: the better ones, where others were stopped."


def found_rungs(rows: Sequence[TrialRow], time_attr: str) -> list[float]:
    """Return the steps at which trials were stopped early, an even choice of many, and the last step of the others.
    Empty: no trial was stopped early."""
    steps = [(row, as_float((row.last_metrics or {}).get(time_attr))) for row in rows]
    known = [(row, step) for row, step in steps if step is not None and math.isfinite(step)]
    stops = spread(sorted({step for row, step in known if row.was_stopped_early}), _MOST_RUNGS - 1)
    last = max((step for row, step in known if not row.was_stopped_early), default=-math.inf)
    return [*stops, last] if stops and last > stops[-1] else stops


def draw_rungs(field: Field, at: Sequence[float] | None, time_attr: str | None) -> Figure:
    """Return the rungs; see `Plots.rungs`."""
    field.valued()
    time_attr = time_attr or str(field.reader.meta.get("time_attr") or "training_iteration")
    steps = _given(at) if at is not None else found_rungs(field.rows, time_attr)
    if not steps:
        raise ConfigError(
            f"no trial of {field.reader.name} was stopped early, so there are no rungs; name steps to compare: "
            "rungs(at=[1, 3, 9])."
        )
    curves = curves_of(field.reader, field.rows, field.metric, time_attr)
    table = {number: [_value_at(curve, step) for step in steps] for number, curve in curves.items()}
    every = [value for values in table.values() for value in values if value is not None]
    if not every:
        raise MetricError(
            f"no trial of {field.reader.name} has a number under {field.metric!r} at {time_attr} {steps[0]:g} "
            "or later; name other steps: rungs(at=[...]), or what counts them: time_attr='...'."
        )
    reported = [row for row in field.rows if row.number in table]
    shown = spread(reported, _MOST_LINES)
    thinned = f"{len(shown):,} of {some(len(reported), 'trial')} are drawn; the counts are of all."
    counts = _counts(field.rows, steps, time_attr)
    correlations = _correlations(table, len(steps))
    is_compared = any(one is not None for row in correlations for one, _ in row)
    compared = _COMPARED if is_compared else f"Ranks at two rungs need {_LEAST_PAIRS} trials that came to both."
    heights = [0.6, 0.4][: 1 + is_compared]
    traces = [_lines(field, fate, found, table, steps) for fate, found in by_fate(shown).items()]
    traces += [_heatmap(correlations, steps)] if is_compared else []
    came = [f"{step:g}<br>{num:,} came<br>{out:,} out" for step, (num, out) in zip(steps, counts, strict=True)]
    axis, outside = axis_of_values(field.shown, every)
    places = list(range(len(steps)))
    shared = {"tickvals": places, "ticktext": [f"{step:g}" for step in steps], "showgrid": False, "zeroline": False}
    title = f"{plain(time_attr, 30)}: rank correlation"
    matrix = {"xaxis2": shared | {"title": title}, "yaxis2": shared | {"autorange": "reversed"}}
    ends = {"range": [-0.3, len(steps) - 0.7], "zeroline": False}
    return finish(
        traces,
        "rungs",
        f"{field.shown} at each rung",
        notes=[field.note, thinned if len(shown) < len(reported) else "", compared, outside],
        summary=_summary(field, steps, counts, correlations),
        subplots={"rows": len(heights), "cols": 1, "row_heights": heights, "vertical_spacing": 0.17},
        xaxis={"tickvals": places, "ticktext": came, **ends},
        yaxis=axis,
        height=680 if is_compared else 440,
        **(matrix if is_compared else {}),
    )


def _given(at: Sequence[float]) -> list[float]:
    steps = list(at) if isinstance(at, (list, tuple, range)) else []
    if not steps or not all(checks.is_number(step) for step in steps) or len(steps) > 2 * _MOST_RUNGS:
        checks.refuse("at", at, f"a list of 1 to {2 * _MOST_RUNGS} steps, such as [1, 3, 9, 27]")
    return sorted({float(step) for step in steps})


def _value_at(curve: Curve, step: float) -> float | None:
    """Return the first value at a step or after it: that by which a trial was judged; None: it did not get there."""
    value = next((value for time, value, _ in curve if time >= step), math.nan)
    return value if math.isfinite(value) else None


def _counts(rows: Sequence[TrialRow], steps: Sequence[float], time_attr: str) -> list[tuple[int, int]]:
    """Return how many trials came to each rung, and how many were stopped there or before the next."""
    came, stopped = [0] * len(steps), [0] * len(steps)
    for row in rows:
        time = as_float((row.last_metrics or {}).get(time_attr))
        level = 0 if time is None else sum(time >= step for step in steps)
        for index in range(level):
            came[index] += 1
        if level and row.was_stopped_early:
            stopped[level - 1] += 1
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
    strokes: list[list[Point]] = []
    for row in rows:
        places = [(index, value) for index, value in enumerate(table[row.number]) if value is not None]
        strokes.append([])
        for index, value in places:
            text = f"{field.about(row)}<br>at {steps[index]:g}: {value:.4g}"
            size = 8 if index == places[-1][0] else 4
            strokes[-1].append((index, rounded(value), row.number, text, size))
    return lines(strokes, FATES[fate], width=1, opacity=0.8, hoverinfo="text", xaxis="x", yaxis="y")


def _heatmap(correlations: Sequence[Sequence[tuple[float | None, int]]], steps: Sequence[float]) -> Any:
    texts = [["" if one is None else f"{one:.2f}<br>n={num}" for one, num in row] for row in correlations]
    places = list(range(len(steps)))
    return graph_objects().Heatmap(
        x=places,
        y=places,
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
    parts = zip(steps, counts, strict=True)
    came = ", ".join(f"{count} came to {step:g} and {out} were stopped there" for step, (count, out) in parts)
    text = f"Of {some(len(field.rows), 'trial')} {came}"
    last = correlations[0][-1][0] if len(steps) > 1 else None
    if last is not None:
        text += f"; the ranks at the first and the last rung correlate with {last:.2f}"
    return text + "."
