"""How experiments, results and trials look in a notebook: tables in the page's own colours, everything escaped."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from sweep.core.ranking import Objectives, shown_objectives
from sweep.core.results import AUTO_FILLED, flatten
from sweep.core.values import printed
from sweep.record.encoding import Opaque
from sweep.results.winners import Best, best_by_last, better_earlier, objectives_front

if TYPE_CHECKING:
    from sweep.record.reader import TrialRow
    from sweep.results.experiment import Experiment
    from sweep.results.views import Result, TrialView

__all__ = ["analysis_page", "result_page", "view_page"]

_MAX_ROWS = 20
_MAX_COLUMNS = 14
_MAX_TEXT = 60
# Grey of half opacity is seen on white and on black; no other colour is set, so the page's own hold.
_LINE = "1px solid rgba(128,128,128,0.35)"
_CELL = f"padding:2px 10px 2px 0;border:0;border-bottom:{_LINE};color:inherit;background:none;text-align:"
_ORDER = ("RUNNING", "PENDING", "PAUSED", "TERMINATED", "ERROR")


def analysis_page(analysis: Experiment) -> str:
    """Return the page of an experiment: what there is, which trial is best, or which are the Pareto set of several
    objectives, and a table of trials."""
    reader = analysis._reader
    trials = reader.trials()
    parts = [f"<p><strong>{_text(reader.name)}</strong> &middot; {_counts(trials)}{_hint(reader.state_hint())}</p>"]
    objectives = analysis._objectives if not analysis.default_metric else ()
    if objectives:
        front = objectives_front(reader)
        if trials:
            parts.append(f"<p>{_front_line(objectives, len(front))}</p>")
        names, marked = [name for name, _ in objectives], [row.trial_id for row, _ in front]
    else:
        best = best_by_last(reader, analysis.default_metric, analysis.default_mode)
        earlier = better_earlier(reader, analysis.default_metric, analysis.default_mode)
        if best is not None:
            parts.append(f"<p>{_best_line(best)}</p>")
        elif trials:
            parts.append(f"<p>{_text(_why_no_best(analysis))}</p>")
        if earlier is not None:
            parts.append(f"<p>{_earlier_line(earlier)}</p>")
        names, marked = [analysis.default_metric or ""], [] if best is None else [best.row.trial_id]
    parts.append(_trial_table(trials, names, marked))
    parts.append(f'<p style="opacity:0.7">{_text(str(reader.root))}</p>')
    return _page(parts)


def result_page(result: Result) -> str:
    """Return the page of one result: why it was chosen, its last and its best report, its config."""
    row = result._facts
    title = f"<strong>{_text(row.trial_id)}</strong> &middot; {_text(row.status)}"
    if result.choice is not None:
        title += f" &middot; {_text(str(result.choice))}"
    reports = {"last": _own(row.last_metrics or {})}
    best = result._best_row()
    if best is not None:
        reports["best"] = _own(best.metrics)
    parts = [f"<p>{title}</p>", _reason(row), _side_by_side(reports), _pairs("config", flatten(row.config))]
    nearest = result._best_checkpoint()
    checkpoint = result.checkpoint if nearest is None else nearest[0]
    if checkpoint is not None:
        parts.append(f"<p>checkpoint: <code>{_text(checkpoint.path, 0)}</code></p>")
    return _page([*parts, f'<p style="opacity:0.7">{_text(result.path, 0)}</p>'])


def view_page(view: TrialView) -> str:
    """Return the page of one trial: its state and why, its last report, its config."""
    row = view._facts
    title = f"<strong>{_text(view.trial_name)}</strong> &middot; {_text(view.status)}"
    parts = [f"<p>{title}</p>", _reason(row), _side_by_side({"last": _own(row.last_metrics or {})})]
    parts.append(_pairs("config", flatten(row.config)))
    return _page([*parts, f'<p style="opacity:0.7">{_text(view.path, 0)}</p>'])


# --- parts ---


def _page(parts: Iterable[str]) -> str:
    return f'<div class="sweep" style="color:inherit">{"".join(parts)}</div>'


def _counts(trials: Sequence[TrialRow]) -> str:
    counts = Counter(trial.status for trial in trials)
    words = ", ".join(f"{counts[status]} {status}" for status in _ORDER if counts[status])
    return f"{len(trials)} trial{'' if len(trials) == 1 else 's'}" + (f": {words}" if words else "")


def _hint(hint: str) -> str:
    return f"<br><i>{_text(hint, 0)}</i>" if hint else ""


def _best_line(best: Best) -> str:
    config = ", ".join(f"{_text(key)}={_value(value)}" for key, value in flatten(best.row.config).items())
    return (
        f"&#9733; best <strong>{_text(best.metric)} = {_value(best.value)}</strong> ({_text(best.mode)}, "
        f"scope=&#x27;last&#x27;: by the last report of each trial), trial {best.row.number:05d}: <code>{config}</code>"
    )


def _earlier_line(earlier: Best) -> str:
    return (
        f"at an earlier step {_text(earlier.metric)} = {_value(earlier.value)}, trial {earlier.row.number:05d} at step "
        f"{_value(earlier.step)}: <code>scope=&#x27;all&#x27;</code>"
    )


def _front_line(objectives: Objectives, count: int) -> str:
    return (
        f"&#9733; Pareto set by {_text(shown_objectives(objectives), 200)}: <strong>{count} "
        f"trial{'' if count == 1 else 's'}</strong> that no other beats, by their last reports: "
        "<code>get_pareto_trials()</code>"
    )


def _why_no_best(analysis: Experiment) -> str:
    if not analysis.default_metric or not analysis.default_mode:
        return "No metric was given, so none is best: get_best_result(metric, mode)."
    return f"No trial has reported a number under {analysis.default_metric!r} yet."


def _trial_table(trials: Sequence[TrialRow], first_columns: Sequence[str], best_ids: Collection[str]) -> str:
    """Return the table of the first trials; the best ones are among them wherever they stand."""
    if not trials:
        return ""
    best = set(best_ids)
    kept = [trial for trial in trials if trial.trial_id in best][:_MAX_ROWS]
    others = (trial for trial in trials if trial.trial_id not in best)
    shown = sorted([*kept, *islice(others, _MAX_ROWS - len(kept))], key=lambda trial: trial.number)
    reports = {trial.trial_id: _own(trial.last_metrics or {}, with_iteration=False) for trial in shown}
    metrics = dict.fromkeys(key for report in reports.values() for key in report)
    names = sorted(metrics, key=lambda key: key not in first_columns)
    params = dict.fromkeys(key for trial in shown for key in flatten(trial.config))
    columns = [*((name, False) for name in names), *((name, True) for name in params)]
    cut, columns = columns[_MAX_COLUMNS:], columns[:_MAX_COLUMNS]
    heads = ["", "trial", "state", "iter", *(f"config/{name}" if is_param else name for name, is_param in columns)]
    has_reasons = any(trial.reason for trial in shown)
    lines = [_row(_cell(head, "th") for head in [*heads, *(["reason"] if has_reasons else [])])]
    for trial in shown:
        is_best = trial.trial_id in best
        config, report = flatten(trial.config), reports[trial.trial_id]
        cells = [
            _cell("★" if is_best else "", title="best" if is_best else ""),
            _cell(f"{trial.number:05d}", title=trial.trial_id),
            _cell(trial.status),
            _cell((trial.last_metrics or {}).get("training_iteration")),
            *(_cell((config if is_param else report).get(name)) for name, is_param in columns),
        ]
        lines.append(_row([*cells, *([_cell(trial.reason)] if has_reasons else [])]))
    notes = []
    if len(trials) > len(shown):
        notes.append(f"{len(trials) - len(shown)} more trials: .get_dataframe()")
    if cut:
        notes.append(f"{len(cut)} more columns: {', '.join(name for name, _ in cut)}")
    return _table(lines) + "".join(f"<p>{_text(note, 300)}</p>" for note in notes)


def _side_by_side(reports: Mapping[str, Mapping[str, Any]]) -> str:
    keys = dict.fromkeys(key for report in reports.values() for key in report)
    if not keys:
        return "<p>nothing was reported yet</p>"
    lines = [_row([_cell("", "th"), *(_cell(name, "th") for name in reports)])]
    lines += [_row([_cell(key), *(_cell(report.get(key)) for report in reports.values())]) for key in keys]
    return _table(lines)


def _pairs(title: str, values: Mapping[str, Any]) -> str:
    if not values:
        return ""
    shown = ", ".join(f"{_text(key)}={_value(value)}" for key, value in values.items())
    return f"<p>{_text(title)}: <code>{shown}</code></p>"


def _reason(row: TrialRow) -> str:
    return f"<p><i>{_text(row.reason, 300)}</i></p>" if row.reason else ""


def _table(lines: Iterable[str]) -> str:
    style = "border-collapse:collapse;color:inherit;background:none"
    return f'<div style="overflow-x:auto"><table style="{style}">{"".join(lines)}</table></div>'


def _row(cells: Iterable[str]) -> str:
    return f'<tr style="background:none;color:inherit">{"".join(cells)}</tr>'


def _cell(value: Any, tag: str = "td", title: str = "") -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    hover = f' title="{_text(title)}"' if title else ""
    return f'<{tag}{hover} style="{_CELL}{"right" if is_number else "left"}">{_value(value)}</{tag}>'


def _own(metrics: Mapping[str, Any], *, with_iteration: bool = True) -> dict[str, Any]:
    kept = {"training_iteration", "time_total_s"} if with_iteration else set()
    return {key: value for key, value in flatten(metrics).items() if key not in AUTO_FILLED or key in kept}


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    if isinstance(value, Opaque):
        return _text(value.text)
    return _text(printed(value))


def _text(text: str, longest: int = _MAX_TEXT) -> str:
    """Return a text for a page: escaped, and cut when it is longer than `longest` (0: never)."""
    shown = text if not longest or len(text) <= longest else f"{text[: longest - 1]}…"
    return html.escape("".join(c if c.isprintable() else " " for c in shown))
