"""How experiments, results and trials look in a notebook: tables and curves in the page's own colours, all escaped."""

from __future__ import annotations

import math
import pprint
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep.core.ranking import rankable
from sweep.core.results import flatten, own_metrics, without_index
from sweep.display.formats import escaped
from sweep.display.svg import Curve, best_so_far, learning_curves
from sweep.figures.curves import curves_of
from sweep.record.encoding import Opaque
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.winners import about_best, best_by_last, objectives_front, scores, shown_counts

if TYPE_CHECKING:
    from sweep.results.views import TrialView


_MAX_ROWS = 20
_MAX_TEXT = 60
_MAX_CURVES = 30
# Grey of half opacity is seen on white and on black; no other colour is set, so the page's own hold.
_LINE = "1px solid rgba(128,128,128,0.35)"
_PLAIN = "color:inherit;background:none"
_CELL = f"white-space:nowrap;padding:2px 10px 2px 0;border:0;border-bottom:{_LINE};{_PLAIN};text-align:"
_PRE = f"padding:0.4em 0.6em;border-left:{_LINE};{_PLAIN};max-height:16em;overflow:auto;white-space:pre"
_MORE = "<p>more: figures <code>.plot</code>, a page <code>.to_html()</code>, tables <code>.dataframe()</code></p>"


def experiment_page(reader: ExperimentReader, metric: str | None, mode: str | None) -> str:
    """Return the page of an experiment: what there is, which trial is best and its config, or which are the Pareto set
    of several objectives, a table of trials, their curves, and where there is more."""
    trials, best, hint = reader.trials(), best_by_last(reader, metric, mode), reader.state_hint()
    counts = f"{len(trials)} trials: {shown_counts(reader) or 'none yet'}"
    lines = [f"<strong>{escaped(reader.name, _MAX_TEXT)}</strong> &middot; {counts}", f"<i>{escaped(hint, 0)}</i>"]
    first, marked = [metric or ""], [] if best is None else [best.row]
    if reader.objectives and not metric:
        first, marked = [name for name, _ in reader.objectives], [row for row, _ in objectives_front(reader)]
    if trials:
        star = "&#9733; " if marked else ""
        lines.append(star + "<br>".join(map(escaped, about_best(reader, metric, mode, best))))
    values = dict(scores(reader, metric, mode, "last")) if metric and mode else {}
    body = ""
    if best is not None and best.row.config:
        body = f'<pre style="{_PRE}">{escaped(as_python(without_index(best.row.config)), 0)}</pre>'
    body += _trial_table(_ranked(trials, marked, values, mode), first, marked)
    if metric and mode:
        body += _pictures(reader, trials, metric, mode, values, marked)
    return _page(lines, body + (_MORE if trials else ""), str(reader.root))


def trial_page(
    view: TrialView, choice: object = None, best: Mapping[str, Any] | None = None, checkpoint: str | None = None
) -> str:
    """Return the page of one trial: its state and why, its last and its best report, its config; why it was chosen."""
    row = view._facts
    chosen = "" if choice is None else f" &middot; {escaped(choice)}"
    lines = [f"<strong>{escaped(view.trial_name, _MAX_TEXT)}</strong> &middot; {row.state}{chosen}"]
    lines += [f"<i>{escaped(row.reason, 300)}</i>"] if row.reason else []
    shown = {"last": row.last_metrics or {}} | ({} if best is None else {"best": best})
    reports = [flatten(own_metrics(report, "training_iteration", "time_total_s")) for report in shown.values()]
    keys = dict.fromkeys(key for report in reports for key in report)
    rows = [[key, *(report.get(key) for report in reports)] for key in keys]
    body = _table(["", *shown], rows) if rows else "<p>nothing was reported yet</p>"
    config = ", ".join(f"{escaped(key, _MAX_TEXT)}={_value(value)}" for key, value in flatten(row.config).items())
    body += f"<p>config: <code>{config}</code></p>" if config else ""
    body += f"<p>checkpoint: <code>{escaped(checkpoint, 0)}</code></p>" if checkpoint else ""
    return _page(lines, body, view.path)


