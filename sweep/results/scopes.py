"""What a metric has been over the reports of a trial: its last value, its averages, its best."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

from sweep.core.ranking import beats, rankable
from sweep.core.results import TRIAL_INDEX, flatten
from sweep.record.reader import ExperimentReader


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
    """Return (trial id, value) of each trial that has a number in `scope`, one of `SCOPES`, ordered by trial number.

    Args:
        infinite: let infinities be best; only `scope="all"` chooses among values here.

    Each of the trials that a `Repeater` has made of one suggestion has the mean of them all.
    """
    if scope == "last":
        return _of_repeats(reader, [(name, value) for name, _, value in reader.values(metric, last_only=True)])
    if scope == "all":
        found = {key: value for key, (_, value) in best_reports(reader, metric, mode, infinite=infinite).items()}
    else:
        series: dict[str, list[float]] = defaultdict(list)  # a million reports take 0.3 s, by pandas' groupby 0.7 s
        for trial_id, _, value in reader.values(metric):
            series[trial_id].append(value)
        found = {trial_id: AVERAGES[scope](values) for trial_id, values in series.items()}
    return _of_repeats(
        reader, [(row.trial_id, found[row.trial_id]) for row in reader.trials() if row.trial_id in found]
    )


def repeats(reader: ExperimentReader) -> dict[str, int]:
    """Return the number of the first trial of its suggestion for each trial that is one of several repeats."""
    num_repeats = reader.meta.get("num_repeats") or 1
    return {
        row.trial_id: row.number - row.config.get(TRIAL_INDEX, row.number % num_repeats)
        for row in reader.trials()
        if num_repeats > 1 or TRIAL_INDEX in row.config
    }


def _of_repeats(reader: ExperimentReader, found: list[tuple[str, float]]) -> list[tuple[str, float]]:
    first = repeats(reader)
    if not first:
        return found
    groups: dict[int, list[float]] = defaultdict(list)
    for trial_id, value in found:
        if trial_id in first and (number := rankable(value)) is not None:
            groups[first[trial_id]].append(number)
    return [(name, _mean(some) if (some := groups.get(first.get(name, -1))) else value) for name, value in found]


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


def metric_n_steps(reader: ExperimentReader, trial_id: str) -> dict[str, dict[str, deque[float]]]:
    """Return the last 5 and the last 10 values of each number that a trial has reported, under "5" and "10"."""
    series = _series(reader, trial_id)
    return {key: {str(n): deque(values, maxlen=n) for n in (5, 10)} for key, values in series.items()}


def _series(reader: ExperimentReader, trial_id: str) -> Mapping[str, list[float]]:
    series: dict[str, list[float]] = defaultdict(list)
    for row in reader.results(trial_id):
        for key, value in flatten(row.metrics).items():
            if key not in _NOT_ANALYSED and isinstance(value, (int, float)):
                series[key].append(value)
    return series


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
