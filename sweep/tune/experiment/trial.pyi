# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.callbacks.observed import ObservedTrial as _Trial

Trial = _Trial

