"""`ray.air`: configs, checkpoints and results."""

from sweep.train import Checkpoint as Checkpoint, CheckpointConfig as CheckpointConfig, Result as Result
from sweep.train import FailureConfig as FailureConfig, RunConfig as RunConfig, ScalingConfig as ScalingConfig
