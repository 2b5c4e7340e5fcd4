"""The best trial of a recorded sweep, by the last reports; what had been better earlier; the Pareto set."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchers.pareto import pareto_front
from sweep.core.ranking import beats, best_of, rankable
from sweep.core.results import TrialResult, flatten
from sweep.record.reader import ExperimentReader, TrialRow

__all__ = [
    "AVERAGES",
    "SCOPES",
    "Best",
    "best_by_last",
    "best_reports",
    "better_earlier",
    "front_of",
    "metric_analysis",
    "objectives_front",
    "scores",
]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


AVERAGES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg": _mean,
    "last-5-avg": lambda values: _mean(values[-5:]),
    "last-10-avg": lambda values: _mean(values[-10:]),
}
SCOPES = ("last", *AVERAGES, "all")
# Numbers that say nothing about how good a trial is.
_NOT_ANALYSED = frozenset({"trial_id", "timestamp", "date", "pid", "hostname", "node_ip", "done", "experiment_tag"})


@dataclass(frozen=True)
class Best:
    """A trial and the report by which it is best; `step` is that report's."""

    row: TrialRow
    value: float
    step: Any
    metric: str
    mode: str


def scores(
    reader: ExperimentReader, metric: str, mode: str, scope: str, *, infinite: bool = False
) -> list[tuple[str, float]]:
    """Return (trial id, value) of each trial that has a number in `scope`, one of `SCOPES`, ordered by trial number.

    Args:
        infinite: let infinities be best; only `scope="all"` chooses among values here.
    """
    if scope == "last":
        return [(trial_id, value) for trial_id, _, value in reader.values(metric, last_only=True)]
    if scope == "all":
        found = {key: value for key, (_, value) in best_reports(reader, metric, mode, infinite=infinite).items()}
    else:
        series: dict[str, list[float]] = defaultdict(list)  # a million reports take 0.3 s, by pandas' groupby 0.7 s
        for trial_id, _, value in reader.values(metric):
            series[trial_id].append(value)
        found = {trial_id: AVERAGES[scope](values) for trial_id, values in series.items()}
    return [(row.trial_id, found[row.trial_id]) for row in reader.trials() if row.trial_id in found]


def metric_analysis(reader: ExperimentReader, trial_id: str) -> dict[str, dict[str, float]]:
    """Return max, min, last and the averages of each number that a trial has reported, by its flattened name.

    NaN is skipped by max and min and carries over into the averages.
    """
    series: dict[str, list[float]] = defaultdict(list)
    for row in reader.results(trial_id):
        for key, value in flatten(row.metrics).items():
            if key not in _NOT_ANALYSED and isinstance(value, (int, float)):
                series[key].append(value)
    return {
        key: {
            "max": max((v for v in values if v == v), default=math.nan),
            "min": min((v for v in values if v == v), default=math.nan),
            "last": values[-1],
            **{scope: average(values) for scope, average in AVERAGES.items()},
        }
        for key, values in series.items()
    }


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
    """Return the best report of all if it is better than that of `best_by_last`; None: nothing had been better."""
    if not metric or not mode:
        return None
    last, reports = best_by_last(reader, metric, mode), best_reports(reader, metric, mode)
    found = best_of(((row, reports[row.trial_id][1]) for row in reader.trials() if row.trial_id in reports), mode)
    if found is None or (last is not None and not beats(found[1], last.value, mode)):
        return None
    row, value = found
    report = reader.metrics_at({row.trial_id: reports[row.trial_id][0]})[row.trial_id]
    return Best(row, value, report.get("training_iteration"), metric, mode)


def best_reports(
    reader: ExperimentReader, metric: str, mode: str, *, infinite: bool = False, trial_id: str | None = None
) -> dict[str, tuple[int, float]]:
    """Return (`result.seq`, value) of the best report of each trial, or only the named one, that has a usable one."""
    best: dict[str, tuple[int, float]] = {}
    for owner, seq, given in reader.values(metric, trial_id=trial_id):
        value, known = rankable(given, infinite=infinite), best.get(owner)
        if value is not None and (known is None or beats(value, known[1], mode)):
            best[owner] = (seq, value)
    return best


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
