# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.callbacks.logger_base import LoggerCallback as LoggerCallback
from sweep.tune.dicts import pretty_print as pretty_print
