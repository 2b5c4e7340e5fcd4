"""How experiments, results and trials look in a notebook: tables and curves in the page's own colours, all escaped."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from sweep.core.ranking import rankable, shown_objectives
from sweep.core.results import flatten, own_metrics, without_index
from sweep.core.trial import STATES
from sweep.core.values import printed
from sweep.record.encoding import Opaque
from sweep.results.glance import config_to_paste, figures
from sweep.results.scopes import scores
from sweep.results.winners import Best, best_by_last, better_earlier, objectives_front

if TYPE_CHECKING:
    from sweep.record.rows import TrialRow
    from sweep.results.experiment import Experiment
    from sweep.results.views import Result, TrialView


_MAX_ROWS = 20
_MAX_COLUMNS = 14
_MAX_TEXT = 60
# Grey of half opacity is seen on white and on black; no other colour is set, so the page's own hold.
_LINE = "1px solid rgba(128,128,128,0.35)"
_CELL = (
    f"white-space:nowrap;padding:2px 10px 2px 0;border:0;border-bottom:{_LINE};color:inherit;background:none;"
    "text-align:"
)
_MORE = (
    "<p>more: figures <code>.plot</code>, a page of its own <code>.to_html()</code>, tables "
    "<code>.dataframe()</code></p>"
)


def analysis_page(analysis: Experiment) -> str:
    """Return the page of an experiment: what there is, which trial is best and its config, or which are the Pareto set
    of several objectives, a table of trials, their curves, and where there is more."""
    reader, metric, mode = analysis._reader, analysis.default_metric, analysis.default_mode
    trials = reader.trials()
    counts = Counter(trial.state for trial in trials)
    words = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    state_hint = reader.state_hint()
    hint = f"<br><i>{_text(state_hint, 0)}</i>" if state_hint else ""
    head = f"<strong>{_text(reader.name)}</strong> &middot; {_trials(len(trials))}{f': {words}' if words else ''}{hint}"
    objectives = analysis._objectives if not metric else ()
    best = None
    if objectives:
        front = objectives_front(reader)
        names, marked = [name for name, _ in objectives], [row.trial_id for row, _ in front]
        chosen = [
            f"&#9733; Pareto set by {_text(shown_objectives(objectives), 200)}: <strong>{_trials(len(front))}</strong> "
            "that no other beats, by their last reports: <code>get_pareto_trials()</code>"
        ] * bool(trials)
    else:
        best = best_by_last(reader, metric, mode)
        names, marked = [metric or ""], [] if best is None else [best.row.trial_id]
        chosen = _best_lines(analysis, best) if trials else []
    values = dict(scores(reader, metric, mode, "last")) if metric and mode else {}
    table = _trial_table(_ranked(trials, values, mode), names, marked)
    if best is not None:
        table = config_to_paste(without_index(best.row.config)) + table
    pictures = figures(reader, trials, metric, mode, values, marked) if metric and mode else ""
    return _page([head, *chosen], table + pictures + (_MORE if trials else ""), str(reader.root))


def result_page(result: Result) -> str:
    """Return the page of one result: why it was chosen, its last and its best report, its config."""
    row, best, nearest = result._facts, result._best_row(), result._best_checkpoint()
    checkpoint = result.checkpoint if nearest is None else nearest[0]
    choice = f" &middot; {_text(str(result.choice))}" if result.choice is not None else ""
    reports = {"last": row.last_metrics or {}} | ({"best": best.metrics} if best is not None else {})
    place = f"<p>checkpoint: <code>{_text(checkpoint.path, 0)}</code></p>" if checkpoint is not None else ""
    return _trial_page(row.trial_id, row, choice, reports, place, result.path)


def view_page(view: TrialView) -> str:
    """Return the page of one trial: its state and why, its last report, its config."""
    return _trial_page(view.trial_name, view._facts, "", {"last": view._facts.last_metrics or {}}, "", view.path)


# --- parts ---


def _page(head: Iterable[str], body: str, path: str, *, most: int = 0) -> str:
    lines = "".join(f"<p>{line}</p>" for line in head)
    foot = f'<p style="opacity:0.7">{_text(path, most)}</p>'
    return f'<div class="sweep" style="color:inherit">{lines}{body}{foot}</div>'


def _trial_page(
    name: str, row: TrialRow, choice: str, reports: Mapping[str, Mapping[str, Any]], place: str, path: str
) -> str:
    head = [f"<strong>{_text(name)}</strong> &middot; {row.state}{choice}"]
    if row.reason:
        head.append(f"<i>{_text(row.reason, 300)}</i>")
    own = {
        which: flatten(own_metrics(report, "training_iteration", "time_total_s")) for which, report in reports.items()
    }
    keys = dict.fromkeys(key for report in own.values() for key in report)
    rows = [[key, *(report.get(key) for report in own.values())] for key in keys]
    body = _table(["", *own], rows) if rows else "<p>nothing was reported yet</p>"
    config = f"<p>config: <code>{_pairs(row.config)}</code></p>" if flatten(row.config) else ""
    return _page(head, body + config + place, path)


def _best_lines(analysis: Experiment, best: Best | None) -> list[str]:
    """Return which trial is best, or why none is, and what had been better at an earlier step."""
    reader, metric, mode = analysis._reader, analysis.default_metric, analysis.default_mode
    earlier = better_earlier(reader, metric, mode)
    if best is not None:
        lines = [
            f"&#9733; best <strong>{_text(best.metric)} = {_value(best.value)}</strong> ({_text(best.mode)}, "
            f"scope=&#x27;last&#x27;: by the last report of each trial), trial {best.row.number:05d}"
        ]
    elif metric and mode:
        lines = [f"No trial has reported a number under {_text(repr(metric))} yet."]
    else:
        lines = [
            "No metric was given, so none is best: <code>.get_best_trial(metric, mode)</code>, of a ResultGrid "
            "<code>.get_best_result(metric, mode)</code>."
        ]
    if earlier is not None:
        lines.append(
            f"at an earlier step {_text(earlier.metric)} = {_value(earlier.value)}, trial {earlier.row.number:05d} "
            f"at step {_value(earlier.step)}: <code>scope=&#x27;all&#x27;</code>"
        )
    return lines


def _trial_table(trials: Sequence[TrialRow], first_columns: Sequence[str], best_ids: Collection[str]) -> str:
    """Return the table of the first trials; the best ones are among them wherever they stand."""
    if not trials:
        return ""
    best = set(best_ids)
    kept = [trial for trial in trials if trial.trial_id in best][:_MAX_ROWS]
    others = (trial for trial in trials if trial.trial_id not in best)
    shown = [*kept, *islice(others, _MAX_ROWS - len(kept))]
    found = [(flatten(own_metrics(trial.last_metrics or {})), flatten(trial.config)) for trial in shown]
    metrics = dict.fromkeys(key for report, _ in found for key in report)
    params = dict.fromkeys(key for _, config in found for key in config)
    columns = [(key, 0) for key in sorted(metrics, key=lambda key: key not in first_columns)]
    columns += [(key, 1) for key in params]
    cut, columns = columns[_MAX_COLUMNS:], columns[:_MAX_COLUMNS]
    reason = ["reason"] if any(trial.reason for trial in shown) else []
    rows = [
        [
            _Titled("★", "best") if trial.trial_id in best else "",
            _Titled(f"{trial.number:05d}", trial.trial_id),
            trial.state,
            (trial.last_metrics or {}).get("training_iteration"),
            *(values[which].get(key) for key, which in columns),
            *([trial.reason] if reason else []),
        ]
        for trial, values in zip(shown, found, strict=True)
    ]
    names = [f"config/{key}" if which and key in metrics else key for key, which in columns]
    heads = ["", "trial", "state", "iter", *names, *reason]
    notes = []
    if len(trials) > len(shown):
        notes.append(f"{len(trials) - len(shown)} more trials: .dataframe()")
    if cut:
        notes.append(f"{len(cut)} more columns: {', '.join(key for key, _ in cut)}")
    return _table(heads, rows) + "".join(f"<p>{_text(note, 300)}</p>" for note in notes)


def _ranked(trials: Sequence[TrialRow], values: Mapping[str, float], mode: str | None) -> list[TrialRow]:
    """Return the trials that have a number with the best first, then the others, both in the order of their numbers."""
    known = {trial_id: value for trial_id, value in values.items() if rankable(value) is not None}
    first = [trial for trial in trials if trial.trial_id in known]
    first.sort(key=lambda trial: known[trial.trial_id], reverse=mode == "max")
    return [*first, *(trial for trial in trials if trial.trial_id not in known)]


class _Titled(str):
    """A cell that says more when the mouse is over it."""

    hover: str

    def __new__(cls, shown: str, hover: str) -> _Titled:
        cell = super().__new__(cls, shown)
        cell.hover = hover
        return cell


def _table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    lines = ["".join(_cell(head, "th") for head in heads), *("".join(map(_cell, row)) for row in rows)]
    body = "".join(f'<tr style="background:none;color:inherit">{line}</tr>' for line in lines)
    style = "border-collapse:collapse;color:inherit;background:none"
    return f'<div style="overflow-x:auto"><table style="{style}">{body}</table></div>'


def _cell(value: Any, tag: str = "td") -> str:
    side = "right" if isinstance(value, (int, float)) and not isinstance(value, bool) else "left"
    hover = f' title="{_text(value.hover)}"' if isinstance(value, _Titled) else ""
    return f'<{tag}{hover} style="{_CELL}{side}">{_value(value)}</{tag}>'


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


def _pairs(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{_text(key)}={_value(value)}" for key, value in flatten(config).items())


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return _text(value.text if isinstance(value, Opaque) else printed(value))


def _text(text: str, longest: int = _MAX_TEXT) -> str:
    """Return a text for a page: escaped, and cut when it is longer than `longest` (0: never)."""
    shown = text if not longest or len(text) <= longest else f"{text[: longest - 1]}…"
    return html.escape("".join(c if c.isprintable() else " " for c in shown))
