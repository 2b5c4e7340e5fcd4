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

from sweep.tune.formerly import answer_to_former_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    import searchers as search
    from searchers import (
        BasicVariantGenerator,
        BayesOptSearch,
        BOHBSearch,
        ConcurrencyLimiter,
        GridSearch,
        HyperOptSearch,
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
    from sweep.accelerators.inventory import cluster_resources, init, is_initialized, shutdown
    from sweep.api import run, run_experiments
    from sweep.callbacks.base import Callback
    from sweep.core.config import CheckpointConfig, FailureConfig, ResumeConfig, RunConfig, SyncConfig, TuneConfig
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
    from sweep.display.reporters import CLIReporter, JupyterNotebookReporter, ProgressReporter
    from sweep.errors import SweepError, TuneError
    from sweep.launch.experiment import Experiment
    from sweep.launch.registry import register_trainable
    from sweep.launch.tuner import Tuner
    from sweep.record.checkpoints import Checkpoint
    from sweep.results.analysis import ExperimentAnalysis, Result, ResultGrid
    from sweep.schedulers import (
        PB2,
        ASHAScheduler,
        AsyncHyperBandScheduler,
        DistributeResources,
        DistributeResourcesToTopJob,
        FIFOScheduler,
        HyperBandForBOHB,
        HyperBandScheduler,
        MedianStoppingRule,
        MOASHAScheduler,
        PASHAScheduler,
        PopulationBasedTraining,
        PopulationBasedTrainingReplay,
        ResourceChangingScheduler,
        Scheduler,
        create_scheduler,
    )
    from sweep.simulation.curves import Curves
    from sweep.simulation.replay import replay
    from sweep.simulation.rerun import rerun
    from sweep.simulation.virtual import Point, simulate
    from sweep.worker.gpu_memory import limit_gpu_memory, wait_for_gpu
    from sweep.worker.parameters import with_parameters, with_resources
    from sweep.worker.session import (
        checkpoint_dir,
        get_checkpoint,
        get_context,
        get_trial_dir,
        get_trial_id,
        get_trial_name,
        get_trial_resources,
        is_session_enabled,
        report,
    )
    from sweep.worker.trainable import Trainable

_HOMES = {
    "searchers": (
        "BOHBSearch",
        "BasicVariantGenerator",
        "BayesOptSearch",
        "ConcurrencyLimiter",
        "GridSearch",
        "HyperOptSearch",
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
    "sweep.api": ("run", "run_experiments"),
    "sweep.callbacks.base": ("Callback",),
    "sweep.display.reporters": ("CLIReporter", "JupyterNotebookReporter", "ProgressReporter"),
    "sweep.core.config": (
        "CheckpointConfig",
        "FailureConfig",
        "ResumeConfig",
        "RunConfig",
        "SyncConfig",
        "TuneConfig",
    ),
    "sweep.simulation.curves": ("Curves",),
    "sweep.simulation.replay": ("replay",),
    "sweep.simulation.rerun": ("rerun",),
    "sweep.simulation.virtual": ("Point", "simulate"),
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
    "sweep.errors": ("SweepError", "TuneError"),
    "sweep.launch.experiment": ("Experiment",),
    "sweep.accelerators.inventory": ("cluster_resources", "init", "is_initialized", "shutdown"),
    "sweep.launch.registry": ("register_trainable",),
    "sweep.schedulers": (
        "ASHAScheduler",
        "AsyncHyperBandScheduler",
        "DistributeResources",
        "DistributeResourcesToTopJob",
        "FIFOScheduler",
        "HyperBandForBOHB",
        "HyperBandScheduler",
        "MOASHAScheduler",
        "MedianStoppingRule",
        "PASHAScheduler",
        "PB2",
        "PopulationBasedTraining",
        "PopulationBasedTrainingReplay",
        "ResourceChangingScheduler",
        "Scheduler",
        "create_scheduler",
    ),
    "sweep.results.analysis": ("ExperimentAnalysis", "Result", "ResultGrid"),
    "sweep.record.checkpoints": ("Checkpoint",),
    "sweep.launch.tuner": ("Tuner",),
    "sweep.worker.gpu_memory": ("limit_gpu_memory", "wait_for_gpu"),
    "sweep.worker.parameters": ("with_parameters", "with_resources"),
    "sweep.worker.session": (
        "checkpoint_dir",
        "get_checkpoint",
        "get_context",
        "get_trial_dir",
        "get_trial_id",
        "get_trial_name",
        "get_trial_resources",
        "is_session_enabled",
        "report",
    ),
    "sweep.worker.trainable": ("Trainable",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = {
    "errors": "sweep.errors",
    "logger": "sweep.tune.logger",
    "schedulers": "sweep.schedulers",
    "stopper": "sweep.tune.stopper",
    "search": "searchers",
    "train": "sweep.train",
}

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "BOHBSearch",
    "BasicVariantGenerator",
    "BayesOptSearch",
    "CLIReporter",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "CombinedStopper",
    "ConcurrencyLimiter",
    "Curves",
    "Device",
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "Experiment",
    "ExperimentAnalysis",
    "ExperimentPlateauStopper",
    "FIFOScheduler",
    "FailureConfig",
    "FunctionStopper",
    "GridSearch",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "HyperOptSearch",
    "JupyterNotebookReporter",
    "MOASHAScheduler",
    "MaximumIterationStopper",
    "MedianStoppingRule",
    "Node",
    "NoopStopper",
    "OptunaSearch",
    "PASHAScheduler",
    "PB2",
    "PlacementGroupFactory",
    "Point",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ProgressReporter",
    "RandomSearch",
    "Repeater",
    "ResourceChangingScheduler",
    "Resources",
    "Result",
    "ResultGrid",
    "ResumeConfig",
    "RunConfig",
    "Scheduler",
    "Searcher",
    "Stopper",
    "SweepError",
    "SyncConfig",
    "TimeoutStopper",
    "Trainable",
    "TrialPlateauStopper",
    "TuneConfig",
    "TuneError",
    "Tuner",
    "__version__",
    "checkpoint_dir",
    "choice",
    "cluster_resources",
    "create_scheduler",
    "create_searcher",
    "errors",
    "get_checkpoint",
    "get_context",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_trial_resources",
    "grid_search",
    "init",
    "is_initialized",
    "is_session_enabled",
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
    "register_trainable",
    "replay",
    "report",
    "rerun",
    "run",
    "run_experiments",
    "sample_from",
    "schedulers",
    "search",
    "shutdown",
    "simulate",
    "train",
    "uniform",
    "wait_for_gpu",
    "with_parameters",
    "with_resources",
]

answer_to_former_names()


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _HOME_OF:
        raise AttributeError(f"module 'sweep' has no attribute {name!r}")
    try:
        module = importlib.import_module(_MODULES.get(name) or _HOME_OF[name])
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "searchers":
            raise
        # Something of this name in the directory of the script comes first on the path.
        import searchers

        where = searchers.__file__ or next(iter(searchers.__path__))
        raise ImportError(f"{where} hides the package 'searchers', which belongs to sweep. Rename it.") from None
    value: Any = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
