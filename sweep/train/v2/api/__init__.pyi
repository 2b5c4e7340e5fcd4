# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train.v2.api import config as config
from sweep.train.v2.api import context as context
from sweep.train.v2.api import data_parallel_trainer as data_parallel_trainer
from sweep.train.v2.api import exceptions as exceptions
from sweep.train.v2.api import result as result
from sweep.train.v2.api import train_fn_utils as train_fn_utils
