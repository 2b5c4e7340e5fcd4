"""The `parameters` of a spec file, in the words of W&B's sweep files, as a search space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import methodcaller
from typing import Any

import searchers as space
from searchers.errors import SpaceError, closest, nearest
from searchers.space import LogUniform
from sweep import checks
from sweep.cli.ranges import MOST_STEPS, called, domain_of, listed
from sweep.core.literals import parse_literal
from sweep.errors import ConfigError

Mistake = tuple[tuple[Any, ...], str]  # where, as keys, and what

ALIKE = 0.75
"""How alike a key that nothing bears must be to a known one, to be a slip and not a key of someone else's."""
_NUM_DEVIATIONS = 3  # where a normal distribution ends on both sides: 99.7 % of it lie between
_DEFAULTS: Mapping[str, Any] = {"q": 1, "mu": 0, "sigma": 1, "a": 1, "b": 1, "probabilities": None}


def space_of(
    parameters: Mapping[Any, Any],
    where: tuple[Any, ...] = (),
    *,
    is_grid: bool = False,
    ignored: list[tuple[Any, ...]] | None = None,
) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the search space that the `parameters` of a spec file describe, and what is wrong with them.

    `where` are the keys that lead to them; the keys without effect are added to `ignored`.
    """
    config: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for name, given in parameters.items():
        here = (*where, name)
        try:
            if not isinstance(name, str) or not isinstance(given, dict):
                raise ConfigError("expected a name and value, values, or min and max.")
            if isinstance(given.get("parameters"), dict) and len(given) == 1:
                inside = (*here, "parameters")
                config[name], inner = space_of(given["parameters"], inside, is_grid=is_grid, ignored=ignored)
                mistakes += inner
            else:
                config[name], unused = _parameter(given, is_grid)
                if ignored is not None:
                    ignored += [(*here, key) for key in unused]
        except (ConfigError, SpaceError) as error:
            mistakes.append((here, str(error)))
    return config, mistakes


def _parameter(given: Mapping[Any, Any], is_grid: bool) -> tuple[Any, list[str]]:
    """Return what a parameter is drawn from, and those of its keys that play no part in it."""
    values = {str(key): value for key, value in given.items() if value is not None or key == "value"}
    for key in values.keys() & _NUMBERS:  # PyYAML, and so W&B, reads 1e-4 as a text
        values[key] = parse_literal(values[key]) if isinstance(values[key], str) else values[key]
    kind = str(values.pop("distribution", None) or _kind_of(values))
    if kind not in DISTRIBUTIONS:
        raise ConfigError(f"unknown distribution {kind!r}. {nearest(kind, DISTRIBUTIONS)}")
    keys, make = DISTRIBUTIONS[kind]
    if not {*keys} - {*_DEFAULTS} <= {*values}:
        raise ConfigError(f"{kind} takes {', '.join(keys)}, found {', '.join(values) or 'nothing'}.")
    unused = sorted({*values} - {*keys})
    for key in unused:
        if key not in _KEYS and (meant := closest(key, _KEYS, ALIKE)):
            raise ConfigError(f"unknown key {key!r}. Did you mean {meant!r}?")
    value = called(make, *({**_DEFAULTS, **values}[key] for key in keys))
    if is_grid and kind != "constant":
        return _crossed(value), [*unused, *(["probabilities"] if "probabilities" in values else [])]
    return value if kind == "constant" else domain_of(value, False), unused


def _kind_of(values: Mapping[str, Any]) -> str:
    """Return the distribution of a parameter that names none."""
    is_whole = checks.is_whole(values.get("min")) and checks.is_whole(values.get("max"))
    meant = {
        "constant": "value" in values,
        "categorical": "values" in values,
        "int_uniform" if is_whole else "uniform": "min" in values and "max" in values,
        "normal": "mu" in values or "sigma" in values,
    }
    kind = next((name for name, is_meant in meant.items() if is_meant), None)
    if kind is None:
        raise ConfigError(f"expected value, values, or min and max, found {', '.join(values) or 'nothing'}.")
    return kind


def _crossed(value: Any) -> Any:
    """Return the grid of a parameter: its values, or the steps of its range."""
    q = value.base_and_q()[1] if isinstance(value, (space.Float, space.Integer)) else None
    if isinstance(value, space.Categorical):
        value = tuple(value.categories)
    steps = value if q is None else range(round(value.lower / q), round(value.upper / q) + 1)
    if not isinstance(steps, (range, tuple)):
        raise ConfigError("method grid needs values, or whole numbers as min and max; this range has no steps.")
    if steps[MOST_STEPS:]:
        raise ConfigError(f"method grid tries every step; expected at most {MOST_STEPS}, or another method.")
    return domain_of(steps if q is None else tuple(value.cast(step * q) for step in steps), True)


def _range(shape: Callable[[Any], Any], low: Any, high: Any, q: Any = None) -> Any:
    """Return the numbers from `low` to `high` in this shape; with `q` its multiples between those nearest to both.

    Multiples of a whole number are whole numbers. A logarithmic scale has no 0 and begins at the first multiple.
    """
    plain = shape(space.Float(low, high))
    if q is None:
        return plain
    checks.number("q", q, above=0)
    first, last = round(plain.lower / q), round(plain.upper / q)
    if isinstance(plain.sampler, LogUniform):
        first = max(first, 1)
        if last < 1:
            raise ConfigError(f"q={q!r} rounds all of {low!r} to {high!r} to 0. Give a smaller q.")
    is_whole = float(q).is_integer()
    ends = space.Integer(first * int(q), last * int(q)) if is_whole else space.Float(first * q, last * q)
    return shape(ends).quantized(int(q) if is_whole else q)


def _bell(shape: str, scale: Callable[[float], float], mu: Any, sigma: Any, q: Any = None) -> Any:
    space.randn(mu, sigma)  # its checks
    low, high = (scale(mu + side * _NUM_DEVIATIONS * sigma) for side in (-1, 1))
    return _range(methodcaller(shape, mu, sigma), low, high, q)


def _whole(low: Any, high: Any) -> range:
    ends = space.Integer(low, high)
    return range(ends.lower, ends.upper + 1)


def _options(values: Any, probabilities: Any) -> Any:
    options = listed(values)
    return options if probabilities is None else space.Categorical(options).weighted(listed(probabilities))


_ENDS = ("min", "max")
_log_values = partial(_range, methodcaller("loguniform"))
_RANGES: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "uniform": (_ENDS, partial(_range, methodcaller("uniform"))),
    "log_uniform": (_ENDS, lambda low, high, q=None: _log_values(math.exp(low), math.exp(high), q)),
    "log_uniform_values": (_ENDS, _log_values),
    "normal": (("mu", "sigma"), partial(_bell, "normal", float)),
    "log_normal": (("mu", "sigma"), partial(_bell, "lognormal", math.exp)),
    "beta": (("a", "b"), lambda a, b, q=None: _range(methodcaller("beta", a, b), 0.0, 1.0, q)),
}
DISTRIBUTIONS: Mapping[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "constant": (("value",), lambda value: value),
    **dict.fromkeys(("categorical", "categorical_w_probabilities"), (("values", "probabilities"), _options)),
    "int_uniform": (_ENDS, _whole),
    **_RANGES,
    **{f"q_{name}": ((*keys, "q"), make) for name, (keys, make) in _RANGES.items()},
    # The logarithm of 1/x is uniform where that of x is.
    "inv_log_uniform": (_ENDS, lambda low, high: _log_values(math.exp(-high), math.exp(-low))),
    "inv_log_uniform_values": (_ENDS, _log_values),
}
"""Name of a distribution -> the keys that it takes, and what it is of them."""
_KEYS = {"distribution", "parameters", *(key for keys, _ in DISTRIBUTIONS.values() for key in keys)}
_NUMBERS = _KEYS - {"distribution", "parameters", "value", "values", "probabilities"}
