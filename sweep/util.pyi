# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

