"""No-op trials, each in a process of its own, without log files. Arguments: a directory, trials."""

import json
import logging
import os
import sys
import time

os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"

import ray
from ray import tune

directory, number = sys.argv[1], int(sys.argv[2])


def train(config):
    tune.report({"loss": config["x"], "at": time.time()})


began = time.time()
ray.init(
    address="local", num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
)
grid = tune.Tuner(
    train,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(num_samples=number, metric="loss", mode="min"),
    run_config=tune.RunConfig(storage_path=directory, verbose=0),
).fit()
whole_s = time.time() - began
at = sorted(result.metrics["at"] for result in grid)
assert len(at) == number
assert not grid.errors
skipped = number // 5
print(
    json.dumps({"steady_per_s": (number - skipped) / (at[-1] - at[skipped - 1]), "whole_per_s": number / whole_s}),
)
ray.shutdown()
