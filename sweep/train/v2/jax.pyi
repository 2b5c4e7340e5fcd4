# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train.jax import JaxConfig as JaxConfig
from sweep.train.jax import JaxTrainer as JaxTrainer
