"""The trials of an experiment as rows that a page can sort and filter."""

from __future__ import annotations

from typing import Any

from sweep.core.literals import jsonable
from sweep.core.results import flatten, own_metrics
from sweep.core.values import printed, sound_text
from sweep.figures.attempts import last_nodes
from sweep.page.subject import Subject

MAX_COLUMNS = 200  # parameters and metrics that a page has
_MAX_TEXT = 300
_EXACT = 1 << 53  # larger whole numbers are no longer themselves in a browser


def trial_table(subject: Subject) -> tuple[list[list[str]], list[list[Any]]]:
    """Return [name, kind] of each column, and one row per trial, ordered by number.

    A kind is `trial`, `metric`, `parameter` or empty; a cell is a number, a text or None: NaN and infinities are texts.
    """
    trials = subject.reader.trials()
    last = [row.last_metrics or {} for row in trials]
    reports = [flatten(own_metrics(one)) for one in last]
    configs = [flatten(row.config) for row in trials]
    first = [name for name, _ in subject.objectives] or [subject.metric or ""]
    metrics = dict.fromkeys(key for report in reports for key in report)
    params = [*dict.fromkeys(key for config in configs for key in config)][:MAX_COLUMNS]
    ordered = sorted(metrics, key=lambda key: first.index(key) if key in first else len(first))
    kept = ordered[: MAX_COLUMNS - len(params)] or ordered[:10]
    names = ["name"] if any(row.name for row in trials) else []  # where trials were given names
    columns = [["trial", "trial"], *([name, ""] for name in (*names, "state", "step"))]
    columns += [[_text(key), "metric"] for key in kept]
    columns += [[_text(key), "parameter"] for key in params]
    places = last_nodes(subject.reader)
    columns += [[name, ""] for name in ("time_s", "attempts", *(["node"] if places else []), "reason")]
    rows = [
        [
            row.number,
            *(_text(row.trial_name) for _ in names),
            row.state,
            _plain(report.get("training_iteration")),
            *(_plain(own.get(key)) for key in kept),
            *(_plain(config.get(key)) for key in params),
            _plain(report.get("time_total_s")),
            row.attempt,
            *([places.get(row.trial_id, "")] if places else []),
            _text(row.reason),
        ]
        for row, report, own, config in zip(trials, last, reports, configs, strict=True)
    ]
    return columns, rows


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, short."""
    if type(value) is float and value == value:
        return float(f"{value:.7g}") if abs(value) != float("inf") else f"{value:f}"
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < _EXACT):
        return value
    return _text(jsonable(value))


def _text(value: Any) -> str:
    text = sound_text(printed(value))
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
