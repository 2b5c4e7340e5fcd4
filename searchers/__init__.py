"""Search spaces and searchers: what proposes configs and learns from results. Pure, and usable without `sweep`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from searchers.errors import (
    SearchError,
    SearchExhausted,
    SearchWaits,
    SpaceError,
    UnknownArgument,
    UnknownNameError,
    nearest,
)
from searchers.keywords import unknown_argument

if TYPE_CHECKING:
    SEARCHERS: Mapping[str, Callable[..., Searcher]]

    from searchers.adapter import ForeignSearcher as ForeignSearcher
    from searchers.adapter import as_searcher as as_searcher
    from searchers.base import EXHAUSTED as EXHAUSTED
    from searchers.base import NOT_NOW as NOT_NOW
    from searchers.base import Config as Config
    from searchers.base import Searcher as Searcher
    from searchers.base import Signal as Signal
    from searchers.base import derived_seed as derived_seed
    from searchers.base import keyed_rng as keyed_rng
    from searchers.bayesopt_search import BayesOptSearch as BayesOptSearch
    from searchers.bohb_search import BOHBSearch as BOHBSearch
    from searchers.bohb_search import TuneBOHB as TuneBOHB
    from searchers.grid import BasicVariantGenerator as BasicVariantGenerator
    from searchers.grid import GridSearch as GridSearch
    from searchers.hyperopt_search import HyperOptSearch as HyperOptSearch
    from searchers.limiter import ConcurrencyLimiter as ConcurrencyLimiter
    from searchers.optuna_search import OptunaSearch as OptunaSearch
    from searchers.pareto import pareto_front as pareto_front
    from searchers.random_search import RandomSearch as RandomSearch
    from searchers.repeater import Repeater as Repeater
    from searchers.space import Categorical as Categorical
    from searchers.space import Domain as Domain
    from searchers.space import Float as Float
    from searchers.space import Function as Function
    from searchers.space import Integer as Integer
    from searchers.space import choice as choice
    from searchers.space import grid_search as grid_search
    from searchers.space import lograndint as lograndint
    from searchers.space import loguniform as loguniform
    from searchers.space import qlograndint as qlograndint
    from searchers.space import qloguniform as qloguniform
    from searchers.space import qrandint as qrandint
    from searchers.space import qrandn as qrandn
    from searchers.space import quniform as quniform
    from searchers.space import randint as randint
    from searchers.space import randn as randn
    from searchers.space import sample_from as sample_from
    from searchers.space import uniform as uniform

# Names are loaded when they are first used: every process of a trial imports this package, and few need numpy for it.
_HOMES = {
    "searchers.adapter": ("ForeignSearcher", "as_searcher"),
    "searchers.base": ("EXHAUSTED", "NOT_NOW", "Config", "Searcher", "Signal", "derived_seed", "keyed_rng"),
    "searchers.bayesopt_search": ("BayesOptSearch",),
    "searchers.bohb_search": ("BOHBSearch", "TuneBOHB"),
    "searchers.grid": ("BasicVariantGenerator", "GridSearch"),
    "searchers.hyperopt_search": ("HyperOptSearch",),
    "searchers.limiter": ("ConcurrencyLimiter",),
    "searchers.optuna_search": ("OptunaSearch",),
    "searchers.pareto": ("pareto_front",),
    "searchers.random_search": ("RandomSearch",),
    "searchers.repeater": ("Repeater",),
    "searchers.space": (
        "Categorical",
        "Domain",
        "Float",
        "Function",
        "Integer",
        "choice",
        "grid_search",
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
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


__all__ = [
    *_HOME_OF,
    "SEARCHERS",
    "SearchError",
    "SearchExhausted",
    "SearchWaits",
    "SpaceError",
    "UnknownArgument",
    "UnknownNameError",
    "create_searcher",
]

_CLASSES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "random": ("BasicVariantGenerator", {}),
    "variant_generator": ("BasicVariantGenerator", {}),
    "grid": ("GridSearch", {}),
    "optuna": ("OptunaSearch", {}),
    "tpe": ("OptunaSearch", {"sampler": "tpe"}),
    "cmaes": ("OptunaSearch", {"sampler": "cmaes"}),
    "gp": ("OptunaSearch", {"sampler": "gp"}),
    "qmc": ("OptunaSearch", {"sampler": "qmc"}),
    "nsgaii": ("OptunaSearch", {"sampler": "nsgaii"}),
    "nsgaiii": ("OptunaSearch", {"sampler": "nsgaiii"}),
    "hyperopt": ("HyperOptSearch", {}),
    "bayesopt": ("BayesOptSearch", {}),
    "bohb": ("BOHBSearch", {}),
}


def __getattr__(name: str) -> Any:
    value: Any
    if name == "SEARCHERS":
        # what a searcher is called in `search_alg="..."`, on the command line and in spec files
        value = {key: _maker(*what) for key, what in _CLASSES.items()}
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'searchers' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def name_of(searcher: Searcher) -> str:
    """Return the name under which `SEARCHERS` lists the class of a searcher; for a class of others that class's own.

    The table is not needed for it: it would import every searcher.
    """
    kind = type(searcher)
    for name, (class_name, _) in _CLASSES.items():
        if class_name == kind.__name__ and _HOME_OF[class_name] == kind.__module__:
            return name
    return kind.__name__


def _maker(class_name: str, arguments: dict[str, Any]) -> Callable[..., Searcher]:
    kind: Callable[..., Searcher] = __getattr__(class_name)
    return partial(kind, **arguments) if arguments else kind


def create_searcher(name: str, **arguments: Any) -> Searcher:
    """Return the searcher that `SEARCHERS` lists under `name` (in any case), built with `arguments`.

    Raises:
        UnknownNameError: there is no such searcher; the message names the nearest.
        UnknownArgument: it does not take one of the arguments; the message names the nearest.
        SearchError: an argument is wrong.

    Example:
        >>> from searchers import create_searcher
        >>> create_searcher("random", random_state=1).is_adaptive
        False
    """
    key = name.lower() if isinstance(name, str) else name
    if key not in _CLASSES:
        raise UnknownNameError(f"no searcher is called {name!r}. {nearest(str(key), _CLASSES)}")
    make = _maker(*_CLASSES[key])
    fixed = dict.fromkeys(make.keywords if isinstance(make, partial) else (), "The name says it already.")
    known = inspect.signature(make).parameters.keys() - fixed.keys()
    if not known >= arguments.keys():
        raise UnknownArgument(unknown_argument(f"the searcher {key!r}", arguments, known, fixed))
    return make(**arguments)
