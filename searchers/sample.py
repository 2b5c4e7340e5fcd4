"""The domains and their samplers under the path at which converters of search spaces look for them."""

from searchers.space import Categorical as Categorical
from searchers.space import Domain as Domain
from searchers.space import Float as Float
from searchers.space import Function as Function
from searchers.space import Grid as Grid
from searchers.space import Integer as Integer
from searchers.space import LogUniform as LogUniform
from searchers.space import Normal as Normal
from searchers.space import Quantized as Quantized
from searchers.space import Sampler as Sampler
from searchers.space import Uniform as Uniform
