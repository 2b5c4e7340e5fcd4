"""Read ranges as they are typed on a command line: `lr=loguniform(1e-5,1e-1)`, `bs=16,32,64`, `depth=range(1,6)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import searchers as space
from searchers.errors import SpaceError
from sweep.core.literals import parse_literal
from sweep.errors import ConfigError, nearest

_NAME = re.compile(r"(?:--)?([A-Za-z_][\w.-]*)[=~](.*)", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)
_FROM_TO = re.compile(r"([+-]?[\d.]*\d(?:e[+-]?\d+)?)\.\.+([+-]?\.?\d[\d.]*(?:e[+-]?\d+)?)", re.IGNORECASE)


@dataclass(frozen=True)
class _Interval:
    """What `interval` and the continuous functions stand for until `int` and `tag(log, ...)` are applied."""

    low: float
    high: float
    is_log: bool = False
    is_int: bool = False
    is_closed: bool = False  # as Hydra's interval of two whole numbers: both ends belong to it

    def domain(self, is_grid: bool) -> Any:
        """Return the domain."""
        if self.is_int:
            low, high = int(self.low), int(self.high) + self.is_closed
            return space.lograndint(low, high) if self.is_log else space.randint(low, high)
        return space.loguniform(self.low, self.high) if self.is_log else space.uniform(self.low, self.high)


@dataclass(frozen=True)
class _Listing:
    """What functions that list values stand for until `int` is applied."""

    values: tuple[Any, ...]
    is_grid: bool = False
    is_ordinal: bool = False  # whole numbers one after the other: neighbours are alike, which a searcher may use

    def domain(self, is_grid: bool) -> Any:
        """Return the domain, or the grid."""
        if is_grid or self.is_grid:
            return space.grid_search(list(self.values))
        if self.is_ordinal:
            return space.randint(self.values[0], self.values[-1] + 1)
        return space.choice(list(self.values))


def parse_parameter(text: str, *, is_grid: bool = False) -> tuple[str, Any]:
    """Return (name, value or domain) of one `name=RANGE`; Orion's `name~RANGE` means the same.

    Raises:
        ConfigError: no name, an unknown function, arguments that make no sense (the message names the parameter).
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{text!r} is no parameter; expected NAME=VALUE or NAME=RANGE, such as lr=loguniform(1e-5,1)."
        )
    name, range_text = match.groups()
    try:
        return name, parse_range(range_text, is_grid=is_grid)
    except (ConfigError, SpaceError) as error:
        raise ConfigError(f"{name}={range_text}: {error}") from error


