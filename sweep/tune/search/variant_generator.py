"""`ray.tune.search.variant_generator`: grids, and a config as one line."""

from searchers import grid_search as grid_search
from sweep.core.literals import format_vars as format_vars
