"""The loggers under the name that Tune has for their module: `from sweep.logger import LoggerCallback`."""

from __future__ import annotations

from sweep.callbacks.loggers import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback

__all__ = [
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "LoggerCallback",
    "TBXLoggerCallback",
    "TensorBoardLoggerCallback",
]

TensorBoardLoggerCallback = TBXLoggerCallback
