# Written by `python tests/stubs.py` from the table of names in __init__.py.

from sweep.core.config import CheckpointConfig as CheckpointConfig
from sweep.core.config import FailureConfig as FailureConfig
from sweep.core.config import RunConfig as RunConfig
from sweep.core.config import SyncConfig as SyncConfig
from sweep.launch.tuner import fit_alone as fit_alone
from sweep.checkpoints.store import Checkpoint as Checkpoint
from sweep.results.views import Result as Result
from sweep.results.frames import metrics_frame as metrics_frame
from sweep.train.fit import TrainingFailedError as TrainingFailedError
from sweep.train.fit import TuneReportCallback as TuneReportCallback
from sweep.train.fit import TrainingFailedError as _WorkerGroupError

WorkerGroupError = _WorkerGroupError

from sweep.train.scaling import ScalingConfig as ScalingConfig
from sweep.train.trainer import DataParallelTrainer as DataParallelTrainer
from sweep.worker.context import Context as _TrainContext

TrainContext = _TrainContext

from sweep.worker.session import get_checkpoint as get_checkpoint
from sweep.worker.session import get_context as get_context
from sweep.worker.session import report as report
