"""Limit how many suggestions of a searcher are open at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchers import checks
from searchers.base import NOT_NOW, Config, Searcher, Signal, answer_of
from searchers.keywords import refuse_unknown
from searchers.wrapper import Wrapper


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
