"""The base of searchers around another one: everything that they do not change goes to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from searchers.base import Config, Names, Searcher, Signal, answer_of
from searchers.errors import SearchError
from searchers.keywords import refuse_unknown, taken_by


@refuse_unknown()
class Wrapper(Searcher):
    """Forward to `searcher` what the run asks and tells; a subclass overrides what it changes.

    Raises:
        SearchError: no searcher.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise SearchError(f"{type(self).__name__}({searcher!r}): expected a searcher, such as OptunaSearch().")
        super().__init__(searcher.metric, searcher.mode)
        self.is_adaptive, self.num_repeats = searcher.is_adaptive, searcher.num_repeats
        self.searcher = searcher

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
        take = self.searcher.set_search_properties
        told = {"num_samples": num_samples, "seed": seed, **spec}
        is_taken = take(metric, mode, config, **taken_by(take, told))
        self.metric, self.mode = self.searcher.metric, self.searcher.mode
        return is_taken

    @property
    def hears_results(self) -> bool:
        return self.searcher.hears_results

    @property
    def best_concurrency(self) -> int | None:
        return self.searcher.best_concurrency

    def num_trials(self, num_samples: int | None) -> int | None:
        return self.searcher.num_trials(num_samples)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return self.searcher.set_max_concurrency(max_concurrent)

    @abstractmethod
    def suggest(self, trial_id: str) -> Config | Signal:
        return answer_of(self.searcher.suggest(trial_id))

    def suggestion_state(self, trial_id: str) -> Mapping[str, Any] | None:
        return self.searcher.suggestion_state(trial_id)

    def retell(self, trial_id: str, config: Config, state: Mapping[str, Any] | None) -> None:
        self.searcher.retell(trial_id, config, state)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        self.searcher.on_trial_complete(trial_id, result, error)

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def set_budgets(self, milestones: Sequence[float]) -> None:
        self.searcher.set_budgets(milestones)

    def observe(self, config: Config, result: Mapping[str, Any]) -> None:
        self.searcher.observe(config, result)

    # A state is that of the searcher, without what is open here; so it may be restored with or without a wrapper.

    def get_state(self) -> Mapping[str, Any]:
        return self.searcher.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.searcher.set_state(state)

    def save(self, checkpoint_path: Any) -> None:
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: Any) -> None:
        self.searcher.restore(checkpoint_path)
