"""Evaluate every suggestion of a searcher several times and tell it the mean."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchers.base import Config, Searcher, Signal, answer_of
from searchers.errors import SearchError
from searchers.keywords import refuse_unknown
from searchers.variants import fresh

__all__ = ["TRIAL_INDEX", "Repeater"]

TRIAL_INDEX = "__trial_index__"
"""The key of a config that says which of the repeats it is, from 0."""


@dataclass
class _Group:
    """The trials that share one suggestion; the first one's id names it to the searcher."""

    config: Config
    members: list[str] = field(default_factory=list)
    results: dict[str, tuple[Mapping[str, Any] | None, bool]] = field(default_factory=dict)


@refuse_unknown()
class Repeater(Searcher):
    """Give every suggestion of `searcher` to `repeat` consecutive trials, and tell it the mean of their metrics.

    The searcher hears one completion per suggestion, under the id of the first of its trials, when all have ended: the
    mean over those that have the metric as a number, NaN if none has. It hears no intermediate results. `num_samples`
    counts all trials; make it a multiple of `repeat`, for the leftover group never reports.

    Args:
        repeat: int of at least 1.
        set_index: add the key `__trial_index__`, 0 to repeat - 1, to each config, for instance to seed the trial.

    Raises:
        SearchError: no searcher, or no such number.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        if not isinstance(searcher, Searcher):
            raise SearchError(f"Repeater({searcher!r}): expected a searcher, such as OptunaSearch().")
        if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
            raise SearchError(f"repeat is {repeat!r}; expected an int of at least 1.")
        super().__init__(searcher.metric, searcher.mode)
        self.is_adaptive = searcher.is_adaptive
        self.searcher = searcher
        self.repeat = repeat
        self.set_index = bool(set_index)
        self._filling: _Group | None = None  # the group that takes the next trials
        self._group_of: dict[str, _Group] = {}  # of open trials, and of ended ones whose group is not complete

    def set_search_properties(
        self,
        metric: str | Sequence[str] | None,
        mode: str | Sequence[str] | None,
        space: Mapping[str, Any],
        *,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> bool:
        if num_samples is not None and num_samples % self.repeat:
            warnings.warn(
                f"num_samples={num_samples} is no multiple of repeat={self.repeat}: the searcher will never hear of "
                f"the last {num_samples % self.repeat} trials.",
                stacklevel=2,
            )
        samples = None if num_samples is None else -(-num_samples // self.repeat)
        taken = self.searcher.set_search_properties(metric, mode, space, num_samples=samples, seed=seed)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return taken

    @property
    def hears_results(self) -> bool:
        return False

    @property
    def best_concurrency(self) -> int | None:
        """Return that of the searcher, times the trials that share a suggestion."""
        most = self.searcher.best_concurrency
        return None if most is None else most * self.repeat

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
                suggestion = answer_of(self.searcher.suggest(trial_id))
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
        return self.searcher.suggestion_state(trial_id) if group is not None and group.members[0] == trial_id else None

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        if self._filling is None:
            shared: Config = {key: value for key, value in config.items() if key != TRIAL_INDEX or not self.set_index}
            self.searcher.retell(trial_id, shared, state)
            self._filling = _Group(fresh(shared))
        self._join(trial_id, self._filling)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        group = self._group_of.get(trial_id)
        if group is None or trial_id in group.results:
            return
        group.results[trial_id] = (result, error)
        if len(group.results) < self.repeat:
            return
        for member in group.members:
            del self._group_of[member]
        metrics = [self.metric] if isinstance(self.metric, str) else list(self.metric or ())
        means = {metric: _mean(metric, [result for result, _ in group.results.values()]) for metric in metrics}
        has_failed = all(failed for _, failed in group.results.values())
        self.searcher.on_trial_complete(group.members[0], None if has_failed else means, has_failed)

    def set_budgets(self, milestones: Sequence[float]) -> None:
        self.searcher.set_budgets(milestones)

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        self.searcher.observe({key: value for key, value in config.items() if key != TRIAL_INDEX}, result)

    def get_state(self) -> Mapping[str, Any]:
        """Return the searcher's state; a group that is not complete is no part of it."""
        return self.searcher.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.searcher.set_state(state)

    def save(self, checkpoint_path: Any) -> None:
        """Write the searcher's state; it may be restored with or without repeats."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: Any) -> None:
        self.searcher.restore(checkpoint_path)


def _mean(metric: str, results: Sequence[Mapping[str, Any] | None]) -> float:
    """Return the mean over the results that have `metric` as a number other than NaN; NaN if none has."""
    values = []
    for result in results:
        value = None if result is None else result.get(metric)
        if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
            continue
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):  # an array of several, what is too large for a float
            continue
        if not math.isnan(number):
            values.append(number)
    return math.fsum(values) / len(values) if values else math.nan
