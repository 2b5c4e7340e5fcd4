# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.experiment import experiment as experiment
from sweep.tune.experiment import trial as trial
from sweep import Experiment as Experiment
from sweep.callbacks.observed import ObservedTrial as _Trial

Trial = _Trial

