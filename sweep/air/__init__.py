"""`ray.air`: configs, checkpoints and results."""

from sweep.train import (
    Checkpoint as Checkpoint,
    CheckpointConfig as CheckpointConfig,
    FailureConfig as FailureConfig,
    Result as Result,
    RunConfig as RunConfig,
    ScalingConfig as ScalingConfig,
)
