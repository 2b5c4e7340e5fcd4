"""`ray.tune.search.basic_variant`: grids and random draws."""

from searchers import BasicVariantGenerator as BasicVariantGenerator
