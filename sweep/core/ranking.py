"""Which trial is best: the one rule that display, command line and analysis share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

from sweep.core.values import as_float

Objectives = tuple[tuple[str, str], ...]  # (metric, mode) of each

_Key = TypeVar("_Key")


def rankable(value: Any, *, infinite: bool = False) -> float | None:
    """Return a reported value if a trial can be best by it, else None: NaN, infinities, texts, what is missing, whole
    numbers that no float holds.

    Args:
        infinite: let infinities count.
    """
    if type(value) is not float:
        number = as_float(value)
        if number is None:
            return None
        value = value if isinstance(value, int) else number
    if value != value:
        return None
    return value if infinite or -math.inf < value < math.inf else None


def beats(new: float, old: float, mode: str) -> bool:
    """Whether one number is better than another."""
    return new > old if mode == "max" else new < old


def best_of(scores: Iterable[tuple[_Key, Any]], mode: str, *, infinite: bool = False) -> tuple[_Key, float] | None:
    """Return the (key, value) that is best, the first of equals; None when no value is rankable."""
    best: tuple[_Key, float] | None = None
    for key, given in scores:
        value = rankable(given, infinite=infinite)
        if value is not None and (best is None or beats(value, best[1], mode)):
            best = (key, value)
    return best


def replaces(new: Any, old: Any, mode: str) -> bool:
    """Whether a report becomes the best of its trial: finite numbers before infinities before the rest."""
    if type(new) is type(old) is float and new - new == 0.0 == old - old:  # both finite, as nearly always
        return new > old if mode == "max" else new < old
    for infinite in (False, True):
        ours, theirs = rankable(new, infinite=infinite), rankable(old, infinite=infinite)
        if ours is not None or theirs is not None:
            return ours is not None and (theirs is None or beats(ours, theirs, mode))
    return False


def objectives_of(metrics: Any, modes: Any) -> Objectives:
    """Return (metric, mode) of each of several objectives; nothing for one metric, or none.

    Args:
        modes: one for each, or one for all.
    """
    if not isinstance(metrics, (list, tuple)) or len(metrics) < 2:
        return ()
    each = list(modes) if isinstance(modes, (list, tuple)) else [modes] * len(metrics)
    if len(each) != len(metrics) or not all(isinstance(one, str) for one in [*metrics, *each]):
        return ()
    return tuple(zip(metrics, each, strict=True))


def shown_objectives(objectives: Objectives) -> str:
    """Return objectives for people: `loss (min), size (max)`."""
    return ", ".join(f"{metric} ({mode})" for metric, mode in objectives if mode != "obs")
