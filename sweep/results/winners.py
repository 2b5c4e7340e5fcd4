"""Which trial of a recorded sweep is best: what a metric has been over its reports, and the Pareto set."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchers.errors import nearest
from searchers.pareto import pareto_front
from sweep import checks
from sweep.core.ranking import beats, best_of, rankable, shown_objectives
from sweep.core.results import AUTO_FILLED, TRIAL_INDEX, TrialResult, flatten
from sweep.core.trial import STATES
from sweep.errors import ConfigError, MetricError
from sweep.record.reader import ExperimentReader
from sweep.record.rows import TrialRow

_MAX_SHOWN = 5  # trials of a Pareto set


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


def scores(
    reader: ExperimentReader, metric: str, mode: str, scope: str, *, infinite: bool = False
) -> list[tuple[str, float]]:
    """Return (trial id, value) of each trial that has a number in `scope`, one of `SCOPES`, ordered by trial number;
    each of the trials that a `Repeater` has made of one suggestion has the mean of them all. `infinite`: infinities may
    be the best report."""
    if scope == "last":
        found = reader.last_values(metric)
    elif scope == "all":
        found = {name: value for name, (_, value) in best_reports(reader, metric, mode, infinite=infinite).items()}
    else:
        series: dict[str, list[float]] = defaultdict(list)
        for trial_id, _, value in reader.values(metric):
            series[trial_id].append(value)
        found = {trial_id: AVERAGES[scope](values) for trial_id, values in series.items()}
    first, groups = repeats(reader), defaultdict(list)
    for trial_id, value in found.items():
        if trial_id in first and (number := rankable(value)) is not None:
            groups[first[trial_id]].append(number)
    means = {trial_id: _mean(groups[number]) for trial_id, number in first.items() if number in groups}
    return [
        (row.trial_id, means.get(row.trial_id, found[row.trial_id])) for row in reader.trials() if row.trial_id in found
    ]


def repeats(reader: ExperimentReader) -> dict[str, int]:
    """Return the number of the first trial of its suggestion for each trial that is one of several repeats."""
    num_repeats = reader.meta.get("num_repeats") or 1
    return {
        row.trial_id: row.number - row.config.get(TRIAL_INDEX, row.number % num_repeats)
        for row in reader.trials()
        if num_repeats > 1 or TRIAL_INDEX in row.config
    }


def best_reports(
    reader: ExperimentReader, metric: str, mode: str, *, infinite: bool = False, trial_id: str | None = None
) -> dict[str, tuple[int, float]]:
    """Return (`result.seq`, value) of the best report of each trial, or only the named one, that has a usable one."""
    values: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for owner, seq, value in reader.values(metric, trial_id):
        values[owner].append((seq, value))
    found = {owner: best_of(pairs, mode, infinite=infinite) for owner, pairs in values.items()}
    return {owner: best for owner, best in found.items() if best is not None}


def known_objective(metric: str | None, mode: str | None) -> tuple[str, str]:
    """Return the two, or raise a ConfigError where one of them is not known, or the mode is not min or max."""
    if metric and mode:
        return metric, checks.mode(mode)
    missing = "mode is" if metric else "metric is" if mode else "metric and mode are"
    raise ConfigError(
        f"no {missing} known; give metric='...' and mode='min' or 'max' here or to the run; on the command line "
        "--metric and --goal."
    )


def no_number(reader: ExperimentReader, *metrics: str) -> MetricError:
    """Return the error that no trial has numbers by which it could be best, and what may be meant."""
    names = reader.metric_names()
    unknown = [metric for metric in metrics if metric not in names and metric not in AUTO_FILLED]
    known = nearest(unknown[0], names) if unknown else "All that was reported is NaN, infinite or no number."
    shown = " and ".join(map(repr, metrics))
    why = known if names else "Nothing was reported yet."
    return MetricError(f"no trial of {reader.name} has a usable number under {shown}. {why}")


def metric_n_steps(reader: ExperimentReader, trial_id: str) -> dict[str, dict[str, deque[float]]]:
    """Return the last 5 and the last 10 values of each number that a trial has reported, under "5" and "10"."""
    series = _series(reader, trial_id).items()
    return {key: {str(n): deque(values, maxlen=n) for n in (5, 10)} for key, values in series}


def metric_analysis(reader: ExperimentReader, trial_id: str) -> dict[str, dict[str, float]]:
    """Return max, min, last and the averages of each number that a trial has reported, by its flattened name.

    NaN is skipped by max and min and carries over into the averages.
    """
    return {
        key: {
            "max": max((v for v in values if v == v), default=math.nan),
            "min": min((v for v in values if v == v), default=math.nan),
            "last": values[-1],
            **{scope: average(values) for scope, average in AVERAGES.items()},
        }
        for key, values in _series(reader, trial_id).items()
    }


def _series(reader: ExperimentReader, trial_id: str) -> Mapping[str, list[float]]:
    series: dict[str, list[float]] = defaultdict(list)
    for row in reader.results(trial_id):
        for key, value in flatten(row.metrics).items():
            if key not in _NOT_ANALYSED and isinstance(value, (int, float)):
                series[key].append(value)
    return series


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
    report = reader.reports_at({row.trial_id: reports[row.trial_id][0]})[row.trial_id].metrics
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
    known = [(name, mode) for name, mode in reader.objectives if mode != "obs"]
    names, modes = [name for name, _ in known], [mode for _, mode in known]
    return (
        [(row, dict(zip(names, values, strict=True))) for row, values in front_of(reader, names, modes)]
        if known
        else []
    )


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
