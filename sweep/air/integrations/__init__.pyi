# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.air.integrations import keras as keras
from sweep.air.integrations import mlflow as mlflow
from sweep.air.integrations import wandb as wandb
