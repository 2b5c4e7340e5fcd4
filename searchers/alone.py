"""A searcher without a sweep: what `ask` and `tell` remember of the trials that are open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchers.errors import SearchError

if TYPE_CHECKING:
    from searchers.base import Searcher

__all__ = ["OpenTrials", "flat"]


@dataclass
class _Open:
    """What was told of one trial."""

    num_results: int = 0
    last: dict[str, Any] | None = None


class OpenTrials:
    """Count the trials of one searcher, and tell it of them as a sweep does."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[str, _Open] = {}

    @property
    def next_id(self) -> str:
        """The id of the next trial."""
        return f"{self._count:05d}"

    @property
    def num_asked(self) -> int:
        return self._count

    @property
    def num_open(self) -> int:
        return len(self._open)

    def begin(self) -> None:
        """Open the trial with the next id."""
        self._open[self.next_id] = _Open()
        self._count += 1

    def tell(
        self, searcher: Searcher, trial_id: str, result: Mapping[str, Any] | None, is_done: bool, error: bool
    ) -> None:
        trial = self._open.get(trial_id)
        if trial is None:
            known = ", ".join(sorted(self._open)[:10]) or "none"
            raise SearchError(f"no trial {trial_id!r} is open; those that were asked for and not ended: {known}.")
        if result is not None:
            if not isinstance(result, Mapping):
                raise SearchError(f"result is {result!r:.100}; expected a dict of metrics such as {{'loss': 0.5}}.")
            trial.num_results += 1
            trial.last = {"training_iteration": trial.num_results} | flat(result)
            searcher.on_trial_result(trial_id, dict(trial.last))
        if is_done or error:
            del self._open[trial_id]
            searcher.on_trial_complete(trial_id, None if error else trial.last, error)


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with the keys of nested dicts joined by `/`, as searchers hear it from a sweep."""
    found: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{key}/{inner}": one for inner, one in flat(value).items()}
        else:
            found[key] = value
    return found
