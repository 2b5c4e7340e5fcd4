"""`ray.tune.search.sample`: domains of parameters."""

from searchers import (
    choice as choice,
    grid_search as grid_search,
    lograndint as lograndint,
    loguniform as loguniform,
    qlograndint as qlograndint,
    qloguniform as qloguniform,
    qrandint as qrandint,
    qrandn as qrandn,
    quniform as quniform,
    randint as randint,
    randn as randn,
    sample_from as sample_from,
    uniform as uniform,
)
from searchers.sample import *
