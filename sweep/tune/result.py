"""The names of the fields that every result has, as Tune's scripts import them."""

from __future__ import annotations

__all__ = [
    "CONFIG_PREFIX",
    "DEFAULT_METRIC",
    "DONE",
    "EXPERIMENT_TAG",
    "HOSTNAME",
    "NODE_IP",
    "PID",
    "SHOULD_CHECKPOINT",
    "TIMESTAMP",
    "TIMESTEPS_THIS_ITER",
    "TIMESTEPS_TOTAL",
    "TIME_THIS_ITER_S",
    "TIME_TOTAL_S",
    "TRAINING_ITERATION",
    "TRIAL_ID",
]

CONFIG_PREFIX = "config"
DEFAULT_METRIC = "_metric"  # of a number that a function returns by itself
DONE = "done"
EXPERIMENT_TAG = "experiment_tag"
HOSTNAME = "hostname"
NODE_IP = "node_ip"
PID = "pid"
SHOULD_CHECKPOINT = "should_checkpoint"
TIMESTAMP = "timestamp"
TIMESTEPS_THIS_ITER = "timesteps_this_iter"
TIMESTEPS_TOTAL = "timesteps_total"
TIME_THIS_ITER_S = "time_this_iter_s"
TIME_TOTAL_S = "time_total_s"
TRAINING_ITERATION = "training_iteration"
TRIAL_ID = "trial_id"
