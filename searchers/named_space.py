"""A nested dict of domains as parameters with names."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from searchers.base import Config
from searchers.errors import SpaceError
from searchers.space import Categorical, Domain, Float, Integer, LogUniform, Normal
from searchers.variants import (
    Path,
    check_space,
    draw_with,
    fill,
    fixed_domains,
    option_of,
    path_name,
    refuse_grids,
    resolve,
)

Values = dict[str, Any]
"""The parameters of one config by name; of a choice the index of its option."""


class DomainSpace:
    """A nested dict of domains as named parameters.

    A domain is named by its path, `net/width`. Those within option 1 of the choice `model` are `model/1/lr`, and exist
    only when that option is chosen.

    Attributes:
        space: as it was given.
        parameters: the domains by name, in the order of their sorted paths.
    """

    def __init__(self, space: Mapping[str, Any], who: str) -> None:
        refuse_grids(check_space(space), who)
        self.space = space
        self.parameters: dict[str, Domain] = {}
        for path, domain in fixed_domains(space):
            name = path_name(path)
            if name in self.parameters:
                raise SpaceError(f"two parameters of the space are called {name!r}; rename one.")
            self.check(name, domain)
            self.parameters[name] = domain

    def check(self, name: str, domain: Domain) -> None:
        """Refuse a domain that cannot be searched."""
        is_normal = isinstance(domain, Float) and isinstance(domain.base_and_q()[0], Normal)
        if isinstance(domain, Float) and not is_normal and not math.isfinite(domain.upper - domain.lower):
            raise SpaceError(f"{name} is {domain!r}; expected a range with two finite bounds.")

    def holds(self, name: str, domain: Domain, value: Any) -> bool:
        """Whether a value of a point is one of a domain that is no choice."""
        return domain.is_valid(value)

    def config(self, values: Values, filled: Any, rng: np.random.Generator) -> tuple[Config, Values]:
        """Return the config of `values`, and the values of all its parameters; `rng` draws those not given."""
        draw = draw_with(rng)
        used: Values = {} if filled is None else dict(values)

        def decide(path: Path, domain: Domain) -> Any:
            name = path_name(path)
            value = values[name] if name in values else draw(path, domain)
            if name in self.parameters:
                used[name] = value
            return value

        return resolve(self.space if filled is None else filled, decide), used

    def fix(self, point: Mapping[str, Any]) -> tuple[Values, Any]:
        """Return the values that a point gives, and the space with everything else that it gives in it."""
        values: Values = {}

        def put(path: Path, node: Any, value: Any) -> Any:
            name = path_name(path)
            if isinstance(node, Categorical):
                index = option_of(node.categories, value)
                if index is None:
                    raise SpaceError(f"the point sets {name} to {value!r}, which is not among {node.domain_str}.")
                values[name] = index
                filled = copy.copy(node)
                filled.categories = list(node.categories)
                filled.categories[index] = fill(node.categories[index], value, put, (*path, index))
                return filled
            if not isinstance(node, Domain):
                raise SpaceError(f"the point sets {name} to {value!r}; expected a dict of its keys.")
            if not self.holds(name, node, value):
                raise SpaceError(f"the point sets {name} to {value!r}; expected a value of {node!r}.")
            values[name] = node.cast(value)
            return node

        return values, fill(self.space, point, put)


class Range:
    """A range of numbers laid on 0 to 1; a log range by its logarithm.

    An integer lies in the middle of its cell, so that the first and the last have as much room as the others.

    Attributes:
        low, high: the two ends, of a log range their logarithms.
    """

    def __init__(self, domain: Float | Integer) -> None:
        low, high = float(domain.lower), float(domain.upper)
        if isinstance(domain, Integer):
            low, high = domain.first - domain.step / 2, domain.last + domain.step / 2
        self.is_log = isinstance(domain.base_and_q()[0], LogUniform)
        self.low, self.high = (math.log(low), math.log(high)) if self.is_log else (low, high)

    def position(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        if self.high <= self.low:
            return 0.5
        point = math.log(value) if self.is_log else float(value)
        return min(max((point - self.low) / (self.high - self.low), 0.0), 1.0)

    def value(self, position: float) -> float:
        """Return the number at a position, which rounding may have moved out of the domain."""
        point = self.low + position * (self.high - self.low)
        return math.exp(point) if self.is_log else point
