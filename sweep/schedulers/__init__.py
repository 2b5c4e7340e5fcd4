"""Trial schedulers: which trials continue, stop, pause or clone another."""

from __future__ import annotations

from typing import Any

from searchers.errors import nearest
from sweep.errors import ConfigError, UnknownNameError
from sweep.schedulers.asha import ASHAScheduler, AsyncHyperBandScheduler
from sweep.schedulers.base import Scheduler
from sweep.schedulers.distribute import DistributeResources, DistributeResourcesToTopJob, TrialsView
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.hyperband import HyperBandForBOHB, HyperBandScheduler
from sweep.schedulers.median import MedianStoppingRule
from sweep.schedulers.moasha import MOASHAScheduler
from sweep.schedulers.pasha import PASHAScheduler
from sweep.schedulers.pb2 import PB2
from sweep.schedulers.pbt import PopulationBasedTraining
from sweep.schedulers.pbt_replay import PopulationBasedTrainingReplay
from sweep.schedulers.resource_changing import ResourceChangingScheduler

__all__ = [
    "PASHAScheduler",
    "PB2",
    "SCHEDULERS",
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MOASHAScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ResourceChangingScheduler",
    "Scheduler",
    "TrialsView",
    "create_scheduler",
]

SCHEDULERS: dict[str, type[Scheduler]] = {
    "fifo": FIFOScheduler,
    "asha": ASHAScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "pasha": PASHAScheduler,
    "moasha": MOASHAScheduler,
    "hyperband": HyperBandScheduler,
    "hb_bohb": HyperBandForBOHB,
    "bohb": HyperBandForBOHB,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
    "pb2": PB2,
    "resource_changing": ResourceChangingScheduler,
}

# What a scheduler cannot do without: arguments of which one must be given, and a call that gives it.
_NEEDED: dict[type[Scheduler], tuple[tuple[str, ...], str]] = {
    PopulationBasedTrainingReplay: (
        ("policy_file",),
        "PopulationBasedTrainingReplay('sweep_results/NAME/pbt_policy_<trial>.txt'). A sweep with "
        "scheduler=sweep.PopulationBasedTraining(...) writes such a file.",
    ),
    PopulationBasedTraining: (
        ("hyperparam_mutations", "custom_explore_fn"),
        "PopulationBasedTraining(hyperparam_mutations={'lr': sweep.loguniform(1e-4, 1e-1)}).",
    ),
    PB2: (("hyperparam_bounds",), "PB2(hyperparam_bounds={'lr': [1e-4, 1e-1]})."),
}


def create_scheduler(name: str, **arguments: Any) -> Scheduler:
    """Return the scheduler of that name, upper or lower case, built with `arguments`.

    Raises:
        UnknownNameError: no scheduler has that name.
        ConfigError: it has no such argument, refuses the value, or lacks one that it cannot do without.
    """
    kind = SCHEDULERS.get(str(name).lower())
    if kind is None:
        raise UnknownNameError(f"there is no scheduler {name!r}. {nearest(str(name).lower(), SCHEDULERS)}")
    needed, example = _NEEDED.get(kind, ((), ""))
    if needed and not arguments.keys() & set(needed):
        lack = f"the scheduler {name!r} needs {' or '.join(needed)}, which no name can give"
        raise ConfigError(f"{lack}. Pass scheduler=sweep.{example}")
    return kind(**arguments)
