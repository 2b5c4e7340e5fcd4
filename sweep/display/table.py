"""The table of trials that reporters show: chosen columns and labels, the best first if wanted, and the errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.callbacks.observed import ObservedTrial
from sweep.core.ranking import rankable
from sweep.core.results import AUTO_FILLED, flatten
from sweep.core.trial import Status, Trial, shown_status
from sweep.display.formats import aligned, clean, duration, fit, text, width_of

# Result keys that are shown when they are reported, and how they are called.
DEFAULT_METRICS: Mapping[str, str] = {
    "mean_accuracy": "acc",
    "mean_loss": "loss",
    "training_iteration": "iter",
    "time_total_s": "total time (s)",
    "timesteps_total": "ts",
    "episode_reward_mean": "reward",
}
_ORDER = [
    Status.RUNNING,
    Status.STARTING,
    Status.STOPPING,
    Status.PAUSED,
    Status.PENDING,
    Status.TERMINATED,
    Status.ERROR,
]


@dataclass
class Columns:
    """What tables show, as `CLIReporter` was asked: keys of results and of configs with their labels, and limits.

    Attributes:
        parameters: None: those that differ between trials.
        is_inferring: no metrics were chosen, so `infer_limit` of the user's are added.
        is_sorted: the best by their last reports come first.
    """

    metrics: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_METRICS))
    parameters: dict[str, str] | None = None
    max_rows: int = 20
    max_error_rows: int = 20
    max_length: int = 20
    infer_limit: int = 3
    metric: str = ""
    mode: str = "max"
    is_sorted: bool = False
    is_inferring: bool = True


def draw_table(trials: Sequence[Trial | ObservedTrial], columns: Columns, varying: Iterable[str]) -> list[str]:
    """Return heading and rows, aligned; then a line for what is left out.

    Args:
        varying: names of the parameters that differ between trials.
    """
    if not trials:
        return []
    shown = _chosen(trials, columns)
    metrics = _metrics(trials, columns)
    parameters = columns.parameters if columns.parameters is not None else {name: name for name in varying}
    rows = [["trial name", "status", *map(clean, parameters.values()), *map(clean, metrics.values())]]
    for trial in shown:
        flat, last = flatten(trial.config), _last(trial)
        values = [flat.get(name) for name in parameters] + [_metric(last, name) for name in metrics]
        cells = ["" if value is None else fit(text(value), columns.max_length) for value in values]
        rows.append([_name_of(trial), shown_status(trial.status), *cells])
    lines = _ruled(rows, range(2, len(rows[0])))
    if len(trials) > len(shown):
        kept = {trial.id for trial in shown}
        counts = Counter(shown_status(trial.status) for trial in trials if trial.id not in kept)
        which = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        lines.append(f"... {len(trials) - len(shown)} more trials not shown ({which})")
    return lines


def draw_errors(trials: Sequence[Trial | ObservedTrial], columns: Columns, root: str) -> list[str]:
    """Return a table of the trials that failed, with how often and the file that says why."""
    failed = [trial for trial in trials if trial.status is Status.ERROR or trial.failures]
    if not failed:
        return []
    shown = failed[: columns.max_error_rows]
    rows = [["trial name", "# failures", "error file"]]
    rows += [[_name_of(trial), str(max(1, trial.failures)), f"{root}/{trial.id}/error.txt"] for trial in shown]
    more = [f"... {len(failed) - len(shown)} more"] if len(failed) > len(shown) else []
    return [f"Number of errored trials: {len(failed)}", *_ruled(rows), *more]


def _ruled(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return a table with a rule below its heading."""
    rule = ["-" * max(map(width_of, column)) for column in zip(*rows, strict=True)]
    return aligned([rows[0], rule, *rows[1:]], right)


def _name_of(trial: Trial | ObservedTrial) -> str:
    return clean(trial if isinstance(trial, ObservedTrial) else trial.id)


def _chosen(trials: Sequence[Trial | ObservedTrial], columns: Columns) -> list[Trial | ObservedTrial]:
    """Return the trials to show: those that run first, the best by their last reports first when sorted."""
    if columns.is_sorted and columns.metric:
        ranked = [(rankable(_last(trial).get(columns.metric)), trial) for trial in trials]
        sign = -1 if columns.mode == "max" else 1
        ranked.sort(key=lambda pair: (pair[0] is None, 0 if pair[0] is None else sign * pair[0]))
        return [trial for _, trial in ranked[: columns.max_rows]]
    return sorted(trials, key=lambda trial: (_ORDER.index(trial.status), trial.number))[: columns.max_rows]


def _last(trial: Trial | ObservedTrial) -> Mapping[str, Any]:
    return {} if trial.last_result is None else trial.last_result


def _metrics(trials: Sequence[Trial | ObservedTrial], columns: Columns) -> dict[str, str]:
    """Return the metric columns that some trial has a value for; without a choice some of the user's own, too."""
    reported: dict[str, None] = {}
    for trial in trials[-200:]:
        if trial.last_result is not None:
            for key, value in flatten(trial.last_result).items():
                if isinstance(value, (int, float, str)):
                    reported[key] = None
    found = {name: label for name, label in columns.metrics.items() if name in reported}
    if columns.is_inferring:
        own = [name for name in reported if name not in AUTO_FILLED and name not in found]
        if columns.metric in own:
            own.insert(0, own.pop(own.index(columns.metric)))
        found |= {name: name for name in own[: columns.infer_limit]}
    return found


def _metric(last: Mapping[str, Any], name: str) -> Any:
    value = last.get(name)
    return duration(value) if name == "time_total_s" and isinstance(value, (int, float)) else value
