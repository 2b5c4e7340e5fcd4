# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train.v2 import api as api
from sweep.train.v2 import jax as jax
from sweep.train.v2 import tensorflow as tensorflow
from sweep.train.v2 import torch as torch
