"""The search space of a command line: `lr=loguniform(1e-5,1e-1)`, `bs=16,32,64`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import searchers as space
from searchers.errors import SpaceError, nearest
from searchers.space import Float, Integer, LogUniform, Uniform
from sweep.core.literals import parse_literal
from sweep.errors import ConfigError

_NAME = re.compile(r"(\+{0,2}[A-Za-z_][\w.@/-]*)[=~](.*)", re.DOTALL)  # Hydra's keys are such, too
_CALL = re.compile(r"([A-Za-z_]\w*)\((.*)\)", re.DOTALL)
_FROM_TO = re.compile(r"([+-]?[\d.]*\d(?:e[+-]?\d+)?)\.\.+([+-]?\.?\d[\d.]*(?:e[+-]?\d+)?)", re.IGNORECASE)
MOST_STEPS = 100_000


def parse_parameter(text: str, *, is_grid: bool = False) -> tuple[str, Any]:
    """Return the name, and the domain, grid or single value, of one `name=RANGE`; Orion's `name~RANGE` is the same.
    With `is_grid` every listing is a grid."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is no parameter; expected NAME=VALUE or NAME=RANGE, such as lr=uniform(0,1).")
    name, given = match.groups()
    try:
        parts = _split(given)
        if ends := _FROM_TO.fullmatch(given.strip()):
            raise ConfigError(f"expected uniform({ends[1]},{ends[2]}), or loguniform or randint.")
        return name, domain_of(tuple(map(parse_literal, parts)) if len(parts) > 1 else _value(given), is_grid)
    except (ConfigError, SpaceError) as error:
        raise ConfigError(f"{name}={given}: {error}") from error


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set `config["a"]["b"]` for the path `a.b`."""
    *parents, last = path.split(".")
    for part in parents:
        config = config.setdefault(part, {})
        if not isinstance(config, dict):
            raise ConfigError(f"{path}: {part!r} already has a value of its own; a parameter cannot be both.")
    config[last] = value


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses, brackets and quotes; the last may be empty."""
    parts, depth, quote, opened = [""], 0, "", 0
    for column, character in enumerate(text, 1):
        opened = column if not depth and not quote and character in "([{'\"" else opened
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "," and not depth:
            parts.append("")
            continue
        depth += 0 if quote else (character in "([{") - (character in ")]}")
        if depth < 0:
            raise ConfigError(f"a closing {character!r} without an opening one, in column {column}.")
        parts[-1] += character
    if depth or quote:
        raise ConfigError(f"the {text[opened - 1]} in column {opened} is not closed.")
    return parts if len(parts) == 1 or parts[-1].strip() else parts[:-1]


def _value(text: str) -> Any:
    """Return what a word or `name(arguments)` stands for; values that are listed as a tuple, whole steps as a range."""
    match = _CALL.fullmatch(text.strip())
    if match is None:
        return parse_literal(text)
    name, arguments = match[1].lower(), [_value(one) for one in _split(match[2])] if match[2].strip() else []
    if name not in _FUNCTIONS:
        raise ConfigError(f"unknown function {match[1]!r}. {nearest(name, _FUNCTIONS)}")
    return called(_FUNCTIONS[name], *arguments)


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        inspect.signature(function).bind(*arguments)  # whose words suit what is missing, or too much
        return function(*arguments)
    except (TypeError, OverflowError) as error:
        raise ConfigError(f"{error}.") from error


def domain_of(value: Any, is_grid: bool) -> Any:
    """Return the domain, or the grid, of what is listed; anything else is itself."""
    if not isinstance(value, (tuple, range)):
        return value
    if is_grid:
        return space.grid_search(value)
    if isinstance(value, range) and value.step == 1:  # neighbours are alike, which a searcher may use
        return space.randint(value.start, value.stop)
    return space.choice(list(value))


def listed(values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)) or not values:
        raise ConfigError("expected a list of at least one value.")
    return tuple(values)


def _steps(start: Any, stop: Any = None, step: Any = 1) -> Any:
    start, stop = (0, start) if stop is None else (start, stop)
    if not step or not 0 < (stop - start) / step <= MOST_STEPS:
        raise ConfigError(f"expected 1 to {MOST_STEPS} steps; randint and uniform are for more.")
    if all(isinstance(one, int) for one in (start, stop, step)):
        return range(start, stop, step)
    return tuple(np.arange(start, stop, step).tolist())


def _interval(low: Any, high: Any) -> space.Domain:
    """Return Hydra's interval: of two whole numbers both ends belong to it."""
    is_whole = isinstance(low, int) and isinstance(high, int)
    return space.randint(low, high + 1) if is_whole else space.uniform(low, high)


def _tag(word: str, interval: Any) -> space.Domain:
    if word != "log" or not _is_interval(interval):
        raise ConfigError("expected tag(log, interval(...)).")
    make = space.lograndint if isinstance(interval, Integer) else space.loguniform
    return make(interval.lower, interval.upper)


def _int(inner: Any) -> Any:
    if isinstance(inner, (Integer, range)):
        return inner
    if isinstance(inner, tuple):
        return tuple(map(int, inner))
    if not _is_interval(inner):
        raise ConfigError("only uniform, loguniform, interval, range and choice can be made whole.")
    make = space.lograndint if isinstance(inner.sampler, LogUniform) else space.randint
    return make(int(inner.lower), int(inner.upper))


def _is_interval(domain: Any) -> bool:
    return isinstance(domain, (Float, Integer)) and isinstance(domain.sampler, (Uniform, LogUniform))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "uniform": space.uniform,
    "loguniform": space.loguniform,
    "quniform": space.quniform,
    "qloguniform": space.qloguniform,
    "randint": space.randint,
    "lograndint": space.lograndint,
    "qrandint": space.qrandint,
    "qlograndint": space.qlograndint,
    "randn": space.randn,
    "normal": space.randn,
    "qrandn": space.qrandn,
    "interval": _interval,
    "range": _steps,
    "choice": lambda *values: listed(values),
    "grid": lambda *values: space.grid_search(listed(values)),
    "tag": _tag,
    "int": _int,
}
