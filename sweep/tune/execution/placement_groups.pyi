# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.core.resources import PlacementGroupFactory as PlacementGroupFactory
from sweep.core.resources import parse_resources as _resource_dict_to_pg_factory

resource_dict_to_pg_factory = _resource_dict_to_pg_factory

