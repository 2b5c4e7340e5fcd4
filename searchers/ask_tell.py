"""A searcher without a sweep: `ask` for a trial, `tell` what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from searchers.errors import SearchError, SearchExhausted, SearchWaits
from searchers.signals import EXHAUSTED, NOT_NOW, Config, answer_of

if TYPE_CHECKING:
    from searchers.base import Searcher


@dataclass
class _Trial:
    num_results: int = 0
    last: dict[str, Any] | None = None


@dataclass
class Asked:
    """The trials that one searcher was asked for."""

    count: int = 0
    open: dict[str, _Trial] = field(default_factory=dict)


def ask(searcher: Searcher) -> tuple[str, Config]:
    """Return a new trial's id and its config; for a loop of your own, without a sweep.

    Asked and told one by one, a searcher suggests what it does in a sweep with the same seed that runs one trial at a
    time. Any number of trials may be open. What a sweep would tell of itself is given to the constructor, or to
    `set_search_properties`. Ids are counted: "00000", "00001" ...

    Raises:
        SearchExhausted: nothing more will be suggested.
        SearchWaits: nothing is suggested before an open trial ends.
        SearchError: space, metric or mode are not known.

    Example:
        >>> from searchers import OptunaSearch, uniform
        >>> search = OptunaSearch({"x": uniform(-10, 10)}, metric="loss", mode="min", seed=0)
        >>> for _ in range(30):
        ...     trial_id, config = search.ask()
        ...     search.tell(trial_id, {"loss": (config["x"] - 3) ** 2})
        >>> search.study.best_value < 0.5
        True
    """
    asked, who = _asked(searcher), type(searcher).__name__
    trial_id = f"{asked.count:05d}"
    answer = answer_of(searcher.suggest(trial_id))
    if answer is EXHAUSTED:
        raise SearchExhausted(f"{who} has nothing more to suggest after {asked.count} trials.")
    if answer is NOT_NOW:
        raise SearchWaits(f"{who} suggests nothing more while {len(asked.open)} trials are open; tell it of one.")
    if not isinstance(answer, dict):
        raise SearchError(f"{who}.suggest({trial_id!r}) returned {answer!r:.100}; expected a dict.")
    asked.count += 1
    asked.open[trial_id] = _Trial()
    return trial_id, answer


def tell(
    searcher: Searcher,
    trial_id: str,
    result: Mapping[str, Any] | None = None,
    *,
    is_done: bool = True,
    error: bool = False,
) -> None:
    """Say what came of a trial that `ask` returned.

    Args:
        result: metrics, which may be nested. `training_iteration` is counted unless it is given. None with `is_done`:
            the trial ends with its last result, if any.
        is_done: False for an intermediate result: the trial goes on.
        error: the trial failed; its results count no more.

    Raises:
        SearchError: no such trial is open.
    """
    open_trials = _asked(searcher).open
    trial = open_trials.get(trial_id)
    if trial is None:
        known = ", ".join(sorted(open_trials)[:10]) or "none"
        raise SearchError(f"no trial {trial_id!r} is open; those that were asked for and not ended: {known}.")
    if result is not None:
        if not isinstance(result, Mapping):
            raise SearchError(f"result is {result!r:.100}; expected a dict of metrics such as {{'loss': 0.5}}.")
        trial.num_results += 1
        trial.last = {"training_iteration": trial.num_results} | flat(result)
        searcher.on_trial_result(trial_id, dict(trial.last))
    if is_done or error:
        del open_trials[trial_id]
        searcher.on_trial_complete(trial_id, None if error else trial.last, error)


def _asked(searcher: Searcher) -> Asked:
    if searcher._asked is None:
        searcher._asked = Asked()
    return searcher._asked


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with the keys of nested dicts joined by `/`, as searchers get it from a sweep."""
    found: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{key}/{inner}": one for inner, one in flat(value).items()}
        else:
            found[key] = value
    return found
