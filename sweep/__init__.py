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
from typing import Any

from sweep.paths import answer_to_paths_of_ray, reason_why_not

__version__ = "0.1.0"

_NAMES = {
    "searchers": """
        BOHBSearch BasicVariantGenerator BayesOptSearch ConcurrencyLimiter GridSearch HyperOptSearch OptunaSearch
        RandomSearch Repeater Searcher choice create_searcher grid_search lograndint loguniform qlograndint
        qloguniform qrandint qrandn quniform randint randn sample_from uniform
    """,
    "sweep.api": "run",
    "sweep.engines.cluster.agent": "run_agent",
    "sweep.engines.cluster.agents": "Cluster",
    "sweep.programs.program": "Program",
    "sweep.callbacks.base": "Callback",
    "sweep.core.resources": "Device Node PlacementGroupFactory Resources",
    "sweep.core.stoppers": """
        CombinedStopper ExperimentPlateauStopper FunctionStopper MaximumIterationStopper NoopStopper Stopper
        TimeoutStopper TrialPlateauStopper
    """,
    "sweep.display.reporters": "CLIReporter JupyterNotebookReporter ProgressReporter",
    "sweep.requests.attached": "Attached attach",
    "sweep.errors": "SweepError SweepInterrupted TrialsFailed TuneError",
    "sweep.core.config": "CheckpointConfig FailureConfig ResumeConfig RunConfig SyncConfig TuneConfig",
    "sweep.accelerators.inventory": "available_resources cluster_resources init is_initialized",
    "sweep.confirmation.run": "confirm",
    "sweep.lanes.trainable": "VectorTrainable vectorized",
    "sweep.launch.execute": "last_analysis shutdown",
    "sweep.launch.registry": "register_trainable",
    "sweep.launch.tuner": "Tuner",
    "sweep.checkpoints.store": "Checkpoint",
    "sweep.results.analysis": "ExperimentAnalysis ResultGrid",
    "sweep.results.views": "Result",
    "sweep.results.optuna_points": "from_optuna",
    "sweep.schedulers": """
        ASHAScheduler AsyncHyperBandScheduler DistributeResources DistributeResourcesToTopJob FIFOScheduler
        HyperBandForBOHB HyperBandScheduler MOASHAScheduler MedianStoppingRule PASHAScheduler PB2
        PopulationBasedTraining PopulationBasedTrainingReplay ResourceChangingScheduler Scheduler
        create_scheduler
    """,
    "sweep.simulation.curves": "Curves",
    "sweep.simulation.replay": "replay rerun",
    "sweep.engines.simulator": "Point",
    "sweep.simulation.virtual": "simulate",
    "sweep.tune.experiment": "Experiment run_experiments",
    "sweep.air.session": "get_gpu_ids",
    "sweep.worker.gpu_memory": "limit_gpu_memory wait_for_gpu",
    "sweep.worker.parameters": "with_parameters with_resources",
    "sweep.worker.session": """
        checkpoint_dir get_checkpoint get_context get_trial_dir get_trial_id get_trial_name get_trial_resources
        is_session_enabled report
    """,
    "sweep.worker.trainable": "Trainable",
}
"""Where the public names are: module -> names."""

_MODULES = {
    "air": "sweep.air",
    "cloudpickle": "cloudpickle",
    "errors": "sweep.errors",
    "logger": "sweep.tune.logger",
    "schedulers": "sweep.schedulers",
    "search": "sweep.tune.search",
    "stopper": "sweep.tune.stopper",
    "train": "sweep.train",
    "tune": "sweep.tune",
    "util": "sweep.util",
}
"""Modules under the names that they have in Ray."""
_HOME_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

# Type checkers and editors read __init__.pyi; those left out are there for scripts written for Tune.
__all__ = sorted({*_HOME_OF, *_MODULES, "__version__"} - {"cloudpickle", "logger", "stopper", "util"})

answer_to_paths_of_ray()


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _HOME_OF:
        close = "" if name.startswith("_") else importlib.import_module("searchers.errors").closest(name, __all__)
        hint = f". Did you mean {close!r}?" if close else ""
        raise AttributeError(reason_why_not(f"sweep.{name}") or f"module 'sweep' has no attribute {name!r}{hint}")
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
