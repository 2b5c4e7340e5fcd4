# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.execution import placement_groups as placement_groups
