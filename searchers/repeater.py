"""Evaluate every suggestion of a searcher several times and tell it the mean."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from searchers import checks
from searchers.base import Config, Names, Searcher, Signal
from searchers.keywords import refuse_unknown
from searchers.variants import fresh
from searchers.wrapper import Wrapper

TRIAL_INDEX = "__trial_index__"
"""The key of a config that says which of the repeats it is, from 0."""


@dataclass
class _Group:
    """The trials that share one suggestion; the first one's id names it to the searcher."""

    config: Config
    members: list[str] = field(default_factory=list)
    results: dict[str, tuple[Mapping[str, Any] | None, bool]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)


@refuse_unknown()
class Repeater(Wrapper):
    """Give every suggestion of `searcher` to `repeat` consecutive trials, and tell it the mean of their metrics.

    The searcher gets one completion per suggestion, under the id of the first of its trials, when all have ended: the
    mean over those that have the metric as a number, NaN if none has. It gets no intermediate results, and of a pause
    when no trial of the suggestion goes on. The best trial is one of the suggestion with the best mean. `num_samples`
    counts all trials; make it a multiple of `repeat`, for the leftover group never reports.

    Args:
        repeat: int of at least 1.
        set_index: add the key `__trial_index__`, 0 to repeat - 1, to each config, for instance to seed the trial. Best
            configs and tables leave it out.

    Raises:
        SearchError: no searcher, or no such number.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher)
        self.repeat = self.num_repeats = checks.whole("repeat", repeat, least=1)
        self.set_index = bool(set_index)
        self._filling: _Group | None = None  # the group that takes the next trials
        self._group_of: dict[str, _Group] = {}  # of open trials, and of ended ones whose group is not complete

    def set_search_properties(
        self,
        metric: Names,
        mode: Names,
        config: Mapping[str, Any],
        *,
        num_samples: int | None = None,
        seed: int = 0,
        **spec: Any,
    ) -> bool:
        if num_samples is not None and num_samples % self.repeat:
            warnings.warn(
                f"num_samples={num_samples} is no multiple of repeat={self.repeat}: the searcher will never hear of "
                f"the last {num_samples % self.repeat} trials.",
                stacklevel=2,
            )
        samples = None if num_samples is None else -(-num_samples // self.repeat)
        return super().set_search_properties(metric, mode, config, num_samples=samples, seed=seed, **spec)

    @property
    def hears_results(self) -> bool:
        return False

    @property
    def best_concurrency(self) -> int | None:
        """Return that of the searcher, times the trials that share a suggestion."""
        most = self.searcher.best_concurrency
        return None if most is None else most * self.repeat

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return False  # the searcher counts suggestions, the limit is one of trials

    def num_trials(self, num_samples: int | None) -> int | None:
        """Return how many trials `num_samples` samples make: those of the searcher, `repeat` times each."""
        if num_samples is None:
            return None
        groups = self.searcher.num_trials(num_samples // self.repeat)
        return None if groups is None else groups * self.repeat + num_samples % self.repeat

    def suggest(self, trial_id: str) -> Config | Signal:
        """Return the config of the group that is being filled, or a new suggestion for a new group."""
        group = self._group_of.get(trial_id)
        if group is None:
            if self._filling is None:
                suggestion = super().suggest(trial_id)
                if isinstance(suggestion, Signal):
                    return suggestion
                self._filling = _Group(suggestion)
            group = self._join(trial_id, self._filling)
        config: Config = fresh(group.config)
        if self.set_index:
            config[TRIAL_INDEX] = group.members.index(trial_id)
        return config

    def _join(self, trial_id: str, group: _Group) -> _Group:
        group.members.append(trial_id)
        self._group_of[trial_id] = group
        self._filling = group if len(group.members) < self.repeat else None
        return group

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any] | None:
        """Return the searcher's state for the first trial of a group; the others need none."""
        group = self._group_of.get(trial_id)
        return super().suggestion_state(trial_id) if group is not None and group.members[0] == trial_id else None

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        if self._filling is None:
            shared = _without_index(config) if self.set_index else dict(config)
            super().retell(trial_id, shared, state)
            self._filling = _Group(fresh(shared))
        self._join(trial_id, self._filling)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Keep an intermediate result from the searcher, which gets all trials of a suggestion at once."""

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        group = self._group_of.get(trial_id)
        if group is None or trial_id in group.results:
            return
        group.results[trial_id] = (result, error)
        group.paused.discard(trial_id)
        if len(group.results) < self.repeat:
            self._tell_if_paused(group)
            return
        for member in group.members:
            del self._group_of[member]
        results = [result or {} for result, _ in group.results.values()]
        means = {metric: _mean([one.get(metric) for one in results]) for metric in checks.listed(self.metric)}
        has_failed = all(failed for _, failed in group.results.values())
        super().on_trial_complete(group.members[0], None if has_failed else means, has_failed)

    def on_pause(self, trial_id: str) -> None:
        group = self._group_of.get(trial_id)
        if group is not None and trial_id not in group.results:
            group.paused.add(trial_id)
            self._tell_if_paused(group)

    def on_unpause(self, trial_id: str) -> None:
        group = self._group_of.get(trial_id)
        if group is not None:
            group.paused.discard(trial_id)
            super().on_unpause(group.members[0])

    def _tell_if_paused(self, group: _Group) -> None:
        if group.paused and len(group.paused) + len(group.results) == self.repeat:
            super().on_pause(group.members[0])

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        super().observe(_without_index(config), result)


def _without_index(config: Mapping[str, Any]) -> Config:
    return {key: value for key, value in config.items() if key != TRIAL_INDEX}


def _mean(values: list[Any]) -> float:
    """Return the mean of those that are numbers; NaN if none is."""
    numbers = [number for number in map(checks.as_number, values) if not math.isnan(number)]
    return fmean(numbers) if numbers else math.nan
