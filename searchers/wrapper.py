"""The base of searchers around another one: everything that they do not change goes to it."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
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

    @abstractmethod
    def suggest(self, trial_id: str) -> Config | Signal:
        return answer_of(self.searcher.suggest(trial_id))


# A state is that of the searcher, without what is open here; so it may be restored with or without a wrapper.
_FORWARDED = """
    num_trials set_max_concurrency suggestion_state retell on_trial_result on_trial_complete on_pause on_unpause
    set_budgets observe get_state set_state save restore
"""


def _forwarding(name: str) -> Callable[..., Any]:
    @functools.wraps(getattr(Searcher, name))
    def forward(self: Wrapper, *arguments: Any, **more: Any) -> Any:
        return getattr(self.searcher, name)(*arguments, **more)

    return forward


for _name in _FORWARDED.split():
    setattr(Wrapper, _name, _forwarding(_name))
