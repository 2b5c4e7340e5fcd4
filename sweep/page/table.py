"""The trials of an experiment as rows that a page can sort and filter; unchanged ones are not made again."""

from __future__ import annotations

from typing import Any

from sweep.core.literals import jsonable
from sweep.core.results import flatten, own_metrics
from sweep.core.values import printed, sound_text
from sweep.page.subject import Subject
from sweep.record.rows import TrialRow

MAX_COLUMNS = 200  # parameters and metrics that a page has
_MAX_TEXT = 300
_EXACT = 1 << 53  # larger whole numbers are no longer themselves in a browser

_FIXED = ("trial", "state", "step")
_NAMED = ("trial", "name", "state", "step")  # where trials were given names
_TAIL = ("time_s", "attempts", "reason")


class TrialTable:
    """One row per trial, ordered by number.

    Attributes:
        columns: [name, kind] of each column; kind is `trial`, `metric`, `parameter` or empty.
        rows: cells in the order of the columns: numbers, texts, None; NaN and infinities are texts.
    """

    def __init__(self) -> None:
        self.columns: list[list[str]] = []
        self.rows: list[list[Any]] = []
        self._cells: dict[str, tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]] = {}

    def update(self, subject: Subject) -> list[int]:
        """Read what is new; return the indices of the rows that changed, all where the columns did."""
        trials = subject.reader.trials()
        found = [self._cells_of(row) for row in trials]
        head = _NAMED if any(row.name for row in trials) else _FIXED
        metrics = dict.fromkeys(key for _, _, report, _ in found for key in report)
        params = dict.fromkeys(key for _, _, _, config in found for key in config)
        first = [name for name, _ in subject.objectives] or [subject.metric or ""]
        ordered = sorted(metrics, key=lambda key: first.index(key) if key in first else len(first))
        kept_params = list(params)[:MAX_COLUMNS]
        kept_metrics = ordered[: MAX_COLUMNS - len(kept_params)] or ordered[:10]
        columns = [[name, "trial" if name == "trial" else ""] for name in head]
        columns += [[_text(key), "metric"] for key in kept_metrics]
        columns += [[_text(key), "parameter"] for key in kept_params]
        columns += [[name, ""] for name in _TAIL]
        rows = [
            [
                *(fixed[name] for name in head),
                *(report.get(key) for key in kept_metrics),
                *(config.get(key) for key in kept_params),
                *(fixed[name] for name in _TAIL),
            ]
            for _, fixed, report, config in found
        ]
        before, is_same = self.rows, columns == self.columns
        self.columns, self.rows = columns, rows
        return [i for i, row in enumerate(rows) if not is_same or i >= len(before) or before[i] != row]

    def _cells_of(self, row: TrialRow) -> tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]:
        key = (row.status, row.reason, row.attempt, row.last_seq, row.config_text)
        known = self._cells.get(row.trial_id)
        if known is not None and known[0] == key:
            return known
        last = row.last_metrics or {}
        fixed = {
            "trial": row.number,
            "name": _text(row.trial_name),
            "state": row.state,
            "step": _plain(last.get("training_iteration")),
            "time_s": _plain(last.get("time_total_s")),
            "attempts": row.attempt,
            "reason": _text(row.reason),
        }
        report = {name: _plain(value) for name, value in flatten(own_metrics(last)).items()}
        config = {name: _plain(value) for name, value in flatten(row.config).items()}
        self._cells[row.trial_id] = made = (key, fixed, report, config)
        return made


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
