# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.search.bohb import bohb_search as bohb_search
from searchers import BOHBSearch as BOHBSearch
from searchers import TuneBOHB as TuneBOHB
