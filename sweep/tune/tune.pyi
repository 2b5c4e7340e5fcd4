# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.running import run as run
from sweep.tune.running import run_experiments as run_experiments
