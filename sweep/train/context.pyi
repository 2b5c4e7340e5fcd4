# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train import TrainContext as TrainContext
from sweep.train import get_context as get_context
