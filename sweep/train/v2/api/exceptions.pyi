# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train import TrainingFailedError as TrainingFailedError
from sweep.train import WorkerGroupError as WorkerGroupError
