# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train import get_checkpoint as get_checkpoint
from sweep.train import get_context as get_context
from sweep.train import report as report
