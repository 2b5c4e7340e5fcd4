"""How experiments, results and trials look in a notebook: tables and curves in the page's own colours, all escaped."""

from __future__ import annotations

import math
import pprint
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep.core.ranking import rankable
from sweep.core.results import flatten, own_metrics, without_index
from sweep.core.values import printed
from sweep.display.formats import escaped
from sweep.display.svg import Curve, best_so_far, learning_curves
from sweep.record.encoding import Opaque
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.scopes import scores
from sweep.results.winners import about_best, best_by_last, objectives_front, shown_counts

if TYPE_CHECKING:
    from sweep.results.views import Result, TrialView


_MAX_ROWS = 20
_MAX_COLUMNS = 14
_MAX_TEXT = 60
_MAX_CURVES = 30
_MAX_REPORTS = 50_000  # read for one page: a tenth of a second
# Grey of half opacity is seen on white and on black; no other colour is set, so the page's own hold.
_LINE = "1px solid rgba(128,128,128,0.35)"
_CELL = (
    f"white-space:nowrap;padding:2px 10px 2px 0;border:0;border-bottom:{_LINE};color:inherit;background:none;"
    "text-align:"
)
_PRE = (
    "margin:0.3em 0;padding:0.4em 0.6em;border-left:3px solid rgba(128,128,128,0.35);background:none;color:inherit;"
    "max-height:16em;overflow:auto;white-space:pre"
)
_MORE = (
    "<p>more: figures <code>.plot</code>, a page of its own <code>.to_html()</code>, tables "
    "<code>.dataframe()</code></p>"
)


def experiment_page(reader: ExperimentReader, metric: str | None, mode: str | None) -> str:
    """Return the page of an experiment: what there is, which trial is best and its config, or which are the Pareto set
    of several objectives, a table of trials, their curves, and where there is more."""
    trials, best = reader.trials(), best_by_last(reader, metric, mode)
    counts, hint = shown_counts(reader), reader.state_hint()
    head = f"<strong>{escaped(reader.name, _MAX_TEXT)}</strong> &middot; {len(trials)} trials: {counts or 'none yet'}"
    marked = [] if best is None else [best.row.trial_id]
    first = [metric or ""]
    if reader.objectives and not metric:
        first, marked = [name for name, _ in reader.objectives], [row.trial_id for row, _ in objectives_front(reader)]
    chosen = [escaped(line) for line in about_best(reader, metric, mode, best)] if trials else []
    if marked:
        chosen[0] = f"&#9733; {chosen[0]}"
    body = ""
    if best is not None and best.row.config:
        body = f'<pre style="{_PRE}">{escaped(as_python(without_index(best.row.config)), 0)}</pre>'
    values = dict(scores(reader, metric, mode, "last")) if metric and mode else {}
    body += _trial_table(_ranked(trials, values, mode), first, marked)
    body += _pictures(reader, trials, metric, mode, values, marked) if metric and mode else ""
    hints = [f"<i>{escaped(hint, 0)}</i>"] if hint else []
    return _page([head, *hints, *chosen], body + (_MORE if trials else ""), str(reader.root))


def result_page(result: Result) -> str:
    """Return the page of one result: why it was chosen, its last and its best report, its config."""
    row, best, nearest = result._facts, result._best_report(), result._best_checkpoint()
    checkpoint = result.checkpoint if nearest is None else nearest[0]
    choice = "" if result.choice is None else f" &middot; {escaped(result.choice)}"
    reports = {"last": row.last_metrics or {}} | ({"best": best.metrics} if best is not None else {})
    place = f"<p>checkpoint: <code>{escaped(checkpoint.path, 0)}</code></p>" if checkpoint is not None else ""
    return _trial_page(row.trial_id, row, choice, reports, place, result.path)


def view_page(view: TrialView) -> str:
    """Return the page of one trial: its state and why, its last report, its config."""
    return _trial_page(view.trial_name, view._facts, "", {"last": view._facts.last_metrics or {}}, "", view.path)


def as_python(config: Mapping[str, Any]) -> str:
    """Return a config as Python reads it; what was stored as a pickle is a text, NaN is `float('nan')`."""
    try:
        return pprint.pformat(_readable(config), width=100, sort_dicts=False)
    except ValueError:  # a whole number beyond what Python prints
        return printed(config)


# --- parts ---


def _page(head: Iterable[str], body: str, path: str) -> str:
    lines = "".join(f"<p>{line}</p>" for line in head)
    foot = f'<p style="opacity:0.7">{escaped(path, 0)}</p>'
    return f'<div class="sweep" style="color:inherit">{lines}{body}{foot}</div>'


def _trial_page(
    name: str, row: TrialRow, choice: str, reports: Mapping[str, Mapping[str, Any]], place: str, path: str
) -> str:
    head = [f"<strong>{escaped(name, _MAX_TEXT)}</strong> &middot; {row.state}{choice}"]
    head += [f"<i>{escaped(row.reason, 300)}</i>"] if row.reason else []
    own = {
        which: flatten(own_metrics(report, "training_iteration", "time_total_s")) for which, report in reports.items()
    }
    keys = dict.fromkeys(key for report in own.values() for key in report)
    rows = [[key, *(report.get(key) for report in own.values())] for key in keys]
    body = _table(["", *own], rows) if rows else "<p>nothing was reported yet</p>"
    config = ", ".join(f"{escaped(key, _MAX_TEXT)}={_value(value)}" for key, value in flatten(row.config).items())
    return _page(head, body + (f"<p>config: <code>{config}</code></p>" if config else "") + place, path)


