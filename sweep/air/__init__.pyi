# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.air import checkpoint as checkpoint
from sweep.air import config as config
from sweep.air import constants as constants
from sweep.air import integrations as integrations
from sweep.air import result as result
from sweep.air import session as session
from sweep.train import Checkpoint as Checkpoint
from sweep.train import Result as Result
from sweep.train import CheckpointConfig as CheckpointConfig
from sweep.train import FailureConfig as FailureConfig
from sweep.train import RunConfig as RunConfig
from sweep.train import ScalingConfig as ScalingConfig
