"""The checks of single arguments: a whole number, a number, seconds, one of a few names, min or max, metric and mode.

Each raises one error that says what was found and what was expected, and returns the value as a plain int, float or
str. Numbers of numpy are numbers, bools are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from numbers import Integral, Real
from typing import Any, NoReturn

from searchers.errors import SearchError, UnknownNameError, closest

_MOST_SHOWN = 100  # characters of a value in a message


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number by its type; bools are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any, *, is_finite: bool = True) -> bool:
    """Whether a value is a number by its type (bools are none), and finite unless `is_finite` is False."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value) or not is_finite
    except OverflowError:  # a whole number that no float holds
        return False


def as_number(value: Any) -> float:
    """Return a result as a float; NaN for what is none: None, text, arrays of several, what no float holds."""
    if value is None or isinstance(value, (str, bytes)):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def listed(value: Any) -> list[Any]:
    """Return one metric, mode or reward, or several of them, as a list; None is an empty one."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


class Checks:
    """The checks of one package: all raise `error`, but those of names `unknown`, when it is given."""

    def __init__(self, error: type[Exception], unknown: type[Exception] | None = None) -> None:
        self._error = error
        self._unknown = unknown or error

    def refuse(self, name: str, value: Any, expected: str, hint: str = "") -> NoReturn:
        """Raise the error: `<name> is <value>; expected <expected>. <hint>`; without a name `found <value>; ...`."""
        raise self._error(_refusal(name, value, expected, hint))

    def whole(
        self,
        name: str,
        value: Any,
        *,
        least: int | None = 0,
        most: int | None = None,
        expected: str = "",
        hint: str = "",
    ) -> int:
        """Return a whole number from `least` to `most`, both included; `expected` replaces the words for the range."""
        is_within = is_whole(value) and (least is None or value >= least) and (most is None or value <= most)
        if not is_within:
            self.refuse(name, value, expected or f"a whole number{_range(least, None, most, None)}", hint)
        return int(value)

    def number(
        self,
        name: str,
        value: Any,
        *,
        least: float | None = None,
        above: float | None = None,
        most: float | None = None,
        below: float | None = None,
        is_finite: bool = True,
        expected: str = "",
        hint: str = "",
    ) -> float:
        """Return a number within bounds, of which `least` and `most` are included, `above` and `below` are not.

        NaN is refused wherever there is a bound.
        """
        is_within = (
            is_number(value, is_finite=is_finite)
            and (least is None or value >= least)
            and (above is None or value > above)
            and (most is None or value <= most)
            and (below is None or value < below)
        )
        if not is_within:
            kind = "a finite number" if is_finite and most is None and below is None else "a number"
            self.refuse(name, value, expected or f"{kind}{_range(least, above, most, below)}", hint)
        return float(value)

    def seconds(
        self, name: str, value: Any, *, most: float = math.inf, is_zero_allowed: bool = False, expected: str = ""
    ) -> float:
        """Return seconds above 0 (or of at least 0) from a number or a timedelta; infinity only where `most` is."""
        given = value.total_seconds() if isinstance(value, timedelta) else value
        if not (is_number(given, is_finite=False) and 0 <= given <= most and (given > 0 or is_zero_allowed)):
            bound = "of at least 0" if is_zero_allowed else "above 0"
            limit = f" and at most {most:g}" if most < math.inf else ""
            self.refuse(name, value, expected or f"seconds {bound}{limit}, or a timedelta")
        return float(given)

    def one_of(self, name: str, value: Any, known: Iterable[str], hint: str = "") -> str:
        """Return a text that is one of those known; the error names them, and the nearest unless there is a hint."""
        names = list(known)
        if not isinstance(value, str) or value not in names:
            *most, last = map(repr, names)
            expected = f"{', '.join(most)} or {last}" if most else last
            close = closest(value, names) if isinstance(value, str) else ""
            meant = hint or (f"Did you mean {close!r}?" if close else "")
            raise self._unknown(_refusal(name, value, expected, meant))
        return str(value)

    def mode(self, value: Any, name: str = "mode", *, is_watched_allowed: bool = False) -> str:
        """Return "min" or "max", or "obs" where metrics may be there that are only watched."""
        known = ("min", "max", "obs") if is_watched_allowed else ("min", "max")
        return self.one_of(name, value, known, "Say 'min' for a loss, 'max' for a score.")


def _refusal(name: str, value: Any, expected: str, hint: str) -> str:
    found = f"{name} is" if name else "found"
    return f"{found} {value!r:.{_MOST_SHOWN}}; expected {expected}.{' ' if hint else ''}{hint}"


def _range(least: float | None, above: float | None, most: float | None, below: float | None) -> str:
    parts = [
        f"{words} {bound:g}"
        for words, bound in (("of at least", least), ("above", above), ("at most", most), ("below", below))
        if bound is not None
    ]
    return f" {' and '.join(parts)}" if parts else ""


_checks = Checks(SearchError, UnknownNameError)
refuse, whole, number = _checks.refuse, _checks.whole, _checks.number
one_of, mode = _checks.one_of, _checks.mode


def seed(name: str, value: Any) -> int | None:
    """Return a seed of a searcher: a whole number of at least 0, or None for the seed of the run."""
    expected = "a whole number of at least 0, or None for the seed of the run"
    return None if value is None else whole(name, value, expected=expected)


def metric_and_mode(metric: Any, given_mode: Any) -> None:
    """Refuse a mode that is not min or max (in a list also obs), and lists of unequal length."""
    modes = listed(given_mode)
    for one in modes:
        mode(one, is_watched_allowed=not isinstance(given_mode, str))
    if modes and set(modes) == {"obs"}:
        raise SearchError(
            f"mode is {given_mode!r}: all metrics are only watched; optimise at least one, by 'min' or 'max'."
        )
    num_metrics = None if metric is None or isinstance(metric, str) else len(metric)
    if num_metrics is not None and given_mode is not None and num_metrics != len(modes):
        raise SearchError(f"{num_metrics} metrics but {len(modes)} modes; give one mode for each metric.")
