"""`ray.tune.search.sample`: domains of parameters."""

from searchers import choice as choice, grid_search as grid_search, sample_from as sample_from
from searchers import lograndint as lograndint, loguniform as loguniform, randint as randint, randn as randn
from searchers import qlograndint as qlograndint, qloguniform as qloguniform, qrandint as qrandint, qrandn as qrandn
from searchers import quniform as quniform, uniform as uniform
from searchers.space import Categorical as Categorical, Domain as Domain, Float as Float, Function as Function
from searchers.space import Grid as Grid, Integer as Integer, LogUniform as LogUniform, Normal as Normal
from searchers.space import Quantized as Quantized, Sampler as Sampler, Uniform as Uniform
