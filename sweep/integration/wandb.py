"""Log trials to Weights & Biases: the callback, and the function for use within a trial."""

from sweep.callbacks.wandb import WandbLoggerCallback, setup_wandb

__all__ = ["WandbLoggerCallback", "setup_wandb"]
