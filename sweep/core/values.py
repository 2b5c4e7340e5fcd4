"""Which values are numbers that a float holds, and how those are shown that are not: the one rule for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

MOST = 2**1024 - 2**971
"""The largest float, as a whole number: most libraries fail at those beyond it."""


def is_held(value: int) -> bool:
    """Whether a float holds a whole number, perhaps rounded."""
    return -MOST <= value <= MOST


def as_float(value: Any) -> float | None:
    """Return a number as a float, NaN and infinities included; None for what is none, and where it is too large."""
    if type(value) is float:
        return value
    if not isinstance(value, (int, float)) and not isinstance(value, Real):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError, TypeError):  # too large, or a type that calls itself real and is not
        return None


def summed(one: float, other: float) -> float:
    """Return a sum that a float holds: infinite where two whole numbers grow too large together."""
    try:
        total = one + other
    except OverflowError:  # a whole number that no float holds, and a float
        return math.inf if max(one, other, key=abs) > 0 else -math.inf
    if type(total) is int and not is_held(total):
        return math.inf if total > 0 else -math.inf
    return total


def shown_int(value: int) -> str:
    """Return a whole number of any size as text; beyond what Python prints (4,300 digits) only its length."""
    try:
        return str(value)
    except ValueError:
        digits = int(value.bit_length() * math.log10(2)) + 1
        return f"{'a negative' if value < 0 else 'a'} whole number of about {digits:,} digits"


def shown(value: Any, most: int = 200) -> str:
    """Return how a value prints, on at most so many characters; of one that cannot print, its type."""
    if type(value) is int:
        return shown_int(value)[:most]
    try:
        text = str.__str__(repr(value))
    except Exception as error:  # the user's own __repr__; of lists and dicts that of what is in them
        text = f"<{type(value).__qualname__}, whose __repr__ raised {type(error).__name__}>"
    return sound_text(text[:most])


def printed(value: Any) -> str:
    """Return `str(value)`; of what cannot print that way, how it shows."""
    try:
        return str.__str__(str(value))
    except Exception:  # the user's own __str__, and whole numbers beyond what Python prints
        return shown(value)


def sound_text(text: str) -> str:
    """Return a text that every file, database and terminal takes: NUL and halves of surrogate pairs are escaped."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def shown_range(values: Iterable[float], best: float | None = None, wide: float = 1000.0) -> tuple[float, float, bool]:
    """Return from where to where an axis shows numbers, and whether it is logarithmic, so that outliers do not flatten
    the others.

    It is logarithmic where numbers above 0 spread over magnitudes, or their middle half would fill less than a tenth of
    a linear axis and more of a logarithmic one. A linear one leaves out what is more than ten times as far outside the
    middle half as that is wide.

    Args:
        best: is not left outside.
        wide: of the largest to the smallest, without a twentieth at each end: what counts as magnitudes.
    """
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return 0.0, 1.0, False
    low, high, few = known[0], known[-1], int(0.05 * (len(known) - 1))
    first, last = known[len(known) // 4], known[-1 - len(known) // 4]
    if low > 0 and high > low:
        part = last / high - first / high  # of a linear axis
        is_flat = part < 0.1 * (1 - low / high) and math.log(last) - math.log(first) > part * (
            math.log(high) - math.log(low)
        )
        if is_flat or known[-1 - few] / known[few] >= wide:
            return low, high, True
    reach = 10 * (last - first)
    if 0 < reach < math.inf:
        near = [value for value in known if first - reach <= value <= last + reach or value == best]
        low, high = near[0], near[-1]
    return low, high, False
