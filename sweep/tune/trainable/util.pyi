# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep import with_parameters as with_parameters
from sweep import with_resources as with_resources
