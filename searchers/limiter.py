"""Limit how many suggestions of a searcher are open at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from searchers.base import NOT_NOW, Config, Searcher, Signal, answer_of
from searchers.errors import SearchError
from searchers.keywords import refuse_unknown

__all__ = ["ConcurrencyLimiter"]


@refuse_unknown()
class ConcurrencyLimiter(Searcher):
    """Ask `searcher` only while fewer than `max_concurrent` of its suggestions are open.

    With `batch`, completions are held back until all open suggestions have completed; then the searcher hears them in
    order of completion, and all places are free again. A searcher that limits itself (says its
    `set_max_concurrency`) is asked and told directly.

    Args:
        max_concurrent: int of at least 1.

    Raises:
        SearchError: no searcher, or no such number.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        if not isinstance(searcher, Searcher):
            raise SearchError(f"ConcurrencyLimiter({searcher!r}): expected a searcher, such as OptunaSearch().")
        if isinstance(max_concurrent, bool) or not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise SearchError(f"max_concurrent is {max_concurrent!r}; expected an int of at least 1.")
        super().__init__(searcher.metric, searcher.mode)
        self.is_adaptive = searcher.is_adaptive
        self.searcher = searcher
        self.max_concurrent = max_concurrent
        self.batch = bool(batch)
        self._is_limited_inside = searcher.set_max_concurrency(max_concurrent)
        self._live: set[str] = set()
        self._held: dict[str, tuple[Mapping[str, Any] | None, bool]] = {}  # completed, not passed on; within _live

    def set_search_properties(
        self,
        metric: str | Sequence[str] | None,
        mode: str | Sequence[str] | None,
        space: Mapping[str, Any],
        *,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> bool:
        taken = self.searcher.set_search_properties(metric, mode, space, num_samples=num_samples, seed=seed)
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return taken

    @property
    def hears_results(self) -> bool:
        return self.searcher.hears_results

    @property
    def best_concurrency(self) -> int | None:
        return self.searcher.best_concurrency

    def num_trials(self, num_samples: int | None) -> int | None:
        return self.searcher.num_trials(num_samples)

    def suggest(self, trial_id: str) -> Config | Signal:
        """Return what the searcher suggests, or `NOT_NOW` while `max_concurrent` suggestions are open."""
        if self._is_limited_inside:
            return answer_of(self.searcher.suggest(trial_id))
        if trial_id not in self._live and len(self._live) >= self.max_concurrent:
            return NOT_NOW
        suggestion = answer_of(self.searcher.suggest(trial_id))
        if not isinstance(suggestion, Signal):
            self._live.add(trial_id)
        return suggestion

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any] | None:
        return self.searcher.suggestion_state(trial_id)

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        self.searcher.retell(trial_id, config, state)
        if not self._is_limited_inside:
            self._live.add(trial_id)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        if self._is_limited_inside:
            self.searcher.on_trial_complete(trial_id, result, error)
            return
        if trial_id not in self._live or trial_id in self._held:
            return
        self._held[trial_id] = (result, error)
        if self.batch and len(self._held) < len(self._live):
            return
        completed, self._held = self._held, {}
        self._live.difference_update(completed)
        for held_id, (held_result, held_error) in completed.items():
            self.searcher.on_trial_complete(held_id, held_result, held_error)

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def set_budgets(self, milestones: Sequence[float]) -> None:
        self.searcher.set_budgets(milestones)

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        self.searcher.observe(config, result)

    def get_state(self) -> Mapping[str, Any]:
        """Return the searcher's state: places are taken by open trials, which are no part of it."""
        return self.searcher.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.searcher.set_state(state)

    def save(self, checkpoint_path: Any) -> None:
        """Write the searcher's state; it may be restored with or without a limit."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: Any) -> None:
        self.searcher.restore(checkpoint_path)
