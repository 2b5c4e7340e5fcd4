"""Learn from points that were evaluated before: pairs of config and result, or the trials of another sweep."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchers.alone import flat
from searchers.errors import SearchError, SpaceError

if TYPE_CHECKING:
    from searchers.base import Config, Searcher

__all__ = ["Learned", "learn", "points_of"]

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


def learn(searcher: Searcher, points: Iterable[Point], metrics: Sequence[str]) -> Learned:
    """Have `searcher` observe every point that has its metrics and lies in its space; say in a warning what does not.

    Raises:
        SpaceError: there are points with the metrics, and none lies in the space.
        SearchError: the searcher cannot learn from such points, or something is no pair of config and result.
    """
    learned = outside = without = 0
    first = ""
    for config, result in points:
        told = {} if result is None else flat(result)
        if not all(_is_number(told.get(metric)) for metric in metrics):
            without += 1
            continue
        try:
            searcher.observe(dict(config), told)
            learned += 1
        except SpaceError as error:
            outside += 1
            first = first or str(error)
    if outside and not learned:
        raise SpaceError(f"none of the {outside} evaluated points lies in the space of this search. The first: {first}")
    if outside:
        warnings.warn(
            f"{outside} of {outside + learned} evaluated points lie outside the space of this search and were left "
            f"out. The first: {first}",
            stacklevel=3,
        )
    return Learned(learned, outside, without, first)


def points_of(trials: Any, renamed: Mapping[str, str] | None = None) -> Iterator[Point]:
    """Yield config and last result of each trial; None for the result of a trial that failed.

    Args:
        trials: an analysis or a grid of results (anything with `trials`, or that can be iterated), or one trial. Of
            each `config` and `last_result` (else `metrics`) are read, and whether it failed: a status "ERROR", or an
            `error` that is not None.
        renamed: the searcher's metrics that are called otherwise there, with the names that they have.

    Raises:
        SearchError: something without a config is among them.
    """
    found = getattr(trials, "trials", trials)
    many: Iterable[Any] = found if isinstance(found, Iterable) and not hasattr(found, "config") else [found]
    for trial in many:
        config: Config | None = getattr(trial, "config", None)
        if not isinstance(config, Mapping):
            raise SearchError(f"{trial!r:.100} has no config to learn from; expected results or an analysis.")
        if str(getattr(trial, "status", "")) == "ERROR" or getattr(trial, "error", None) is not None:
            yield config, None
            continue
        result = getattr(trial, "last_result", None) or getattr(trial, "metrics", None) or {}
        there = flat(result)
        if renamed:
            there |= {name: there.get(other) for name, other in renamed.items()}
        yield config, there


def _is_number(value: Any) -> bool:
    if value is None or isinstance(value, (str, bytes)):
        return False
    try:
        return not math.isnan(float(value))
    except (TypeError, ValueError):  # arrays, objects
        return False