def as_python(config: Mapping[str, Any]) -> str:
    """Return a config as Python reads it; what was stored as a pickle is a text, NaN is `float('nan')`."""
    return pprint.pformat(_readable(config), width=100, sort_dicts=False)


def _readable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_readable, value))
    if isinstance(value, float) and not math.isfinite(value):
        return Opaque(f"float('{value}')")
    return value.text if isinstance(value, Opaque) else value


# --- parts ---


def _page(lines: Iterable[str], body: str, path: str) -> str:
    head = "".join(f"<p>{line}</p>" for line in lines)
    return f'<div style="color:inherit">{head}{body}<p style="opacity:0.7">{escaped(path, 0)}</p></div>'


def _trial_table(trials: Sequence[TrialRow], first_columns: Sequence[str], marked: Collection[TrialRow]) -> str:
    if not trials:
        return ""
    shown = trials[:_MAX_ROWS]
    reports = [flatten(own_metrics(trial.last_metrics or {})) for trial in shown]
    configs = [flatten(trial.config) for trial in shown]
    metrics = dict.fromkeys(key for report in reports for key in report)
    names = sorted(metrics, key=lambda key: key not in first_columns)
    params = dict.fromkeys(key for config in configs for key in config)
    rows = [
        [
            "★" if trial in marked else "",
            f"{trial.number:05d}",
            trial.state,
            (trial.last_metrics or {}).get("training_iteration"),
            *(report.get(key) for key in names),
            *(config.get(key) for key in params),
            trial.reason,
        ]
        for trial, report, config in zip(shown, reports, configs, strict=True)
    ]
    heads = [*names, *(f"config/{key}" if key in metrics else key for key in params), "reason"]
    more = f"<p>{len(trials) - len(shown)} more trials: .dataframe()</p>" if len(trials) > len(shown) else ""
    return _table(["", "trial", "state", "iter", *heads], rows) + more


def _ranked(
    trials: Sequence[TrialRow], marked: Collection[TrialRow], values: Mapping[str, float], mode: str | None
) -> list[TrialRow]:
    """Return the marked trials, then those that have a number with the best first, then the others."""

    def place(trial: TrialRow) -> tuple[bool, bool, float]:
        value = rankable(values.get(trial.trial_id))
        return trial not in marked, value is None, (-value if mode == "max" else value) if value is not None else 0.0

    return sorted(trials, key=place)


def _table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = ["".join(_cell(head, "th") for head in heads), *("".join(map(_cell, row)) for row in rows)]
    body = "".join(f'<tr style="{_PLAIN}">{line}</tr>' for line in lines)
    return f'<div style="overflow-x:auto"><table style="border-collapse:collapse;{_PLAIN}">{body}</table></div>'


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
    marked: Collection[TrialRow],
) -> str:
    """Return the learning curves of the best, of those that run and of some others, and what each trial reached."""
    known = [row for row in trials if row.count]
    running = [row for row in known if row.status == "RUNNING"]
    order = [*marked, *running, *known[:: max(1, len(known) // _MAX_CURVES)]]
    chosen = list({row.trial_id: row for row in order}.values())[:_MAX_CURVES]
    found = curves_of(reader, chosen, metric, "training_iteration")
    curves = [
        Curve(row.number, row.state, sorted({x: y for x, y, _ in found.get(row.number, ())}.items()), row in marked)
        for row in chosen
    ]
    values = [(row.number, float(last[row.trial_id]), row.state) for row in trials if row.trial_id in last]
    shown = [
        learning_curves(curves, metric) if any(len(curve.points) > 1 for curve in curves) else "",
        best_so_far(values, metric, mode) if len(values) > 1 else "",
    ]
    return f'<div style="display:flex;flex-wrap:wrap;gap:16px">{"".join(shown)}</div>'
