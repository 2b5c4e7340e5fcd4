"""`ray.tune.search.bayesopt`: a Gaussian process."""

from searchers import BayesOptSearch as BayesOptSearch
