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
from searchers.space import (
    Categorical as Categorical,
    Domain as Domain,
    Float as Float,
    Function as Function,
    Grid as Grid,
    Integer as Integer,
    LogUniform as LogUniform,
    Normal as Normal,
    Quantized as Quantized,
    Sampler as Sampler,
    Uniform as Uniform,
)
