# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.integration import horovod as horovod
from sweep.tune.integration import keras as keras
from sweep.tune.integration import lightgbm as lightgbm
from sweep.tune.integration import mlflow as mlflow
from sweep.tune.integration import pytorch_lightning as pytorch_lightning
from sweep.tune.integration import ray_train as ray_train
from sweep.tune.integration import tensorflow as tensorflow
from sweep.tune.integration import torch as torch
from sweep.tune.integration import wandb as wandb
from sweep.tune.integration import xgboost as xgboost
