"""Learning curves: a reported number of each trial over its steps, told apart by what became of the trial."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sweep import checks
from sweep.core.values import as_float
from sweep.figures.style import BEST, FATES, Figure, Look, axis_of_values, finish, plain, rounded, some, whole_ticks
from sweep.figures.trials import Field, Point, by_fate, lines, spread
from sweep.record.facts import read_reports
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.winners import no_number

_LAST_TIME = 2e11  # seconds since 1970 that are still a date
_MOST_POINTS = 24_000  # of all curves together
_MANY = 100  # curves: of more each is fainter
Curve = list[tuple[float, float, int]]  # x, value, number of the attempt


def curves_of(reader: ExperimentReader, rows: Sequence[TrialRow], metric: str, x: str) -> dict[int, Curve]:
    """Return what some trials reported under `metric` and `x`, by number of the trial, in the order of the record.

    Reports without a number under one of the two are left out; NaN and infinities are numbers. A point that a later
    attempt has repeated is there twice. One pass over the reports parses only those of these trials.
    """
    number_of = {row.trial_id: row.number for row in rows}
    found: dict[int, Curve] = defaultdict(list)
    with reader.connect() as connection:
        for report in read_reports(connection, trial_ids=list(number_of)):
            step, value = as_float(report.get(x)), as_float(report.get(metric))
            if step is not None and value is not None and math.isfinite(step):
                found[number_of[report.trial_id]].append((step, value, report.attempt))
    return found


def draw_curves(field: Field, x: str, trials: Sequence[Any] | None, most: int) -> Figure:
    """Return the learning curves; see `Plots.curves`."""
    checks.whole("most", most, least=1)
    if not isinstance(x, str) or not x:
        checks.refuse("x", x, "the name of a number that trials report, such as 'training_iteration' or 'time_total_s'")
    reported = [row for row in field.rows if row.last_seq is not None]
    rows, note = field.thinned(reported, most) if trials is None else (field.named(trials), "")
    curves = curves_of(field.reader, rows, field.metric, x)
    rows = [row for row in rows if any(math.isfinite(value) for _, value, _ in curves.get(row.number, ()))]
    if not rows:
        raise no_number(field.reader, field.metric, x)
    share = max(4, _MOST_POINTS // len(rows))
    sparse = {row.number: spread(curves[row.number], share) for row in rows}
    is_thinned = any(len(sparse[row.number]) < len(curves[row.number]) for row in rows)
    steps = [step for curve in sparse.values() for step, _, _ in curve]
    is_clock = x == "timestamp" and all(0 <= step < _LAST_TIME for step in steps)
    is_whole = not is_clock and all(step == int(step) for step in steps)

    def place(step: float) -> Any:
        return datetime.fromtimestamp(step).isoformat(" ", "seconds") if is_clock else rounded(step)

    others = by_fate([row for row in rows if row.number != field.best])
    style = {"width": 1.5, "opacity": 0.85} if len(rows) <= _MANY else {"width": 1, "opacity": 0.6}
    traces = [_trace(field, FATES[fate], found, sparse, place, **style) for fate, found in reversed(others.items())]
    for row in [row for row in rows if row.number == field.best]:
        look = Look(f"best: trial {field.best}", BEST, "star", FATES[row.state].dash)
        traces.append(_trace(field, look, [row], sparse, place, width=3, opacity=1))
    values = [value for curve in sparse.values() for _, value, _ in curve]
    axis, outside = axis_of_values(field.shown, values, field.best_value)
    counts = ", ".join(f"{len(found)} {fate}" for fate, found in by_fate(rows).items())
    return finish(
        traces,
        "curves",
        f"{field.shown} while training",
        notes=[field.note, note, f"Of each curve at most {share} points." if is_thinned else "", outside],
        summary=f"Learning curves of {field.shown} over {plain(x, 40)} of {some(len(rows), 'trial')}: {counts}.",
        xaxis={"title": plain(x, 40)} | (whole_ticks(min(steps), max(steps)) if is_whole else {}),
        yaxis=axis,
        legend_traceorder="reversed",  # those that finished lie above the others, and are named first
    )


def _trace(
    field: Field,
    look: Look,
    rows: Sequence[TrialRow],
    curves: Mapping[int, Curve],
    place: Callable[[float], Any],
    **style: Any,
) -> Any:
    """Return the curves of some trials; the mark at the end of each says what is known of the trial."""
    strokes: list[list[Point]] = []
    for row in rows:
        curve = curves[row.number]
        last = max((index for index, (_, value, _) in enumerate(curve) if math.isfinite(value)), default=-1)
        about = field.about(row) + (f"<br>then {curve[-1][1]:g}" if last + 1 < len(curve) else "")
        strokes.append([])
        for index, (step, value, attempt) in enumerate(curve):
            went_back = index > 0 and attempt != curve[index - 1][2] and step <= curve[index - 1][0]
            if went_back or not math.isfinite(value):
                strokes.append([])
            if math.isfinite(value):
                size = (14 if look.symbol == "star" else 7) if index == last else 0
                text = about if index == last else f"<b>trial {row.number:05d}</b> {row.state}"
                strokes[-1].append((place(step), rounded(value), row.number, text, size))
    template = "%{hovertext}<br>at %{x}: %{y:.5~g}<extra></extra>"
    return lines(strokes, look, outline=1.5 if "open" in look.symbol else 0, hovertemplate=template, **style)
