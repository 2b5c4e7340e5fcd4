# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train.tensorflow import TensorflowConfig as TensorflowConfig
from sweep.train.tensorflow import TensorflowTrainer as TensorflowTrainer
