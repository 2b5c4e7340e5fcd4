# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from searchers.repeater import TRIAL_INDEX as TRIAL_INDEX
from searchers.repeater import Repeater as Repeater
