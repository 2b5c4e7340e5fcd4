"""The search space of a command line, `lr=loguniform(1e-5,1e-1)`, `bs=16,32,64`, and that of a spec file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import searchers as space
from searchers.errors import SpaceError
from searchers.space import Float, Integer, LogUniform, Uniform
from sweep.core.literals import parse_literal
from sweep.errors import ConfigError, nearest

_NAME = re.compile(r"(?:--)?([A-Za-z_][\w.-]*)[=~](.*)", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)
_FROM_TO = re.compile(r"([+-]?[\d.]*\d(?:e[+-]?\d+)?)\.\.+([+-]?\.?\d[\d.]*(?:e[+-]?\d+)?)", re.IGNORECASE)


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
    return value.domain(is_grid) if isinstance(value, _Listing) else value


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
        return make(*_numbers(arguments, least, most))
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


def _hydra_interval(low: float, high: float) -> space.Domain:
    """Return Hydra's interval: of two whole numbers both ends belong to it."""
    is_whole = isinstance(low, int) and isinstance(high, int)
    return space.randint(int(low), int(high) + 1) if is_whole else space.uniform(low, high)


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


def _tag(arguments: list[str]) -> space.Domain:
    if len(arguments) != 2 or arguments[0] != "log":
        raise ConfigError("expected tag(log, interval(...)).")
    domain = _inner(arguments[1])
    if not _is_interval(domain):
        raise ConfigError("only an interval can be tagged log.")
    make = space.lograndint if isinstance(domain, Integer) else space.loguniform
    return make(domain.lower, domain.upper)


def _int(arguments: list[str]) -> space.Domain | _Listing:
    if len(arguments) != 1:
        raise ConfigError("expected int(uniform(...)), int(loguniform(...)) or int(interval(...)).")
    inner = _inner(arguments[0])
    if isinstance(inner, _Listing):
        return _Listing(tuple(map(int, inner.values)), inner.is_grid)
    if isinstance(inner, Integer):
        return inner
    if not _is_interval(inner):
        raise ConfigError("only uniform, loguniform, interval, range and choice can be made whole.")
    make = space.lograndint if isinstance(inner.sampler, LogUniform) else space.randint
    return make(int(inner.lower), int(inner.upper))


def _is_interval(domain: Any) -> bool:
    return isinstance(domain, (Float, Integer)) and isinstance(domain.sampler, (Uniform, LogUniform))


# Name of a function of numbers -> what makes it, the least and the most of them.
_NUMERIC: Mapping[str, tuple[Callable[..., Any], int, int]] = {
    "uniform": (space.uniform, 2, 2),
    "loguniform": (space.loguniform, 2, 2),
    "interval": (_hydra_interval, 2, 2),
    "quniform": (space.quniform, 3, 3),
    "qloguniform": (space.qloguniform, 3, 3),
    "randint": (space.randint, 2, 2),
    "lograndint": (space.lograndint, 2, 2),
    "qrandint": (space.qrandint, 2, 3),
    "qlograndint": (space.qlograndint, 2, 3),
    "randn": (space.randn, 0, 2),
    "normal": (space.randn, 2, 2),
    "qrandn": (space.qrandn, 3, 3),
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


# --- the parameters of a spec file, in W&B's words ---


def space_of(parameters: Mapping[str, Any], *, is_grid: bool = False) -> dict[str, Any]:
    """Return the search space that the `parameters` of a spec file describe.

    Args:
        is_grid: cross all listed values and whole-number ranges instead of drawing from them.

    Raises:
        ConfigError, SpaceError: a parameter makes no sense.
    """
    config: dict[str, Any] = {}
    for name, given in parameters.items():
        parameter = given if isinstance(given, dict) else {"value": given}
        inner = parameter.get("parameters")
        config[str(name)] = domain_of(parameter, is_grid) if inner is None else space_of(inner, is_grid=is_grid)
    return config


def domain_of(parameter: Mapping[str, Any], is_grid: bool) -> Any:
    """Return what a parameter is drawn from."""
    kind = _distribution(parameter)
    low, high = parameter.get("min"), parameter.get("max")
    if low is not None and high is not None and low > high:
        raise ConfigError(f"min {low:g} is above max {high:g}.")
    if kind == "int_uniform" and not (isinstance(low, int) and isinstance(high, int)):
        raise ConfigError("int_uniform needs whole numbers as min and max.")
    if kind == "uniform" and is_grid:
        raise ConfigError("method grid needs values, or whole numbers as min and max; this range has no steps.")
    if is_grid and kind in _LISTED:
        return space.grid_search(_LISTED[kind](parameter))
    values = {name: value for name, value in parameter.items() if value is not None or name == "value"}
    return _DISTRIBUTIONS[kind][2]({"q": 1, "mu": 0, "sigma": 1} | values)


def _distribution(parameter: Mapping[str, Any]) -> str:
    """Return the distribution that is named or meant, once it is known to have what it needs and nothing else."""
    given = {name for name, value in parameter.items() if value is not None or name == "value"} - {"distribution"}
    kind = parameter.get("distribution")
    if kind is None:
        is_whole = isinstance(parameter.get("min"), int) and isinstance(parameter.get("max"), int)
        meant = (
            ("constant", "value" in given),
            ("categorical", "values" in given),
            ("normal", {"mu", "sigma"} & given),
            ("int_uniform" if is_whole else "uniform", given >= {"min", "max"}),
        )
        kind = next((name for name, is_meant in meant if is_meant), None)
    if kind is None:
        raise ConfigError("expected value, values, or min and max.")
    if kind not in DISTRIBUTIONS:
        raise ConfigError(f"unknown distribution {kind!r}. {nearest(kind, DISTRIBUTIONS)}")
    needed, optional, _ = _DISTRIBUTIONS[kind]
    if missing := set(needed) - given:
        raise ConfigError(f"{kind} needs {' and '.join(sorted(missing))}.")
    if others := given - {*needed, *optional}:
        raise ConfigError(f"{kind} takes no {' and '.join(sorted(others))}.")
    return kind


# Name of a distribution -> the keys that it needs, those that it may have, and what it is.
_DISTRIBUTIONS: Mapping[str, tuple[Sequence[str], Sequence[str], Callable[[Any], Any]]] = {
    "constant": (("value",), (), lambda p: p["value"]),
    "categorical": (("values",), (), lambda p: space.choice(p["values"])),
    "int_uniform": (("min", "max"), (), lambda p: space.randint(p["min"], p["max"] + 1)),
    "uniform": (("min", "max"), (), lambda p: space.uniform(p["min"], p["max"])),
    "q_uniform": (("min", "max"), ("q",), lambda p: space.quniform(p["min"], p["max"], p["q"])),
    "log_uniform": (("min", "max"), (), lambda p: space.loguniform(math.exp(p["min"]), math.exp(p["max"]))),
    "log_uniform_values": (("min", "max"), (), lambda p: space.loguniform(p["min"], p["max"])),
    "q_log_uniform_values": (("min", "max"), ("q",), lambda p: space.qloguniform(p["min"], p["max"], p["q"])),
    "normal": ((), ("mu", "sigma"), lambda p: space.randn(p["mu"], p["sigma"])),
    "q_normal": ((), ("mu", "sigma", "q"), lambda p: space.qrandn(p["mu"], p["sigma"], p["q"])),
}
DISTRIBUTIONS = tuple(_DISTRIBUTIONS)
# What method grid tries of a distribution.
_LISTED: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "categorical": lambda p: p["values"],
    "int_uniform": lambda p: range(p["min"], p["max"] + 1),
}
