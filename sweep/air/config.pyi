# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train import CheckpointConfig as CheckpointConfig
from sweep.train import FailureConfig as FailureConfig
from sweep.train import RunConfig as RunConfig
from sweep.train import ScalingConfig as ScalingConfig
