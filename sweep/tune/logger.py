"""`ray.tune.logger`: the files that are written for each trial."""

from sweep.callbacks.loggers import CSVLoggerCallback as CSVLoggerCallback
from sweep.callbacks.loggers import JsonLoggerCallback as JsonLoggerCallback
from sweep.callbacks.loggers import LoggerCallback as LoggerCallback
from sweep.callbacks.loggers import TBXLoggerCallback as TBXLoggerCallback
from sweep.tune.utils import pretty_print as pretty_print

TensorBoardLoggerCallback = TBXLoggerCallback
