"""What a notebook shows of an experiment at a glance: the winner's config to be pasted, curves, and the history."""

from __future__ import annotations

import html
import math
import pprint
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sweep.core.values import printed
from sweep.display.svg import Curve, best_so_far, learning_curves
from sweep.record.encoding import Opaque
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

_MAX_CURVES = 30
_MAX_REPORTS = 50_000  # read for one page: a tenth of a second
_PRE = (
    "margin:0.3em 0;padding:0.4em 0.6em;border-left:3px solid rgba(128,128,128,0.35);background:none;color:inherit;"
    "max-height:16em;overflow:auto;white-space:pre"
)


def config_to_paste(config: Mapping[str, Any]) -> str:
    """Return a config as a block of Python to paste; empty: there is none."""
    return f'<pre style="{_PRE}">{html.escape(as_python(config))}</pre>' if config else ""


def as_python(config: Mapping[str, Any]) -> str:
    """Return a config as Python reads it; what was stored as a pickle is a text, NaN is `float('nan')`."""
    try:
        return pprint.pformat(_plain(config), width=100, sort_dicts=False)
    except ValueError:  # a whole number beyond what Python prints
        return printed(config)


def figures(
    reader: ExperimentReader,
    trials: Sequence[TrialRow],
    metric: str,
    mode: str,
    last: Mapping[str, float],
    best_ids: Collection[str],
) -> str:
    """Return the learning curves of some trials, the best among them, and what each trial reached in their order.

    Args:
        last: the trials' last values, by id.
    """
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


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else [*map(_plain, value)]
    if isinstance(value, float) and not math.isfinite(value):
        return _Infinite(value)
    return value.text if isinstance(value, Opaque) else value


class _Infinite(float):
    """A number that Python reads only as a call."""

    def __repr__(self) -> str:
        return f"float('{float(self)}')"
