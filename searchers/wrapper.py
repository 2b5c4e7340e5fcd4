"""Searchers around another one: a limit on its open suggestions, suggestions that are tried several times, and those of
persons before its own."""

from __future__ import annotations

import functools
import math
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from searchers import checks
from searchers.base import BY_PERSON, NOT_NOW, Config, Names, Searcher, Signal, answer_of
from searchers.errors import SearchError
from searchers.keywords import refuse_unknown, taken_by
from searchers.variants import fresh

TRIAL_INDEX = "__trial_index__"
"""The key of a config that says which of the repeats it is, from 0."""


@refuse_unknown()
class Wrapper(Searcher):
    """Forward to `searcher` what the run asks and tells; a subclass overrides what it changes."""

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise SearchError(f"{type(self).__name__}({searcher!r}): expected a searcher, such as OptunaSearch().")
        super().__init__(searcher.metric, searcher.mode)
        self.is_adaptive, self.num_repeats = searcher.is_adaptive, searcher.num_repeats
        self.searcher = searcher

    def set_search_properties(self, metric: Names, mode: Names, config: Mapping[str, Any], **told: Any) -> bool:
        take = self.searcher.set_search_properties
        told["num_samples"] = self._num_suggestions(told.get("num_samples"))
        is_taken = take(metric, mode, config, **taken_by(take, told))
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return is_taken

    def _num_suggestions(self, num_samples: int | None) -> int | None:
        return num_samples

    @property
    def hears_results(self) -> bool:
        return self.searcher.hears_results

    @abstractmethod
    def suggest(self, trial_id: str) -> Config | Signal:
        return answer_of(self.searcher.suggest(trial_id))


# A state is that of the searcher, without what is open here; so it may be restored with or without a wrapper.
_FORWARDED = """
    num_trials set_max_concurrency suggestion_state retell on_trial_result on_trial_complete on_pause on_unpause
    on_request set_budgets observe get_state set_state save restore
"""


def _forwarding(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(Searcher, name))
    def forward(self: Wrapper, *arguments: Any, **more: Any) -> Any:
        return getattr(self.searcher, name)(*arguments, **more)

    return forward


for _name in _FORWARDED.split():
    setattr(Wrapper, _name, _forwarding(_name))


@refuse_unknown()
class ConcurrencyLimiter(Wrapper):
    """Ask `searcher` only while fewer than `max_concurrent` of its suggestions are open.

    With `batch`, completions are held back until all open suggestions have completed; then the searcher gets them in
    order of completion, and all places are free again. A searcher that limits itself (says its
    `set_max_concurrency`) is asked and told directly.

    Args:
        max_concurrent: int of at least 1.

    Raises:
        SearchError: no searcher, or no such number.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        super().__init__(searcher)
        self.max_concurrent = checks.whole("max_concurrent", max_concurrent, least=1)
        self.batch = bool(batch)
        self._is_limited_inside = searcher.set_max_concurrency(self.max_concurrent)
        self._live: set[str] = set()
        self._held: dict[str, tuple[Mapping[str, Any] | None, bool]] = {}  # completed, not passed on; within _live

    def on_request(self, request: Mapping[str, Any]) -> None:
        """Take another limit; what is open above it stays open."""
        super().on_request(request)
        if (most := request.get("max_concurrent")) is not None:
            self.max_concurrent = checks.whole("max_concurrent", most, least=1)
            if self._is_limited_inside:
                self.searcher.set_max_concurrency(most)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Pass on the smaller of two limits if the searcher limits itself; else both limits hold, each on its own."""
        least = min(self.max_concurrent, max_concurrent)
        return self._is_limited_inside and self.searcher.set_max_concurrency(least)

    def suggest(self, trial_id: str) -> Config | Signal:
        """Return what the searcher suggests, or `NOT_NOW` while `max_concurrent` suggestions are open."""
        if trial_id not in self._live and len(self._live) >= self.max_concurrent:
            return NOT_NOW
        suggestion = answer_of(self.searcher.suggest(trial_id))
        if not (self._is_limited_inside or isinstance(suggestion, Signal)):
            self._live.add(trial_id)
        return suggestion

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        super().retell(trial_id, config, state)
        if not self._is_limited_inside:
            self._live.add(trial_id)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        if self._is_limited_inside:
            super().on_trial_complete(trial_id, result, error)
            return
        if trial_id not in self._live or trial_id in self._held:
            return
        self._held[trial_id] = (result, error)
        if self.batch and len(self._held) < len(self._live):
            return
        completed, self._held = self._held, {}
        self._live.difference_update(completed)
        for held_id, outcome in completed.items():
            self.searcher.on_trial_complete(held_id, *outcome)


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

    def _num_suggestions(self, num_samples: int | None) -> int | None:
        if num_samples is not None and num_samples % self.repeat:
            warnings.warn(
                f"num_samples={num_samples} is no multiple of repeat={self.repeat}: the searcher will never hear of "
                f"the last {num_samples % self.repeat} trials.",
                stacklevel=4,
            )
        return None if num_samples is None else -(-num_samples // self.repeat)

    @property
    def hears_results(self) -> bool:
        return False

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


def learns_from_others(searcher: Searcher) -> bool:
    """Say whether a searcher, or the one within it, takes points that it did not propose."""
    while isinstance(searcher, Wrapper):
        searcher = searcher.searcher
    return type(searcher).observe is not Searcher.observe


class Enqueued(Wrapper):
    """Suggest what persons have asked for, in their order, then what `searcher` suggests.

    Theirs count against no limit of the searcher; it learns from their results what it can learn from points that it
    did not propose. Told the same events again in the same order, it does the same.
    """

    def __init__(self, searcher: Searcher) -> None:
        super().__init__(searcher)
        self._waiting: deque[Config] = deque()
        self._given: dict[str, Config] = {}  # by trial that is open

    def on_request(self, request: Mapping[str, Any]) -> None:
        super().on_request(request)
        if "config" in request:
            self._waiting.append(request["config"])

    def suggest(self, trial_id: str) -> Config | Signal:
        if trial_id not in self._given:
            if not self._waiting:
                return super().suggest(trial_id)
            self._given[trial_id] = self._waiting.popleft()
        config: Config = fresh(self._given[trial_id])
        return config

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any] | None:
        return BY_PERSON if trial_id in self._given else super().suggestion_state(trial_id)

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        if state == BY_PERSON:
            self._given[trial_id] = self._waiting.popleft() if self._waiting else config
        else:
            super().retell(trial_id, config, state)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        if trial_id not in self._given:
            super().on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        config = self._given.pop(trial_id, None)
        if config is None:
            super().on_trial_complete(trial_id, result, error)
        elif result is not None and not error:
            with suppress(SearchError):  # it cannot learn from it: the answer to the request has said so
                self.searcher.observe(config, result)

    def on_pause(self, trial_id: str) -> None:
        if trial_id not in self._given:
            super().on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        if trial_id not in self._given:
            super().on_unpause(trial_id)
