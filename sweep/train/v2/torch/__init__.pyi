# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.train.v2.torch import torch_trainer as torch_trainer
from sweep.train.torch import TorchConfig as TorchConfig
from sweep.train.torch import TorchTrainer as TorchTrainer
from sweep.train.torch import enable_reproducibility as enable_reproducibility
from sweep.train.torch import get_device as get_device
from sweep.train.torch import get_devices as get_devices
from sweep.train.torch import prepare_data_loader as prepare_data_loader
from sweep.train.torch import prepare_model as prepare_model
