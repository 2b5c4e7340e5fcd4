# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from searchers import grid_search as grid_search
from sweep.core.naming import format_vars as format_vars
