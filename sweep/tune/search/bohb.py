"""`ray.tune.search.bohb`: the searcher that BOHB consists of."""

from searchers import BOHBSearch as BOHBSearch, TuneBOHB as TuneBOHB
