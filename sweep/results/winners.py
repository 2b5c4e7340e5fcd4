"""The best trial of a recorded sweep, by the last reports; what had been better earlier; the Pareto set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from searchers.pareto import pareto_front
from sweep.core.ranking import beats, best_of, shown_objectives
from sweep.core.results import TrialResult
from sweep.core.trial import STATES
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow
from sweep.results.scopes import best_reports, repeats, scores

_MAX_SHOWN = 5  # trials of a Pareto set


@dataclass(frozen=True)
class Best:
    """A trial and the report by which it is best; `step` is that report's."""

    row: TrialRow
    value: float
    step: Any
    metric: str
    mode: str


def best_by_last(reader: ExperimentReader, metric: str | None, mode: str | None) -> Best | None:
    """Return the best trial by last reports, the first of equals; None: no metric, or no last report with a number."""
    if not metric or not mode:
        return None
    found = best_of(scores(reader, metric, mode, "last"), mode)
    if found is None:
        return None
    row = reader.snapshot().by_id[found[0]]
    return Best(row, found[1], (row.last_metrics or {}).get("training_iteration"), metric, mode)


def better_earlier(reader: ExperimentReader, metric: str | None, mode: str | None) -> Best | None:
    """Return the best report of all if it is better than that of `best_by_last`; None: nothing had been better, or
    trials were repeated, of which one may have been lucky."""
    if not metric or not mode or repeats(reader):
        return None
    last, reports = best_by_last(reader, metric, mode), best_reports(reader, metric, mode)
    found = best_of(((row, reports[row.trial_id][1]) for row in reader.trials() if row.trial_id in reports), mode)
    if found is None or (last is not None and not beats(found[1], last.value, mode)):
        return None
    row, value = found
    report = reader.metrics_at({row.trial_id: reports[row.trial_id][0]})[row.trial_id]
    return Best(row, value, report.get("training_iteration"), metric, mode)


def front_of(
    reader: ExperimentReader, metrics: Sequence[str], modes: Sequence[str]
) -> list[tuple[TrialRow, list[Any]]]:
    """Return the Pareto set of the last reports: (trial, its value of each objective), ordered by number."""
    rows = [row for row in reader.trials() if row.last_seq is not None]
    reports = (TrialResult({**(row.last_metrics or {}), "config": row.config}) for row in rows)
    points = [[report.get(name) for name in metrics] for report in reports]
    return [(rows[i], points[i]) for i in pareto_front(points, modes)]


def objectives_front(reader: ExperimentReader) -> list[tuple[TrialRow, dict[str, Any]]]:
    """Return the Pareto set by the sweep's own objectives: (trial, what it reached in each), ordered by number."""
    if not reader.objectives:
        return []
    metrics, modes = zip(*reader.objectives, strict=True)
    return [
        (row, {name: value for name, value, mode in zip(metrics, values, modes, strict=True) if mode != "obs"})
        for row, values in front_of(reader, metrics, modes)
    ]


def shown_counts(reader: ExperimentReader) -> str:
    """Return how many trials are in each state: `1 waiting, 2 finished`; empty: there are none."""
    counts = Counter(row.state for row in reader.trials())
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])


def about_best(reader: ExperimentReader, metric: str | None, mode: str | None, best: Best | None) -> list[str]:
    """Say which trial is `best_by_last`, and what had been better at an earlier step; of several objectives
    which are the Pareto set; why none is."""
    if reader.objectives and not metric:
        front = objectives_front(reader)
        shown = [f"{row.number:05d} ({', '.join(f'{one:.6g}' for one in values.values())})" for row, values in front]
        listed = ", ".join([*shown[:_MAX_SHOWN], *(["..."] if len(front) > _MAX_SHOWN else [])])
        by = shown_objectives(reader.objectives)
        return [f"Pareto set by {by}: {len(front)} trials, get_pareto_trials(): {listed}"]
    if not metric or not mode:
        return ["no metric given, so none is best: get_best_trial(metric, mode), get_best_result(metric, mode)"]
    earlier = better_earlier(reader, metric, mode)
    if best is None and earlier is None:
        return [f"no trial has reported a number under {metric!r} yet"]
    lines = []
    if best is not None:
        scope = "scope='last': by the last report of each trial"
        lines.append(f"best {metric}={best.value:.6g} ({mode}, trial {best.row.number:05d}, {scope})")
    if earlier is not None:
        where = f"trial {earlier.row.number:05d} at step {earlier.step}"
        lines.append(f"at an earlier step {metric}={earlier.value:.6g} ({where}, scope='all')")
    return lines
