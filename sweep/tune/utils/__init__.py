"""`ray.tune.utils`: nested dicts, and waiting for a GPU."""

from sweep import wait_for_gpu as wait_for_gpu
from sweep.tune.dicts import deep_update as deep_update, flatten_dict as flatten_dict, merge_dicts as merge_dicts
from sweep.tune.dicts import unflatten_dict as unflatten_dict, unflatten_list_dict as unflatten_list_dict
from sweep.tune.dicts import unflattened_lookup as unflattened_lookup
