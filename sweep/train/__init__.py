"""Training groups: trials that are multi-worker training jobs, under the names that Ray Train uses."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep.core.config import CheckpointConfig, FailureConfig, RunConfig
    from sweep.launch.tuner import fit_alone as fit_alone
    from sweep.record.checkpoints import Checkpoint
    from sweep.results.analysis import Result
    from sweep.results.frames import metrics_frame as metrics_frame
    from sweep.train.fit import TrainingFailedError, TuneReportCallback
    from sweep.train.scaling import ScalingConfig
    from sweep.train.trainer import DataParallelTrainer
    from sweep.worker.session import get_checkpoint, get_context, report

_HOMES = {
    "Checkpoint": "sweep.record.checkpoints",
    "CheckpointConfig": "sweep.core.config",
    "DataParallelTrainer": "sweep.train.trainer",
    "FailureConfig": "sweep.core.config",
    "Result": "sweep.results.analysis",
    "RunConfig": "sweep.core.config",
    "ScalingConfig": "sweep.train.scaling",
    "TrainingFailedError": "sweep.train.fit",
    "TuneReportCallback": "sweep.train.fit",
    "get_checkpoint": "sweep.worker.session",
    "get_context": "sweep.worker.session",
    "report": "sweep.worker.session",
    # What trainers have of the rooms above them: how `fit()` runs outside a trial, and a dataframe of reports.
    "fit_alone": "sweep.launch.tuner",
    "metrics_frame": "sweep.results.frames",
}

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "DataParallelTrainer",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "TrainingFailedError",
    "TuneReportCallback",
    "get_checkpoint",
    "get_context",
    "report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
