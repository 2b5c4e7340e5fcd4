"""A Tune-style hyperparameter sweep engine: packs trials on one machine, stops bad ones early, loses nothing.

    import sweep

    def train(config):
        for step in range(10):
            sweep.report(loss=(config["x"] - 3) ** 2 / (step + 1))

    analysis = sweep.run(train, config={"x": sweep.uniform(0, 10)}, num_samples=20, metric="loss", mode="min")
    print(analysis.best_config)

Names are loaded when they are first used, so that `import sweep` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    import searchers as search
    from searchers import (
        BasicVariantGenerator,
        ConcurrencyLimiter,
        GridSearch,
        OptunaSearch,
        RandomSearch,
        Repeater,
        Searcher,
        choice,
        create_searcher,
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
    from sweep import errors, schedulers, train
    from sweep.api import Tuner, run
    from sweep.callbacks.base import Callback
    from sweep.config import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
    from sweep.core.resources import Device, Node, PlacementGroupFactory, Resources
    from sweep.core.stoppers import (
        CombinedStopper,
        ExperimentPlateauStopper,
        FunctionStopper,
        MaximumIterationStopper,
        NoopStopper,
        Stopper,
        TimeoutStopper,
        TrialPlateauStopper,
    )
    from sweep.errors import SweepError
    from sweep.inventory import cluster_resources, init, is_initialized, shutdown
    from sweep.schedulers import ASHAScheduler, AsyncHyperBandScheduler, FIFOScheduler, Scheduler, create_scheduler
    from sweep.store.analysis import ExperimentAnalysis, Result, ResultGrid
    from sweep.store.checkpoints import Checkpoint
    from sweep.worker.gpu_memory import limit_gpu_memory, wait_for_gpu
    from sweep.worker.parameters import with_parameters, with_resources
    from sweep.worker.session import get_checkpoint, get_context, report
    from sweep.worker.trainable import Trainable

_HOMES = {
    "searchers": (
        "BasicVariantGenerator",
        "ConcurrencyLimiter",
        "GridSearch",
        "OptunaSearch",
        "RandomSearch",
        "Repeater",
        "Searcher",
        "choice",
        "create_searcher",
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
    "sweep.api": ("Tuner", "run"),
    "sweep.callbacks.base": ("Callback",),
    "sweep.config": ("CheckpointConfig", "FailureConfig", "RunConfig", "TuneConfig"),
    "sweep.core.resources": ("Device", "Node", "PlacementGroupFactory", "Resources"),
    "sweep.core.stoppers": (
        "CombinedStopper",
        "ExperimentPlateauStopper",
        "FunctionStopper",
        "MaximumIterationStopper",
        "NoopStopper",
        "Stopper",
        "TimeoutStopper",
        "TrialPlateauStopper",
    ),
    "sweep.errors": ("SweepError",),
    "sweep.inventory": ("cluster_resources", "init", "is_initialized", "shutdown"),
    "sweep.schedulers": (
        "ASHAScheduler",
        "AsyncHyperBandScheduler",
        "FIFOScheduler",
        "Scheduler",
        "create_scheduler",
    ),
    "sweep.store.analysis": ("ExperimentAnalysis", "Result", "ResultGrid"),
    "sweep.store.checkpoints": ("Checkpoint",),
    "sweep.worker.gpu_memory": ("limit_gpu_memory", "wait_for_gpu"),
    "sweep.worker.parameters": ("with_parameters", "with_resources"),
    "sweep.worker.session": ("get_checkpoint", "get_context", "report"),
    "sweep.worker.trainable": ("Trainable",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = {
    "errors": "sweep.errors",
    "schedulers": "sweep.schedulers",
    "search": "searchers",
    "train": "sweep.train",
}

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "BasicVariantGenerator",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "CombinedStopper",
    "ConcurrencyLimiter",
    "Device",
    "ExperimentAnalysis",
    "ExperimentPlateauStopper",
    "FIFOScheduler",
    "FailureConfig",
    "FunctionStopper",
    "GridSearch",
    "MaximumIterationStopper",
    "Node",
    "NoopStopper",
    "OptunaSearch",
    "PlacementGroupFactory",
    "RandomSearch",
    "Repeater",
    "Resources",
    "Result",
    "ResultGrid",
    "RunConfig",
    "Scheduler",
    "Searcher",
    "Stopper",
    "SweepError",
    "TimeoutStopper",
    "Trainable",
    "TrialPlateauStopper",
    "TuneConfig",
    "Tuner",
    "__version__",
    "choice",
    "cluster_resources",
    "create_scheduler",
    "create_searcher",
    "errors",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "init",
    "is_initialized",
    "limit_gpu_memory",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "report",
    "run",
    "sample_from",
    "schedulers",
    "search",
    "shutdown",
    "train",
    "uniform",
    "wait_for_gpu",
    "with_parameters",
    "with_resources",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'sweep' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
