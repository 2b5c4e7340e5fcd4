# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.logger import csv as csv
from sweep.tune.logger import json as json
from sweep.tune.logger import logger as logger
from sweep.tune.logger import mlflow as mlflow
from sweep.tune.logger import tensorboardx as tensorboardx
from sweep.tune.logger import wandb as wandb
from sweep.callbacks.loggers import CSVLoggerCallback as CSVLoggerCallback
from sweep.callbacks.loggers import JsonLoggerCallback as JsonLoggerCallback
from sweep.callbacks.loggers import TBXLoggerCallback as TBXLoggerCallback
from sweep.callbacks.logger_base import LoggerCallback as LoggerCallback
from sweep.tune.dicts import pretty_print as pretty_print
from sweep.callbacks.loggers import TBXLoggerCallback as _TensorBoardLoggerCallback

TensorBoardLoggerCallback = _TensorBoardLoggerCallback

