"""Recorded learning curves: what the trials of an experiment or a table reported, to be simulated under other rules."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from searchers.base import EXHAUSTED, Config, Searcher, Signal
from sweep.core.history import History
from sweep.core.messages import Exit, ExitKind, NodesChanged, Reported
from sweep.core.resources import Node, Resources
from sweep.core.results import TRIAL_INDEX, flatten, unflatten
from sweep.core.trial import Cause, Trial
from sweep.engines.simulator import Point
from sweep.errors import ConfigError, ExperimentError, UserCodeError, refuse_unknown
from sweep.record.db import understood
from sweep.record.facts import read_facts
from sweep.record.layout import ExperimentLayout
from sweep.record.reader import ExperimentReader

if TYPE_CHECKING:
    import pandas as pd


# What the sweep fills in by itself, anew in every simulation.
_REFILLED = ("time_total_s", "time_since_restore", "iterations_since_restore", "timestamp")
_NO_FAILURES = (
    None,
    *(ExitKind.FINISHED, ExitKind.STOPPED, ExitKind.LOST, ExitKind.NODE_LOST, ExitKind.DAMAGED, ExitKind.NEEDS_MORE),
)


class RecordedFailure(UserCodeError):
    """What a simulated trial fails with where the recorded one failed."""


@dataclass(frozen=True, slots=True)
class RecordedCurve:
    """What one trial reported.

    Attributes:
        points: in order, without gaps.
        is_cut: it was stopped before it reached `max_t` or a bound of `stop`, so what it would have reported afterwards
            is unknown; in a simulation it ends there.
        error: what it failed with after its last point; empty: it did not fail.
        resources: what it asked for; None: not known.
    """

    trial_id: str
    config: Mapping[str, Any]
    points: tuple[Point, ...]
    is_cut: bool = False
    error: str = ""
    resources: Resources | None = None


@refuse_unknown()
class Curves:
    """Recorded curves as what simulated trials do: a curve for `simulate`, and the configs that go with it.

    A config that was not recorded, which a searcher may propose, gets the curve of the nearest one that was: numbers
    are compared on their recorded range (its logarithm where it spans more than two decades), other values are the
    same or not. `num_nearest` counts those.

    Args:
        curves: at least one.
        metric, mode: what was optimised; None: not known.
        can_save_on_demand: the trials can be saved whenever a scheduler wants, as class trainables can.
        nodes: the machines that they ran on; None: not known.
    """

    def __init__(
        self,
        curves: Sequence[RecordedCurve],
        *,
        metric: str | None = None,
        mode: str | None = None,
        can_save_on_demand: bool = False,
        nodes: Sequence[Node] | None = None,
    ) -> None:
        self.curves = tuple(curves)
        self.metric, self.mode = metric, mode
        self.can_save_on_demand = can_save_on_demand
        self.nodes = nodes
        self.num_nearest = 0
        if not any(curve.points for curve in self.curves):
            raise ExperimentError("there is no recorded curve: no trial has reported anything.")
        self._by_config = {_key(curve.config): curve for curve in reversed(self.curves)}
        self._scale: _Scale | None = None

    @classmethod
    def from_experiment(cls, path: str | os.PathLike[str], *, trust: bool = False) -> Curves:
        """Return the curves of an experiment, running or ended.

        A trial that was started again continues from its checkpoint; what was repeated counts once.

        Args:
            trust: load config values that were stored as pickles, which runs code from the record; else they stay what
                they print like.

        Raises:
            ExperimentError: there is no such experiment, nothing was reported, or a scheduler changed configs on the
                way, so that curves do not belong to one config.
        """
        layout = ExperimentLayout(Path(path))
        history, nodes = History(), None
        points: dict[str, dict[int, Point]] = defaultdict(dict)  # by the number of the report
        with understood(layout.database):
            for fact in read_facts(layout.database, trust=trust):
                history.add(fact)
                match fact.event:
                    case Reported(trial_id, _, _, metrics, checkpoint) if fact.metrics is not None:
                        seconds = float(metrics.get("time_this_iter_s", 0.0))
                        point = _point(seconds, dict(fact.metrics), has_checkpoint=checkpoint is not None)
                        points[trial_id][history.trials[trial_id].count] = point
                    case NodesChanged(found) if len(found) >= len(nodes or ()):
                        nodes = found  # those of the time when most of them were there
        exits, asked = _told(history, layout.root)
        reader = ExperimentReader(layout.root)
        meta, reached = reader.meta, {row.trial_id for row in reader.trials() if row.cause == Cause.REACHED}
        curves = [
            _curve(trial, points[trial.id], exits.get(trial.id), asked.get(trial.id), has_reached=trial.id in reached)
            for trial in history.trials.values()
        ]
        metric, mode = meta.get("metric") or None, meta.get("mode") or None
        return cls(curves, metric=metric, mode=mode, can_save_on_demand=history.plan.can_save_on_demand, nodes=nodes)

    @classmethod
    def from_dataframe(
        cls,
        frame: pd.DataFrame,
        *,
        trial_id: str = "trial_id",
        seconds: str = "time_this_iter_s",
        metric: str | None = None,
        mode: str | None = None,
    ) -> Curves:
        """Return the curves of a table with one row per report, in the order in which each trial made them.

        Args:
            frame: columns `config/x` hold the config, `trial_id` tells the trials apart, all others are reported.
            seconds: column with the seconds that each report took; 1 second each where there is none.

        Raises:
            ConfigError: a column is missing.
        """
        names = [str(name) for name in frame.columns]
        configs = [name for name in names if name.startswith("config/")]
        for name, what in ((trial_id, trial_id in names), ("config/...", configs)):
            if not what:
                raise ConfigError(f"the table has no column {name}; it has {', '.join(names)}.")
        drafts: dict[str, tuple[Config, list[Point]]] = {}
        for row in frame.to_dict("records"):
            metrics = {str(key): value for key, value in row.items() if key not in (trial_id, *configs)}
            metrics = {key: value for key, value in metrics.items() if key == metric or not _is_missing(value)}
            draft = drafts.get(str(row[trial_id]))
            if draft is None:
                config = unflatten({name[7:]: row[name] for name in configs if not _is_missing(row[name])})
                draft = drafts[str(row[trial_id])] = config, []
            draft[1].append(_point(float(metrics.pop(seconds, 1.0)), metrics))
        curves = [RecordedCurve(name, config, tuple(points)) for name, (config, points) in drafts.items()]
        return cls(curves, metric=metric, mode=mode, can_save_on_demand=True)

    @property
    def seconds(self) -> float:
        """What all recorded trials spent up to their reports, summed."""
        return sum(point.seconds for curve in self.curves for point in curve.points)

    @property
    def num_cut(self) -> int:
        """How many curves end because their trial was stopped: what follows in them is unknown."""
        return sum(curve.is_cut for curve in self.curves)

    def find(self, config: Mapping[str, Any]) -> RecordedCurve:
        """Return the curve of a config, or of the nearest that was recorded."""
        found = self._by_config.get(_key(config))
        if found is not None:
            return found
        self.num_nearest += 1
        if self._scale is None:
            self._scale = _Scale([curve.config for curve in self.curves])
        return self.curves[self._scale.nearest(config)]

    def __call__(self, config: Mapping[str, Any], count: int) -> Iterator[Point]:
        """Yield what a trial with that config reports after its first `count` reports."""
        curve = self.find(config)
        yield from curve.points[count:]
        if curve.error:
            raise RecordedFailure(curve.error)

    def request_of(self, config: Mapping[str, Any]) -> Resources:
        """Return what the trial with that config asked for; 1 CPU where that is not known."""
        found = self._by_config.get(_key(config))
        return found.resources if found is not None and found.resources is not None else Resources()

    def searcher(self) -> Searcher:
        """Return a searcher that proposes the recorded configs, in their order."""
        return InOrder([curve.config for curve in self.curves])


class InOrder(Searcher):
    """Propose given configs, then nothing more."""

    is_adaptive = False

    def __init__(self, configs: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self._configs = list(configs)
        self._next = 0

    def num_trials(self, num_samples: int | None) -> int | None:
        number = len(self._configs)
        return number if num_samples is None else min(number, num_samples)

    def suggest(self, trial_id: str) -> Config | Signal:
        if self._next >= len(self._configs):
            return EXHAUSTED
        self._next += 1
        return dict(self._configs[self._next - 1])


class _Scale:
    """Distances between configs."""

    def __init__(self, configs: Sequence[Mapping[str, Any]]) -> None:
        self._flat = [flatten(config) for config in configs]
        self._ranges: dict[str, tuple[float, float, bool]] = {}  # of numeric paths: low, high, is_log
        for path in {path for one in self._flat for path in one}:
            values = [one[path] for one in self._flat if path in one]
            if all(map(_is_number, values)):
                low, high = min(values), max(values)
                self._ranges[path] = low, high, low > 0 and high / low > 100

    def nearest(self, config: Mapping[str, Any]) -> int:
        """Return the index of the nearest config; the first of those equally near."""
        wanted, paths = flatten(config), {path: None for one in self._flat for path in one}
        paths |= dict.fromkeys(wanted)

        def distance(index: int) -> float:
            one = self._flat[index]
            return sum(self._apart(path, wanted.get(path), one.get(path)) for path in paths)

        return min(range(len(self._flat)), key=distance)

    def _apart(self, path: str, a: Any, b: Any) -> float:
        if path not in self._ranges or not (_is_number(a) and _is_number(b)):
            return float(a != b)
        low, high, is_log = self._ranges[path]
        low, high, a, b = (math.log(max(value, 1e-300)) if is_log else value for value in (low, high, a, b))
        return float((a - b) / (high - low or 1)) ** 2


def _told(history: History, root: Path) -> tuple[dict[str, Exit], dict[str, Resources]]:
    """Return by trial how its last attempt ended, and what it asked for of itself."""
    exits: dict[str, Exit] = {}
    asked: dict[str, Resources] = {}
    configs: dict[str, Mapping[str, Any]] = {}
    for attempt in history.attempts:
        trial_id, before = attempt.trial_id, exits.get(attempt.trial_id)
        if attempt.source is not None or dict(configs.setdefault(trial_id, attempt.config)) != dict(attempt.config):
            raise ExperimentError(
                f"{root}: the scheduler changed the config of {trial_id} on its way, so its curve belongs to no one "
                "config and cannot be simulated under other rules. `sweep replay --verify` decides it again as it was."
            )
        if attempt.number == 1 or (before is not None and before.kind is ExitKind.NEEDS_MORE):
            asked[trial_id] = attempt.resources
        if attempt.exit is not None:
            exits[trial_id] = attempt.exit
    return exits, asked


def _curve(
    trial: Trial, points: Mapping[int, Point], ended: Exit | None, asked: Resources | None, *, has_reached: bool
) -> RecordedCurve:
    found = tuple(points[count] for count in sorted(points))
    kind = None if ended is None else ended.kind
    error = "" if ended is None or kind in _NO_FAILURES else ended.error or ended.kind.value
    is_done = bool(found) and found[-1].metrics.get("done") is True
    is_cut = not (error or kind is ExitKind.FINISHED or is_done or has_reached)
    return RecordedCurve(trial.id, trial.config, found, is_cut, error, asked or trial.resources)


def _point(seconds: float, metrics: dict[str, Any], *, has_checkpoint: bool = True) -> Point:
    for name in _REFILLED:
        metrics.pop(name, None)
    if metrics.get("done") is False:
        del metrics["done"]
    return Point(seconds, metrics, has_checkpoint)


def _key(config: Mapping[str, Any]) -> str:
    return repr(sorted((flatten(config) | {TRIAL_INDEX: config.get(TRIAL_INDEX)}).items(), key=lambda item: item[0]))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
