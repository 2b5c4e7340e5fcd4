"""`ray.tune.search.optuna`: searches by Optuna."""

from searchers import OptunaSearch as OptunaSearch
