"""`ray.tune.logger`: the files that are written for each trial."""

from sweep.callbacks.logger_base import LoggerCallback as LoggerCallback
from sweep.callbacks.loggers import (
    CSVLoggerCallback as CSVLoggerCallback,
    JsonLoggerCallback as JsonLoggerCallback,
    TBXLoggerCallback as TBXLoggerCallback,
)
from sweep.tune.dicts import pretty_print as pretty_print

TensorBoardLoggerCallback = TBXLoggerCallback
