"""Searchers by name, as in `search_alg="tpe"`, on the command line and in spec files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import searchers
from searchers.errors import UnknownArgument, UnknownNameError, nearest
from searchers.keywords import unknown_argument

if TYPE_CHECKING:
    from searchers.base import Searcher

    SEARCHERS: Mapping[str, Callable[..., Searcher]]


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
"""Name -> class of this package, and arguments that the name implies."""

_WITHOUT_ADAPTER = {
    **dict.fromkeys(("ax", "dragonfly", "hebo", "sigopt", "skopt"), "gp"),  # Gaussian processes and the like
    **dict.fromkeys(("blendsearch", "cfo", "nevergrad", "zoopt"), "cmaes"),
}
"""Libraries that Ray Tune knows by name, or once did, and no class here wraps -> the nearest method that is here."""


def __getattr__(name: str) -> Any:
    if name != "SEARCHERS":  # made when it is first used, because it imports every searcher
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = {key: _maker(*what) for key, what in _CLASSES.items()}
    return value


def name_of(searcher: Searcher) -> str:
    """Return the name under which `SEARCHERS` lists the class of a searcher; else the name of the class."""
    kind = type(searcher)
    for name, (class_name, _) in _CLASSES.items():
        if class_name == kind.__name__ and getattr(searchers, class_name) is kind:
            return name
    return kind.__name__


def _maker(class_name: str, arguments: dict[str, Any]) -> Callable[..., Searcher]:
    kind: Callable[..., Searcher] = getattr(searchers, class_name)
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
        if key in _WITHOUT_ADAPTER:
            advice = f"That library has no adapter here; the nearest is {_WITHOUT_ADAPTER[key]!r}."
            raise UnknownNameError(f"no searcher is called {name!r}. {advice} Known: {', '.join(sorted(_CLASSES))}.")
        raise UnknownNameError(f"no searcher is called {name!r}. {nearest(str(key), _CLASSES)}")
    make = _maker(*_CLASSES[key])
    fixed = dict.fromkeys(make.keywords if isinstance(make, partial) else (), "The name says it already.")
    known = inspect.signature(make).parameters.keys() - fixed.keys()
    if not known >= arguments.keys():
        raise UnknownArgument(unknown_argument(f"the searcher {key!r}", arguments, known, fixed))
    return make(**arguments)
