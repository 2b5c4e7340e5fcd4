"""Training groups: trials that are multi-worker training jobs, under the names that Ray Train uses."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "sweep.core.config": "CheckpointConfig FailureConfig RunConfig SyncConfig",
    # How `fit()` runs outside a trial, and a dataframe of reports: what trainers have of the rooms above them.
    "sweep.launch.tuner": "fit_alone",
    "sweep.checkpoints.store": "Checkpoint",
    "sweep.results.views": "Result",
    "sweep.results.frames": "metrics_frame",
    "sweep.train.fit": "TrainingFailedError TuneReportCallback WorkerGroupError=TrainingFailedError",
    "sweep.train.scaling": "ScalingConfig",
    "sweep.train.trainer": "DataParallelTrainer",
    "sweep.worker.context": "TrainContext=Context",
    "sweep.worker.session": "get_checkpoint get_context report",
}
"""Where the names are: module -> names, `theirs=ours` where Ray has another. Type checkers read __init__.pyi."""
_HOME_OF = {word.partition("=")[0]: (home, word) for home, words in _NAMES.items() for word in words.split()}

__all__ = sorted(_HOME_OF.keys() - {"fit_alone", "metrics_frame"})


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, word = _HOME_OF[name]
    return getattr(importlib.import_module(home), word.rpartition("=")[2])


def __dir__() -> list[str]:
    return __all__
