"""The `parameters` of a spec file, in W&B's words, as a search space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import searchers as space
from searchers.errors import nearest
from sweep import checks
from sweep.errors import ConfigError


def a_number(value: Any) -> object:
    """Refuse what is no number."""
    return checks.number("", value, is_finite=False)


def keys(value: Any) -> None:
    """Refuse what has no keys."""
    if not isinstance(value, dict):
        checks.refuse("", value, "keys with values")


def a_text(value: Any) -> None:
    """Refuse what is no text."""
    if not isinstance(value, str):
        checks.refuse("", value, "a text")


def _some(value: Any) -> None:
    if not isinstance(value, list):
        checks.refuse("", value, "a list")
    if not value:
        raise ConfigError("found a list; expected at least one value.")


PARAMETER: Mapping[str, Callable[[Any], object]] = {
    "distribution": a_text,
    "value": lambda value: None,
    "values": _some,
    **dict.fromkeys(("min", "max", "q", "mu", "sigma"), a_number),
    "parameters": keys,
}
"""What one entry of `parameters` may have -> its check."""
Parameter = Mapping[str, Any]


def space_of(parameters: Mapping[str, Any], *, is_grid: bool = False) -> dict[str, Any]:
    """Return the search space that the `parameters` of a spec file describe.

    Args:
        is_grid: cross all listed values and whole-number ranges instead of drawing from them.

    Raises:
        ConfigError, SpaceError: a parameter makes no sense.
    """
    found: dict[str, Any] = {}
    for name, given in parameters.items():
        parameter = given if isinstance(given, dict) else {"value": given}
        inner = parameter.get("parameters")
        found[str(name)] = domain_of(parameter, is_grid) if inner is None else space_of(inner, is_grid=is_grid)
    return found


def domain_of(parameter: Parameter, is_grid: bool) -> Any:
    """Return what a parameter is drawn from.

    Raises:
        ConfigError, SearchError: it makes no sense.
    """
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
    return _DISTRIBUTIONS[kind][2](parameter)


def _distribution(parameter: Parameter) -> str:
    """Return the distribution that is named or meant.

    Raises:
        ConfigError: an unknown one, or one whose numbers are missing or too many.
    """
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
    "q_uniform": (("min", "max"), ("q",), lambda p: space.quniform(p["min"], p["max"], _or(p, "q", 1))),
    "log_uniform": (("min", "max"), (), lambda p: space.loguniform(math.exp(p["min"]), math.exp(p["max"]))),
    "log_uniform_values": (("min", "max"), (), lambda p: space.loguniform(p["min"], p["max"])),
    "q_log_uniform_values": (("min", "max"), ("q",), lambda p: space.qloguniform(p["min"], p["max"], _or(p, "q", 1))),
    "normal": ((), ("mu", "sigma"), lambda p: space.randn(_or(p, "mu", 0), _or(p, "sigma", 1))),
    "q_normal": ((), ("mu", "sigma", "q"), lambda p: space.qrandn(_or(p, "mu", 0), _or(p, "sigma", 1), _or(p, "q", 1))),
}
DISTRIBUTIONS = tuple(_DISTRIBUTIONS)
# What method grid tries of a distribution.
_LISTED: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "categorical": lambda p: p["values"],
    "int_uniform": lambda p: range(p["min"], p["max"] + 1),
}


def _or(parameter: Parameter, name: str, default: float) -> Any:
    value = parameter.get(name)
    return default if value is None else value
