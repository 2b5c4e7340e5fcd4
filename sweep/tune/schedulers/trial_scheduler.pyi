# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.schedulers import FIFOScheduler as FIFOScheduler
from sweep.schedulers import Scheduler as _TrialScheduler

TrialScheduler = _TrialScheduler

