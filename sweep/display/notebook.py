"""What a notebook's cell shows below the block: a table of trials and the learning curves, as html."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from sweep.core.results import flatten
from sweep.core.trial import Status, Trial, shown_state
from sweep.display.formats import clean, duration, fit, text
from sweep.display.renderer import row_of
from sweep.display.state import ViewState
from sweep.display.svg import best_so_far, learning_curves

_MAX_LIVE, _MAX_WAITING, _MAX_ENDED, _MAX_AT_END = 12, 3, 8, 20
_MAX_PARAMETERS = 10
_MAX_CELL = 24
_LINE = "1px solid rgba(128,128,128,0.35)"
_CELL = (
    f"white-space:nowrap;padding:1px 12px 1px 0;border:0;border-bottom:{_LINE};color:inherit;background:none;"
    "text-align:left"
)


def table_below(view: ViewState, now: float, *, is_last: bool) -> str:
    """Return the trials that run and the best that have ended; at the end the best of all, and those that had begun."""
    rows = [row_of(view, live, now) for live in islice(view.live.values(), _MAX_LIVE)]
    waiting = islice(view.waiting.values(), 0 if is_last else _MAX_WAITING)
    rows += [{"trial": f"{trial.number:05d}", "state": "waiting", "where": clean(trial.reason)} for trial in waiting]
    ended = view.first_ended(_MAX_AT_END if is_last else _MAX_ENDED)
    best = {number for number, _ in view.front} if view.best is None else {view.best.trial.number}
    rows += [_row(view, trial) | {"": "★" * (trial.number in best)} for trial in ended]
    if is_last:
        begun = [trial for trial in view.unfinished() if trial.last_result is not None][: _MAX_AT_END - len(ended)]
        rows += [_row(view, trial) for trial in begun]
    if not rows:
        return ""
    parameters = list(view.varying)
    columns = ["", "trial", "state", "step", *view.metrics, *parameters[:_MAX_PARAMETERS], "time", "where"]
    columns = [name for name in dict.fromkeys(columns) if name in ("", "trial") or any(row.get(name) for row in rows)]
    heads = ["" if name == "where" else clean(name) for name in columns]
    cells = [[_cell(row.get(name, ""), 60 if name == "where" else _MAX_CELL) for name in columns] for row in rows]
    hidden = len(parameters) - _MAX_PARAMETERS
    more = f'<div style="opacity:.6">and {hidden} more parameters</div>' if hidden > 0 else ""
    return _table([[_cell(head, 40, "th") for head in heads], *cells]) + more


def _row(view: ViewState, trial: Trial) -> dict[str, str]:
    """Return the cells of a trial that has no process."""
    flat = flatten(trial.config)
    last: Mapping[str, Any] = trial.last_result or {}
    row = {name: text(flat[name]) for name in view.varying if name in flat}
    return row | {
        **{metric: text(last.get(metric)) for metric in view.metrics},
        "trial": f"{trial.number:05d}",
        "state": shown_state(trial),
        "step": text(last.get("training_iteration")),
        "time": duration(last.get("time_total_s") or 0.0),
        "where": clean(trial.reason.partition("\n")[0]) if trial.status is Status.ERROR else "",
    }


def curves_below(view: ViewState) -> str:
    """Return the learning curves of the trials that run, of the last ones that ended, and of the best; where each has
    reported once, what they reached in the order of the trials."""
    if view.curves is None or not view.plan.metric:
        return ""
    best, metric = view.best, view.plan.metric
    curves = [curve for curve in view.curves.shown(None if best is None else best.trial.number) if curve.points]
    if len(curves) < 2 or any(len(curve.points) > 1 for curve in curves):
        return learning_curves(curves, metric)
    return best_so_far(
        sorted((curve.trial, curve.points[0][1], curve.state) for curve in curves), metric, view.plan.mode
    )


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines = "".join(f'<tr style="background:none;color:inherit">{"".join(row)}</tr>' for row in rows)
    style = "border-collapse:collapse;color:inherit;background:none;font-size:90%"
    return f'<div style="overflow-x:auto"><table style="{style}">{lines}</table></div>'


def _cell(value: str, most: int, tag: str = "td") -> str:
    shown = fit(value, most)
    hover = f' title="{html.escape(value[:500])}"' if shown != value else ""
    return f'<{tag}{hover} style="{_CELL}">{html.escape(shown)}</{tag}>'
