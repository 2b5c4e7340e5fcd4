"""One trial with one report; what counts is the time from the start of this process to its end."""

import logging
import sys

import ray
from ray import tune


def train(config):
    tune.report({"loss": config["x"]})


ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
tuner = tune.Tuner(
    train,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(storage_path=sys.argv[1], verbose=0),
)
assert tuner.fit().get_best_result().metrics["loss"] < 1
ray.shutdown()
print("{}")
