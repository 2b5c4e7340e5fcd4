"""Trial schedulers: which trials continue, stop, pause or clone another."""

from __future__ import annotations

import inspect
from typing import Any

from sweep.errors import ConfigError, UnknownNameError, nearest
from sweep.schedulers.asha import ASHAScheduler, AsyncHyperBandScheduler
from sweep.schedulers.base import Scheduler
from sweep.schedulers.distribute import DistributeResources, DistributeResourcesToTopJob
from sweep.schedulers.fifo import FIFOScheduler
from sweep.schedulers.hb_bohb import HyperBandForBOHB
from sweep.schedulers.hyperband import HyperBandScheduler
from sweep.schedulers.median import MedianStoppingRule
from sweep.schedulers.moasha import MOASHAScheduler
from sweep.schedulers.pasha import PASHAScheduler
from sweep.schedulers.pb2 import PB2
from sweep.schedulers.pbt import PopulationBasedTraining
from sweep.schedulers.pbt_replay import PopulationBasedTrainingReplay
from sweep.schedulers.resource_changing import ResourceChangingScheduler
from sweep.schedulers.trials_view import TrialsView

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


def create_scheduler(name: str, **arguments: Any) -> Scheduler:
    """Return the scheduler of that name, upper or lower case, built with `arguments`.

    Raises:
        UnknownNameError: no scheduler has that name.
        ConfigError: it has no such argument, or refuses the value.
    """
    kind = SCHEDULERS.get(str(name).lower())
    if kind is None:
        raise UnknownNameError(f"there is no scheduler {name!r}. {nearest(str(name).lower(), SCHEDULERS)}")
    known = [p for p in inspect.signature(kind).parameters if p != "self"]
    for argument in arguments:
        if argument not in known:
            raise ConfigError(f"{kind.__name__} has no argument {argument!r}. {nearest(argument, known)}")
    return kind(**arguments)