def parse_range(text: str, *, is_grid: bool = False) -> Any:
    """Return what a range means: a domain, a grid, or the value itself when it is a single one.

    A list with commas is a `choice`; with `is_grid` it and every other listing becomes a `grid_search`.

    Raises:
        ConfigError, SpaceError: it cannot be read, or makes no sense.
    """
    parts = _split(text)
    if len(parts) > 1:
        return _Listing(tuple(map(parse_literal, parts))).domain(is_grid)
    match = _CALL.fullmatch(text.strip())
    if match is None:
        if ends := _FROM_TO.fullmatch(text.strip()):
            low, high = ends.groups()
            raise ConfigError(f"{text!r} is no range; expected uniform({low},{high}), or loguniform or randint.")
        return parse_literal(text)
    value = _call(match)
    return value.domain(is_grid) if isinstance(value, (_Interval, _Listing)) else value


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set `config["a"]["b"]` for the path `a.b`.

    Raises:
        ConfigError: the path leads through something that is no dict.
    """
    *parents, last = path.split(".")
    place = config
    for part in parents:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{path}: {part!r} already has a value of its own; a parameter cannot be both.")
        place = inner
    place[last] = value


def _call(match: re.Match[str]) -> Any:
    """Return what `name(arguments)` stands for."""
    name, arguments = match[1], [argument.strip() for argument in _split(match[2])]
    lowered = name.lower()
    if lowered in _NUMERIC:
        make, least, most = _NUMERIC[lowered]
        function = getattr(space, make) if isinstance(make, str) else make
        return function(*_numbers(arguments, least, most))
    if lowered not in _OTHERS:
        raise ConfigError(f"unknown function {name!r}. {nearest(lowered, [*_NUMERIC, *_OTHERS])}")
    return _OTHERS[lowered](arguments)


def _numbers(arguments: Sequence[str], least: int, most: int) -> list[float]:
    expected = str(least) if least == most else f"{least} to {most}"
    if arguments == [""]:
        arguments = []
    if not least <= len(arguments) <= most:
        raise ConfigError(f"{len(arguments)} arguments; expected {expected}.")
    values = [parse_literal(argument) for argument in arguments]
    for argument, value in zip(arguments, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigError(f"{argument!r} is no number.")
    return values


def _hydra_interval(low: float, high: float) -> _Interval:
    is_int = isinstance(low, int) and isinstance(high, int)
    return _Interval(low, high, is_int=is_int, is_closed=is_int)


def _hydra_range(*bounds: float) -> _Listing:
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not step:
        raise ConfigError("a step of 0 leads nowhere.")
    count = int(-((start - stop) // step)) if (stop - start) / step > 0 else 0
    if count < 1:
        raise ConfigError(f"range({start:g},{stop:g},{step:g}) is empty.")
    if count > 100_000:
        raise ConfigError(f"range has {count} values; use randint or uniform for so many.")
    values = tuple(start + index * step for index in range(count))
    return _Listing(values, is_ordinal=step == 1 and isinstance(start, int))


def _listing(arguments: list[str], *, is_grid: bool = False) -> _Listing:
    if len(arguments) == 1 and arguments[0][:1] == "[":  # Orion writes choices([a, b])
        arguments = _split(arguments[0].strip("[]"))
    if arguments in ([], [""]):
        raise ConfigError("expected at least one value.")
    return _Listing(tuple(map(parse_literal, arguments)), is_grid)


def _inner(text: str) -> Any:
    match = _CALL.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r}: expected a function inside, such as interval(1e-5,1e-1).")
    return _call(match)


def _tag(arguments: list[str]) -> _Interval:
    if len(arguments) != 2 or arguments[0] != "log":
        raise ConfigError("expected tag(log, interval(...)).")
    value = _inner(arguments[1])
    if not isinstance(value, _Interval):
        raise ConfigError("only an interval can be tagged log.")
    return replace(value, is_log=True)


def _int(arguments: list[str]) -> _Interval | _Listing:
    if len(arguments) != 1:
        raise ConfigError("expected int(uniform(...)), int(loguniform(...)) or int(interval(...)).")
    value = _inner(arguments[0])
    if isinstance(value, _Listing):
        return _Listing(tuple(map(int, value.values)), value.is_grid)
    if not isinstance(value, _Interval):
        raise ConfigError("only uniform, loguniform, interval, range and choice can be made whole.")
    return replace(value, is_int=True)


# Name of a function of numbers -> what makes it (a name is one of `searchers`), the least and the most of them.
_NUMERIC: Mapping[str, tuple[Callable[..., Any] | str, int, int]] = {
    "uniform": (_Interval, 2, 2),
    "loguniform": (partial(_Interval, is_log=True), 2, 2),
    "interval": (_hydra_interval, 2, 2),
    "quniform": ("quniform", 3, 3),
    "qloguniform": ("qloguniform", 3, 3),
    "randint": ("randint", 2, 2),
    "lograndint": ("lograndint", 2, 2),
    "qrandint": ("qrandint", 2, 3),
    "qlograndint": ("qlograndint", 2, 3),
    "randn": ("randn", 0, 2),
    "normal": ("randn", 2, 2),
    "qrandn": ("qrandn", 3, 3),
    "range": (_hydra_range, 1, 3),
}
_OTHERS: Mapping[str, Callable[[list[str]], Any]] = {
    "choice": _listing,
    "choices": _listing,
    "grid": partial(_listing, is_grid=True),
    "grid_search": partial(_listing, is_grid=True),
    "tag": _tag,
    "int": _int,
}


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses, brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for index, character in enumerate(text):
        if quote:
            if character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth < 0:
                raise ConfigError(f"a closing {character!r} without an opening one.")
        elif character == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    if depth or quote:
        raise ConfigError(f"{quote or 'a parenthesis'} is not closed.")
    parts.append(text[start:])
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()  # a trailing comma
    return parts
