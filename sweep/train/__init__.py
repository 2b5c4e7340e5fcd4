"""Training groups: trials that are multi-worker training jobs, under the names that Ray Train uses."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "sweep.core.config": "CheckpointConfig FailureConfig RunConfig",
    # How `fit()` runs outside a trial, and a dataframe of reports: what trainers have of the rooms above them.
    "sweep.launch.tuner": "fit_alone",
    "sweep.record.checkpoints": "Checkpoint",
    "sweep.results.analysis": "Result",
    "sweep.results.frames": "metrics_frame",
    "sweep.train.fit": "TrainingFailedError TuneReportCallback",
    "sweep.train.scaling": "ScalingConfig",
    "sweep.train.trainer": "DataParallelTrainer",
    "sweep.worker.session": "get_checkpoint get_context report",
}
"""Where the names are: module -> names. Type checkers and editors read __init__.pyi."""
_HOME_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF.keys() - {"fit_alone", "metrics_frame"})


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