def _trial_table(trials: Sequence[TrialRow], first_columns: Sequence[str], best_ids: Sequence[str]) -> str:
    """Return the table of the first trials; the best ones are among them wherever they stand."""
    if not trials:
        return ""
    shown = sorted(trials, key=lambda trial: trial.trial_id not in best_ids[:_MAX_ROWS])[:_MAX_ROWS]
    values = [(flatten(own_metrics(trial.last_metrics or {})), flatten(trial.config)) for trial in shown]
    metrics = dict.fromkeys(key for report, _ in values for key in report)
    params = dict.fromkeys(key for _, config in values for key in config)
    columns = [(key, 0) for key in sorted(metrics, key=lambda key: key not in first_columns)]
    columns += [(key, 1) for key in params]
    cut, columns = columns[_MAX_COLUMNS:], columns[:_MAX_COLUMNS]
    reason = ["reason"] if any(trial.reason for trial in shown) else []
    rows = [
        [
            "★" if trial.trial_id in best_ids else "",
            f"{trial.number:05d}",
            trial.state,
            (trial.last_metrics or {}).get("training_iteration"),
            *(pair[which].get(key) for key, which in columns),
            *([trial.reason] if reason else []),
        ]
        for trial, pair in zip(shown, values, strict=True)
    ]
    names = [f"config/{key}" if which and key in metrics else key for key, which in columns]
    table = _table(["", "trial", "state", "iter", *names, *reason], rows)
    if len(trials) > len(shown):
        table += f"<p>{len(trials) - len(shown)} more trials: .dataframe()</p>"
    if cut:
        table += f"<p>{len(cut)} more columns: {escaped(', '.join(key for key, _ in cut), 300)}</p>"
    return table


def _ranked(trials: Sequence[TrialRow], values: Mapping[str, float], mode: str | None) -> list[TrialRow]:
    """Return the trials that have a number with the best first, then the others, both in the order of their numbers."""
    known = {trial_id: value for trial_id, value in values.items() if rankable(value) is not None}
    first = [trial for trial in trials if trial.trial_id in known]
    first.sort(key=lambda trial: known[trial.trial_id], reverse=mode == "max")
    return [*first, *(trial for trial in trials if trial.trial_id not in known)]


def _table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = ["".join(_cell(head, "th") for head in heads), *("".join(map(_cell, row)) for row in rows)]
    body = "".join(f'<tr style="background:none;color:inherit">{line}</tr>' for line in lines)
    style = "border-collapse:collapse;color:inherit;background:none"
    return f'<div style="overflow-x:auto"><table style="{style}">{body}</table></div>'


def _cell(value: Any, tag: str = "td") -> str:
    side = "right" if isinstance(value, (int, float)) and not isinstance(value, bool) else "left"
    return f'<{tag} style="{_CELL}{side}">{_value(value)}</{tag}>'


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return escaped(value.text if isinstance(value, Opaque) else value, _MAX_TEXT)


def _pictures(
    reader: ExperimentReader,
    trials: Sequence[TrialRow],
    metric: str,
    mode: str,
    last: Mapping[str, float],
    best_ids: Collection[str],
) -> str:
    """Return the learning curves of some trials, and what each trial reached; `last` are their last values."""
    chosen = _chosen(trials, best_ids)
    points = _points(reader, [row.trial_id for row in chosen], metric)
    curves = [Curve(row.number, row.state, points[row.trial_id], row.trial_id in best_ids) for row in chosen]
    values = [(row.number, float(last[row.trial_id]), row.state) for row in trials if row.trial_id in last]
    has_lines = any(len(curve.points) > 1 for curve in curves)
    shown = [
        learning_curves(curves, metric) if has_lines else "",
        best_so_far(values, metric, mode) if len(values) > 1 else "",
    ]
    boxes = "".join(f'<div style="flex:0 1 480px;min-width:0">{figure}</div>' for figure in shown if figure)
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px;margin-top:8px">{boxes}</div>' if boxes else ""


def _chosen(trials: Sequence[TrialRow], best_ids: Collection[str]) -> list[TrialRow]:
    """Return the best trials, those that run, and others from all over the sweep, as many as are read quickly."""
    known = [row for row in trials if row.count]
    first = [row for row in known if row.trial_id in best_ids] + [row for row in known if row.status == "RUNNING"]
    every = max(1, len(known) // _MAX_CURVES)
    found: dict[str, TrialRow] = {}
    read = 0
    for row in [*first, *known[::every]]:
        if row.trial_id in found or (found and read + row.count > _MAX_REPORTS):
            continue
        found[row.trial_id] = row
        read += row.count
        if len(found) == _MAX_CURVES:
            break
    return list(found.values())


def _points(reader: ExperimentReader, trial_ids: Collection[str], metric: str) -> dict[str, list[tuple[float, float]]]:
    """Return (step, value) of the reports of each of these trials, in two passes over the record."""
    steps = {seq: step for _, seq, step in reader.values("training_iteration", trial_id=trial_ids)}
    found: dict[str, list[tuple[float, float]]] = {trial_id: [] for trial_id in trial_ids}
    for trial_id, seq, value in reader.values(metric, trial_id=trial_ids):
        points = found[trial_id]
        step = float(steps.get(seq, len(points) + 1))
        while points and points[-1][0] >= step:  # it went on from a checkpoint
            points.pop()
        points.append((step, float(value)))
    return found


def _readable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_readable, value)) if type(value) in (list, tuple) else [*map(_readable, value)]
    if isinstance(value, float) and not math.isfinite(value):
        return _Infinite(value)
    return value.text if isinstance(value, Opaque) else value


class _Infinite(float):
    """A number that Python reads only as a call."""

    def __repr__(self) -> str:
        return f"float('{float(self)}')"
