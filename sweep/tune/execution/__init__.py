"""`ray.tune.execution`: the module `placement_groups`."""
