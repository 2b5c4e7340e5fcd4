"""Search spaces and searchers: what proposes configs and learns from results. Pure, and usable without `sweep`.

Names are loaded when they are first used: every process of a trial imports this package, and few need numpy for it.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "searchers.adapter": "ForeignSearcher as_searcher",
    "searchers.base": "EXHAUSTED NOT_NOW Config Searcher Signal derived_seed keyed_rng",
    "searchers.bayesopt_search": "BayesOptSearch",
    "searchers.bohb_search": "BOHBSearch TuneBOHB",
    "searchers.errors": "SearchError SearchExhausted SearchWaits SpaceError UnknownArgument UnknownNameError",
    "searchers.grid": "BasicVariantGenerator GridSearch RandomSearch",
    "searchers.hyperopt_search": "HyperOptSearch",
    "searchers.optuna_search": "OptunaSearch",
    "searchers.pareto": "pareto_front",
    "searchers.registry": "SEARCHERS create_searcher name_of",
    "searchers.space": """
        Categorical Domain Float Function Integer choice grid_search lograndint loguniform qlograndint qloguniform
        qrandint qrandn quniform randint randn sample_from uniform
    """,
    "searchers.wrapper": "ConcurrencyLimiter Repeater",
}
"""Where the names are: module -> names. Type checkers and editors read __init__.pyi."""
_HOME_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF.keys() - {"name_of"})


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
