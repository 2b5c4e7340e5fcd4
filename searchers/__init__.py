"""Search spaces and searchers: what proposes configs and learns from results. Pure, and usable without `sweep`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from searchers.base import EXHAUSTED, NOT_NOW, Config, Searcher, Signal, derived_seed, keyed_rng
from searchers.errors import SearchError, SpaceError, UnknownNameError, nearest
from searchers.grid_search import BasicVariantGenerator, GridSearch
from searchers.limiter import ConcurrencyLimiter
from searchers.optuna_search import OptunaSearch
from searchers.random_search import RandomSearch
from searchers.repeater import Repeater
from searchers.space import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

__all__ = [
    "EXHAUSTED",
    "NOT_NOW",
    "SEARCHERS",
    "BasicVariantGenerator",
    "Categorical",
    "ConcurrencyLimiter",
    "Config",
    "Domain",
    "Float",
    "Function",
    "GridSearch",
    "Integer",
    "OptunaSearch",
    "RandomSearch",
    "Repeater",
    "SearchError",
    "Searcher",
    "Signal",
    "SpaceError",
    "UnknownNameError",
    "choice",
    "create_searcher",
    "derived_seed",
    "grid_search",
    "keyed_rng",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]

SEARCHERS: Mapping[str, Callable[..., Searcher]] = {
    "random": BasicVariantGenerator,
    "variant_generator": BasicVariantGenerator,
    "grid": GridSearch,
    "optuna": OptunaSearch,
    "tpe": partial(OptunaSearch, sampler="tpe"),
    "cmaes": partial(OptunaSearch, sampler="cmaes"),
    "gp": partial(OptunaSearch, sampler="gp"),
    "qmc": partial(OptunaSearch, sampler="qmc"),
    "nsgaii": partial(OptunaSearch, sampler="nsgaii"),
}
"""What a searcher is called in `search_alg="..."`, on the command line and in spec files."""


def create_searcher(name: str, **arguments: Any) -> Searcher:
    """Return the searcher that `SEARCHERS` lists under `name` (in any case), built with `arguments`.

    Raises:
        UnknownNameError: there is no such searcher; the message names the nearest.
        SearchError: it does not take one of the arguments; the message names the nearest, or an argument is wrong.

    Example:
        >>> from searchers import create_searcher
        >>> create_searcher("random", random_state=1).is_adaptive
        False
    """
    key = name.lower() if isinstance(name, str) else name
    if key not in SEARCHERS:
        raise UnknownNameError(f"no searcher is called {name!r}. {nearest(str(key), SEARCHERS)}")
    make = SEARCHERS[key]
    taken = set(inspect.signature(make).parameters) - set(make.keywords if isinstance(make, partial) else ())
    for argument in arguments:
        if argument not in taken:
            raise SearchError(f"the searcher {key!r} takes no argument {argument!r}. {nearest(argument, taken)}")
    return make(**arguments)
