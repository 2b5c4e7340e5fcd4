# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.schedulers import ASHAScheduler as ASHAScheduler
from sweep.schedulers import AsyncHyperBandScheduler as AsyncHyperBandScheduler
