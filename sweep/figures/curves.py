"""Learning curves: a reported number of each trial over its steps, told apart by what became of the trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sweep import checks
from sweep.core.values import as_float
from sweep.errors import MetricError
from sweep.figures.style import (
    BEST,
    FATES,
    Look,
    axis_of_values,
    finish,
    plain,
    rounded,
    some,
    whole_ticks,
)
from sweep.figures.trials import Field, Lines, by_fate
from sweep.record.facts import read_reports
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

if TYPE_CHECKING:
    import plotly.graph_objects as go


_LAST_TIME = 2e11  # seconds since 1970 that are still a date
_MOST_POINTS = 24_000  # of all curves together
_MANY = 100  # curves: of more each is fainter
_MOST_TEXTS = 6000  # points that carry a config; of more only the last of each curve does
Curve = list[tuple[float, float, int]]  # x, value, number of the attempt


def curves_of(reader: ExperimentReader, rows: Sequence[TrialRow], metric: str, x: str) -> dict[int, Curve]:
    """Return what some trials reported under `metric` and `x`, by number of the trial, in the order of the record.

    Reports without a number under one of the two are left out; NaN and infinities are numbers. A point that a later
    attempt has repeated is there twice. One pass over the reports parses only those of these trials.
    """
    number_of = {row.trial_id: row.number for row in rows}
    found: dict[int, Curve] = {number: [] for number in number_of.values()}
    for trial_id, attempt, step, value in _pairs(reader, list(number_of), metric, x):
        if trial_id not in number_of:  # it began while this was read
            continue
        if step is not None and value is not None and math.isfinite(step):
            found[number_of[trial_id]].append((step, value, attempt))
    return {number: curve for number, curve in found.items() if curve}


def _pairs(
    reader: ExperimentReader, trial_ids: list[str], metric: str, x: str
) -> Iterator[tuple[str, int, float | None, float | None]]:
    in_all = len(trial_ids) == len(reader.trials())
    with reader.connect() as connection:
        for report in read_reports(connection, trial_ids=None if in_all else trial_ids):
            attempt = report.data["attempt"]
            yield report.trial_id, attempt, as_float(report.get(x)), as_float(report.get(metric))


def draw_curves(field: Field, x: str, trials: Sequence[Any] | None, most: int) -> go.Figure:
    """Return the learning curves; see `Plots.curves`."""
    assert field.chosen is not None
    checks.whole("most", most, least=1)
    if not isinstance(x, str) or not x:
        checks.refuse("x", x, "the name of a number that trials report, such as 'training_iteration' or 'time_total_s'")
    rows = [row for row in field.rows if row.last_seq is not None]
    if trials is not None:
        rows, note = field.named(trials), ""
    else:
        rows, note = field.thinned(rows, most)
    curves = curves_of(field.reader, rows, field.chosen.metric, x)
    rows = [row for row in rows if any(math.isfinite(value) for _, value, _ in curves.get(row.number, ()))]
    if not rows:
        metric, name = field.chosen.metric, field.reader.name
        what = f"no trial of {name} has reported numbers under {metric!r} and {x!r}"
        what = what if field.reader.metric_names() else f"{name} has no curves"
        raise MetricError(f"{what}. {field.why_not([metric, x])}")
    share = max(4, _MOST_POINTS // len(rows))
    sparse = {row.number: _fewer(curves[row.number], share) for row in rows}
    if any(len(sparse[number]) < len(curves[number]) for number in sparse):
        note = f"{note} Of each curve at most {share} points.".strip()
    has_texts = sum(map(len, sparse.values())) <= _MOST_TEXTS
    best, steps = field.best(), [step for curve in sparse.values() for step, _, _ in curve]
    is_clock = x == "timestamp" and all(0 <= step < _LAST_TIME for step in steps)
    is_whole = not is_clock and all(step == int(step) for step in steps)
    place: Callable[[float], Any] = _at_clock if is_clock else rounded
    others = by_fate([row for row in rows if row.number != best])
    traces = [_trace(field, FATES[fate], some_rows, sparse, place, has_texts) for fate, some_rows in others.items()][
        ::-1
    ]
    for trace in traces if len(rows) > _MANY else ():
        trace.update(opacity=0.6, line_width=1)
    for row in [row for row in rows if row.number == best]:
        look = Look(f"best: trial {best}", BEST, "star", FATES[row.state].dash)
        traces.append(_trace(field, look, [row], sparse, place, has_texts).update(line_width=3, opacity=1))
    every = [value for curve in sparse.values() for _, value, _ in curve]
    axis, outside = axis_of_values(field.chosen.shown, every, None if best is None else field.ranked[best])
    metric = field.chosen.shown
    counts = ", ".join(f"{len(found)} {FATES[fate].name}" for fate, found in by_fate(rows).items())
    return finish(
        traces,
        "curves",
        f"{metric} while training",
        note=f"{note} {outside}".strip(),
        summary=f"Learning curves of {metric} over {plain(x, 40)} of {some(len(rows), 'trial')}: {counts}.",
        xaxis={"title": plain(x, 40)} | (whole_ticks(min(steps), max(steps)) if is_whole else {}),
        yaxis=axis,
        legend_traceorder="reversed",  # those that finished lie above the others, and are named first
    )


def _fewer(curve: Curve, most: int) -> Curve:
    """Return a curve on at most so many points: the first, the last, and from each stretch between its extremes."""
    if len(curve) <= most:
        return curve
    inner, stretches = curve[1:-1], max(1, (most - 2) // 2)
    kept = [0]
    for index in range(stretches):
        first, last = index * len(inner) // stretches, (index + 1) * len(inner) // stretches
        places = [i for i in range(first, last) if math.isfinite(inner[i][1])]
        if places:
            ends = {min(places, key=lambda i: inner[i][1]), max(places, key=lambda i: inner[i][1])}
            kept += sorted(i + 1 for i in ends)
    return [curve[i] for i in [*kept, len(curve) - 1]]


def _at_clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "seconds")


def _trace(
    field: Field,
    look: Look,
    rows: Sequence[TrialRow],
    curves: Mapping[int, Curve],
    place: Callable[[float], Any],
    has_texts: bool,
) -> Any:
    lines = Lines()
    for row in rows:
        curve = curves[row.number]
        about, short = field.about(row), f"<b>trial {row.number:05d}</b> {row.state}"
        last = max(index for index, (_, value, _) in enumerate(curve) if math.isfinite(value))
        if last + 1 < len(curve):
            about += f"<br>then {curve[-1][1]:g}"
        for index, (step, value, attempt) in enumerate(curve):
            went_back = index > 0 and attempt != curve[index - 1][2] and step <= curve[index - 1][0]
            if went_back or not math.isfinite(value):
                lines.end()
            if math.isfinite(value):
                size = (14 if look.symbol == "star" else 7) if index == last else 0
                lines.add(row.number, place(step), rounded(value), about if has_texts or index == last else short, size)
        lines.end()
    return lines.trace(
        look,
        width=1.5,
        outline=1.5 if "open" in look.symbol else 0,
        text_key="text",
        opacity=0.85,
        hovertemplate="%{text}<br>at %{x}: %{y:.5~g}<extra></extra>",
    )
