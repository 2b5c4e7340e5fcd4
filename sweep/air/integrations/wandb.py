"""`ray.air.integrations.wandb`: log to Weights & Biases."""

from sweep.integration.wandb import *
