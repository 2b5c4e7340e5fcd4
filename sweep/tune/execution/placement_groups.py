"""`ray.tune.execution.placement_groups`: resources of a trial with several workers."""

from sweep.core.resources import PlacementGroupFactory as PlacementGroupFactory, parse_resources as _parse

resource_dict_to_pg_factory = _parse
