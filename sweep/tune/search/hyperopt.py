"""`ray.tune.search.hyperopt`: searches by hyperopt."""

from searchers import HyperOptSearch as HyperOptSearch
