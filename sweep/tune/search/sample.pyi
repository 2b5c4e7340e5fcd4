# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from searchers.sample import Categorical as Categorical
from searchers.sample import Domain as Domain
from searchers.sample import Float as Float
from searchers.sample import Function as Function
from searchers.sample import Integer as Integer
from searchers.sample import LogUniform as LogUniform
from searchers.sample import Normal as Normal
from searchers.sample import Quantized as Quantized
from searchers.sample import Uniform as Uniform
from searchers import choice as choice
from searchers import grid_search as grid_search
from searchers import lograndint as lograndint
from searchers import loguniform as loguniform
from searchers import qlograndint as qlograndint
from searchers import qloguniform as qloguniform
from searchers import qrandint as qrandint
from searchers import qrandn as qrandn
from searchers import quniform as quniform
from searchers import randint as randint
from searchers import randn as randn
from searchers import sample_from as sample_from
from searchers import uniform as uniform
