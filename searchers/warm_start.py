"""Learn from points that were evaluated before: single ones, pairs of config and result, another sweep."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from searchers.checks import as_number, listed
from searchers.errors import SearchError, SpaceError

if TYPE_CHECKING:
    from searchers.base import Config, Searcher


Point = tuple[Mapping[str, Any], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Learned:
    """What a searcher made of points that were evaluated before.

    Attributes:
        num_learned: points that it learned from.
        num_outside: points that are none of its space.
        num_without_metric: points without a number for each metric: failed trials, NaN, nothing reported.
        first_outside: why the first of those outside is none of the space; "" if there is none.
    """

    num_learned: int = 0
    num_outside: int = 0
    num_without_metric: int = 0
    first_outside: str = ""


def add_evaluated_point(
    searcher: Searcher,
    parameters: Config,
    value: Any,
    error: bool = False,
    pruned: bool = False,
    intermediate_values: Sequence[float] | None = None,
) -> None:
    """Learn from one point that was evaluated elsewhere; `observe` in the words of Tune.

    Args:
        value: of the metric; for several objectives a sequence with one for each. Plays no part after `error`.
        error, pruned: how the trial ended instead of with `value`; a searcher without use for such a point is not
            told of it.
        intermediate_values: plays no part; the values that count are the final ones.

    Raises:
        SearchError: this searcher cannot learn from such points, or the metric is not known yet.
    """
    metrics = _metrics_of(searcher)
    if error or pruned:
        return
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) != len(metrics):
        raise SearchError(f"value is {value!r}; expected {len(metrics)} numbers, one for each of {metrics}.")
    searcher.observe(parameters, dict(zip(metrics, values, strict=True)))


def add_evaluated_trials(searcher: Searcher, trials: Any, metric: str | None = None) -> int:
    """Learn from the trials of another sweep; returns from how many.

    Failed trials and those without the metric teach nothing. Those outside the space are left out with a warning that
    counts them. A trial that was stopped early counts with its last value, as it does within a sweep.

    Args:
        trials: an analysis or a grid of results (anything with `trials`, or that can be iterated), or one trial. Of
            each trial `config` and `last_result` (else `metrics`) are read, and whether it failed: a status "ERROR",
            or an `error` that is not None.
        metric: the result key that holds the value there; None: this searcher's own metric.

    Raises:
        SpaceError: none of them lies in the space.
        SearchError: as `observe_all`, or something without a config is among them.
    """
    metrics = listed(searcher.metric)
    if metric is not None and len(metrics) > 1:
        raise SearchError(f"metric is {metric!r}, but this search has several: {metrics}; leave it out.")
    renamed = {metrics[0]: metric} if metric is not None and metrics else {}
    return observe_all(searcher, points_of(trials, renamed)).num_learned


def observe_all(searcher: Searcher, points: Iterable[Point]) -> Learned:
    """Learn from pairs of a config and its result, in their order; `observe` for many, some of which do not fit.

    Returns:
        How many taught something, lay outside the space (said in a warning, with the first reason), or had no number
        for the metric.

    Raises:
        SpaceError: there are points with the metric, and none lies in the space.
        SearchError: this searcher cannot learn from such points, or its metric or space is not known yet.
    """
    metrics = _metrics_of(searcher)
    watched = {name for name, mode in zip(metrics, listed(searcher.mode), strict=False) if mode == "obs"}
    learned = outside = without = 0
    first = ""
    for config, result in points:
        observed = {} if result is None else flat(result)
        if any(math.isnan(as_number(observed.get(metric))) for metric in metrics if metric not in watched):
            without += 1
            continue
        try:
            searcher.observe(dict(config), observed)
            learned += 1
        except SpaceError as error:
            outside += 1
            first = first or str(error)
    if outside and not learned:
        raise SpaceError(f"none of the {outside} evaluated points lies in the space of this search. The first: {first}")
    if outside:
        lie = "evaluated points lie outside the space of this search and were left out"
        warnings.warn(f"{outside} of {outside + learned} {lie}. The first: {first}", stacklevel=2)
    return Learned(learned, outside, without, first)


def _metrics_of(searcher: Searcher) -> list[str]:
    metrics = listed(searcher.metric)
    if not metrics:
        raise SearchError(f"{type(searcher).__name__} does not know its metric yet; pass metric= and mode= to it.")
    return metrics


def points_of(trials: Any, renamed: Mapping[str, str] = MappingProxyType({})) -> Iterator[Point]:
    """Yield config and last result of each trial, None for the result of one that failed.

    Args:
        trials: as for `add_evaluated_trials`; or pairs of a config and its result, which are yielded as they are.
        renamed: the searcher's metrics that are called otherwise there, with the names that they have.
    """
    found = getattr(trials, "trials", trials)
    many: Iterable[Any] = found if isinstance(found, Iterable) and not hasattr(found, "config") else [found]
    for trial in many:
        if isinstance(trial, (tuple, list)) and len(trial) == 2 and isinstance(trial[0], Mapping):
            yield trial[0], trial[1]
            continue
        config: Config | None = getattr(trial, "config", None)
        if not isinstance(config, Mapping):
            raise SearchError(f"{trial!r:.100} has no config to learn from; expected results or an analysis.")
        if str(getattr(trial, "status", "")) == "ERROR" or getattr(trial, "error", None) is not None:
            yield config, None
            continue
        there = flat(getattr(trial, "last_result", None) or getattr(trial, "metrics", None) or {})
        yield config, there | {name: there.get(other) for name, other in renamed.items()}


def flat(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with the keys of nested dicts joined by `/`, as searchers get it from a sweep."""
    found: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, Mapping) and value:
            found |= {f"{key}/{inner}": one for inner, one in flat(value).items()}
        else:
            found[key] = value
    return found
