# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from searchers import BOHBSearch as BOHBSearch
from searchers import TuneBOHB as TuneBOHB
