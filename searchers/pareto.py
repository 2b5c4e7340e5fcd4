"""Which points no other beats in every objective: the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from searchers import checks
from searchers.errors import SearchError

Losses = tuple[float, ...]


def pareto_front(points: Sequence[Sequence[Any]], modes: Sequence[str]) -> list[int]:
    """Return the numbers, ascending, of the points that no other dominates.

    A point dominates another if it is at least as good in every objective and better in one; so equal points are in
    the front together or not at all. Infinities are numbers as others. A point with NaN, None or text in an objective
    is never in the front and dominates nothing.

    The cost is O(n * size of the front).

    Args:
        points: one sequence of values for each trial, one value for each mode.
        modes: "min" or "max" for each objective; "obs" leaves one out.

    Raises:
        UnknownNameError: a mode is something else.
        SearchError: no objective is left, or a point has more or fewer values than there are modes.
    """
    for mode in modes:
        checks.mode(mode, "a mode", is_watched_allowed=True)
    if all(mode == "obs" for mode in modes):
        raise SearchError(f"modes is {list(modes)!r}; expected at least one objective that is optimised.")
    numbers_of: dict[Losses, list[int]] = {}  # equal points share their fate
    for number, point in enumerate(points):
        if len(point) != len(modes):
            raise SearchError(f"point {number} has {len(point)} values; expected {len(modes)}, one for each mode.")
        values = [(checks.as_number(value), mode) for value, mode in zip(point, modes, strict=True) if mode != "obs"]
        if not any(math.isnan(value) for value, _ in values):
            losses = tuple(-value if mode == "max" else value for value, mode in values)
            numbers_of.setdefault(losses, []).append(number)
    front = _front(sorted(numbers_of))
    return sorted(number for losses in front for number in numbers_of[losses])


def _front(ordered: Sequence[Losses]) -> list[Losses]:
    """Return the front of different points in their order: whatever dominates one comes before it."""
    import numpy as np  # here, so that commands that only look at a sweep start without it

    if not ordered:
        return []
    all_losses = np.asarray(ordered, dtype=np.float64)
    found = np.empty_like(all_losses)
    kept: list[int] = []
    for number, losses in enumerate(all_losses):
        if not bool(np.any(np.all(found[: len(kept)] <= losses, axis=1))):
            found[len(kept)] = losses
            kept.append(number)
    return [ordered[number] for number in kept]
