"""ASHA over trials of up to 81 epochs of 5 ms. Arguments: a directory, trials, `fresh` or `warm`.

Ideal is what the epochs that were trained take on the CPUs that there are, with nothing between them.
"""

import json
import logging
import os
import sys
import time

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

directory, number, is_warm = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "warm"


def train(config):
    for epoch in range(1, 82):
        time.sleep(0.005)
        tune.report({"loss": abs(config["x"] - 0.3) + 1 / epoch})


ray.init(
    address="local", num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
)
began = time.time()
grid = tune.Tuner(
    train,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(
        num_samples=number,
        metric="loss",
        mode="min",
        scheduler=ASHAScheduler(max_t=81, grace_period=1, reduction_factor=3),
        reuse_actors=is_warm,
    ),
    run_config=tune.RunConfig(storage_path=directory, verbose=0),
).fit()
wall_s = time.time() - began
assert not grid.errors
epochs = sum(result.metrics["training_iteration"] for result in grid)
print(json.dumps({"ratio": wall_s / (epochs * 0.005 / os.cpu_count()), "wall_s": wall_s, "epochs": epochs}))
ray.shutdown()
