# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.dicts import deep_update as deep_update
from sweep.tune.dicts import flatten_dict as flatten_dict
from sweep.tune.dicts import merge_dicts as merge_dicts
from sweep.tune.dicts import unflatten_dict as unflatten_dict
from sweep.tune.dicts import unflatten_list_dict as unflatten_list_dict
from sweep.tune.dicts import unflattened_lookup as unflattened_lookup
from sweep import wait_for_gpu as wait_for_gpu
