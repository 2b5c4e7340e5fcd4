"""The `parameters` of a spec file, in W&B's words, as a search space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

import searchers as space
from searchers.errors import nearest
from sweep.errors import ConfigError

Number = Annotated[float, Field(strict=True)] | StrictInt


class Model(BaseModel):
    """A part of a spec file: unknown keys and other types are mistakes."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Parameter(Model):
    """One entry of `parameters`."""

    distribution: str | None = None
    value: Any = None
    values: list[Any] | None = Field(None, min_length=1)
    min: Number | None = None
    max: Number | None = None
    q: Number | None = None
    mu: Number | None = None
    sigma: Number | None = None
    parameters: dict[str, Any] | None = None


def space_of(parameters: Mapping[str, Any], *, is_grid: bool = False) -> dict[str, Any]:
    """Return the search space that the `parameters` of a spec file describe.

    Args:
        is_grid: cross all listed values and whole-number ranges instead of drawing from them.

    Raises:
        ConfigError, SpaceError: a parameter makes no sense.
    """
    found: dict[str, Any] = {}
    for name, given in parameters.items():
        parameter = Parameter.model_validate(given if isinstance(given, dict) else {"value": given})
        inner = parameter.parameters
        found[str(name)] = domain_of(parameter, is_grid) if inner is None else space_of(inner, is_grid=is_grid)
    return found


def domain_of(parameter: Parameter, is_grid: bool) -> Any:
    """Return what a parameter is drawn from.

    Raises:
        ConfigError, SearchError: it makes no sense.
    """
    kind = _distribution(parameter)
    low, high = parameter.min, parameter.max
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
    values = parameter.model_dump(exclude={"distribution"}, exclude_unset=True)
    given = {name for name, value in values.items() if value is not None or name == "value"}
    kind = parameter.distribution
    if kind is None:
        is_whole = isinstance(parameter.min, int) and isinstance(parameter.max, int)
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
    "constant": (("value",), (), lambda p: p.value),
    "categorical": (("values",), (), lambda p: space.choice(p.values)),
    "int_uniform": (("min", "max"), (), lambda p: space.randint(p.min, p.max + 1)),
    "uniform": (("min", "max"), (), lambda p: space.uniform(p.min, p.max)),
    "q_uniform": (("min", "max"), ("q",), lambda p: space.quniform(p.min, p.max, _or(p.q, 1))),
    "log_uniform": (("min", "max"), (), lambda p: space.loguniform(math.exp(p.min), math.exp(p.max))),
    "log_uniform_values": (("min", "max"), (), lambda p: space.loguniform(p.min, p.max)),
    "q_log_uniform_values": (("min", "max"), ("q",), lambda p: space.qloguniform(p.min, p.max, _or(p.q, 1))),
    "normal": ((), ("mu", "sigma"), lambda p: space.randn(_or(p.mu, 0), _or(p.sigma, 1))),
    "q_normal": ((), ("mu", "sigma", "q"), lambda p: space.qrandn(_or(p.mu, 0), _or(p.sigma, 1), _or(p.q, 1))),
}
DISTRIBUTIONS = tuple(_DISTRIBUTIONS)
# What method grid tries of a distribution.
_LISTED: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "categorical": lambda p: p.values,
    "int_uniform": lambda p: range(p.min, p.max + 1),
}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
