"""How population based training changes a config: which keys it may change, to what, and how far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from searchers.space import Categorical, Domain, Float, Integer, is_same
from searchers.variants import fresh
from sweep import checks
from sweep.errors import ConfigError

Mutations = Mapping[str, Any]


def quantile_size(num_trials: int, fraction: float) -> int:
    """Return how many trials the best (and the worst) `fraction` of a population is: rounded up, at most half of it."""
    if num_trials <= 1:
        return 0
    size = math.ceil(num_trials * fraction - 1e-9)  # 0.07 * 100 is a little more than 7 in floating point
    return num_trials // 2 if size > num_trials / 2 else size


def checked_mutations(mutations: Any, path: str = "hyperparam_mutations") -> dict[str, Any]:
    """Return what may be changed as a nested dict of lists, domains and functions; anything else is a ConfigError."""
    if not isinstance(mutations, Mapping):
        checks.refuse(path, mutations, "a dict of names and what each may become")
    checked: dict[str, Any] = {}
    for key, spec in mutations.items():
        here = f"{path}[{key!r}]"
        if isinstance(spec, Mapping):
            if set(spec) == {"grid_search"}:
                raise ConfigError(f"{here} is a grid; give the list itself: {spec['grid_search']!r:.100}.")
            checked[key] = checked_mutations(spec, here)
        elif isinstance(spec, Domain) and spec.is_function():
            raise ConfigError(
                f"{here} is sample_from, which is computed from the rest of the config; give a list, another domain or "
                "a function without arguments, or change such values in custom_explore_fn."
            )
        elif isinstance(spec, Categorical):
            checked[key] = list(spec.categories)
        elif isinstance(spec, (list, tuple)):
            if not spec:
                raise ConfigError(f"{here} is empty; give at least one value.")
            checked[key] = list(spec)
        elif isinstance(spec, Domain) or callable(spec):
            checked[key] = spec
        else:
            domain = "a domain such as uniform(0, 1), a function without arguments"
            checks.refuse(here, spec, f"a list of values, {domain}, or a dict of these")
    return checked


def explore(
    config: Mapping[str, Any],
    mutations: Mutations,
    rng: np.random.Generator,
    resample_probability: float,
    factors: Sequence[float],
) -> dict[str, Any]:
    """Return a changed copy of a config; what `mutations`, once checked, do not name stays as it is.

    A listed value moves to a neighbour in its list, and stays where there is none. A number is multiplied by one of
    the factors; an int stays one (cut off, not rounded), and a domain's bounds and steps are kept. With
    `resample_probability`, and where a value is not in its list or is no number, a new one is drawn instead.
    """
    new: dict[str, Any] = fresh(config)
    for key, spec in mutations.items():
        if isinstance(spec, Mapping):
            inner = new.get(key)
            new[key] = explore(inner if isinstance(inner, dict) else {}, spec, rng, resample_probability, factors)
        elif key not in new or rng.random() < resample_probability:
            new[key] = _drawn(spec, rng)
        elif isinstance(spec, list):
            new[key] = _neighbour(new[key], spec, rng)
        else:
            new[key] = _scaled(new[key], spec, rng, factors)
    return new


def customised(
    config: dict[str, Any], custom_explore_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Return what a function of the user makes of a changed config; without one, the config itself."""
    if custom_explore_fn is None:
        return config
    answer = custom_explore_fn(config)
    if not isinstance(answer, Mapping):
        raise ConfigError(f"custom_explore_fn returned {answer!r:.100}; expected the config to use, a dict.")
    return dict(answer)


def complete_config(config: Mapping[str, Any], mutations: Mutations, rng: np.random.Generator) -> dict[str, Any]:
    """Return a copy of a config in which every key of `mutations` that it lacks has a value, drawn from there."""
    new: dict[str, Any] = fresh(config)
    for key, spec in mutations.items():
        if not isinstance(spec, Mapping):
            if key not in new:
                new[key] = _drawn(spec, rng)
        elif isinstance(inner := new.get(key, {}), dict):
            new[key] = complete_config(inner, spec, rng)
    return new


def _drawn(spec: Any, rng: np.random.Generator) -> Any:
    if isinstance(spec, list):
        return spec[int(rng.integers(len(spec)))]
    return spec.draw(rng) if isinstance(spec, Domain) else spec()


def _neighbour(value: Any, options: list[Any], rng: np.random.Generator) -> Any:
    index = next((i for i, option in enumerate(options) if is_same(value, option)), None)
    if index is None:
        return _drawn(options, rng)
    index += int(rng.choice([-1, 1]))
    return options[min(max(index, 0), len(options) - 1)]


def _scaled(value: Any, spec: Any, rng: np.random.Generator, factors: Sequence[float]) -> Any:
    """Return a number times a factor, within its domain; anything else is drawn anew."""
    if not checks.is_number(value, is_finite=False):
        return _drawn(spec, rng)
    new = float(value) * float(factors[int(rng.integers(len(factors)))])
    if not math.isfinite(new):
        return _drawn(spec, rng)
    if is_whole := isinstance(value, Integral):
        new = int(new)
    if isinstance(spec, Integer):
        return int(spec.quantize(min(max(new, spec.first), spec.last)))
    if isinstance(spec, Float):
        new = spec.quantize(min(max(new, spec.lower), spec.upper))
    return int(new) if is_whole else float(new)
