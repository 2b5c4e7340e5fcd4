"""Tune's own PBT example. Arguments: a directory, members, iterations.

Its file has eight members, all of which begin with the same learning rate, and up to 1,000 iterations. What is counted
begins when Ray runs, and so has neither its start nor that of the driver.
"""

import json
import logging
import os
import random
import sys
import time

import ray
from ray import tune
from ray.tune.examples.pbt_example import PBTBenchmarkExample
from ray.tune.schedulers import PopulationBasedTraining

directory, members, iterations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ray.init(
    address="local", num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
)
began = time.time()
grid = tune.Tuner(
    PBTBenchmarkExample,
    param_space={"lr": tune.uniform(0.0001, 0.02)},
    tune_config=tune.TuneConfig(
        num_samples=members,
        metric="mean_accuracy",
        mode="max",
        scheduler=PopulationBasedTraining(
            perturbation_interval=5, hyperparam_mutations={"lr": lambda: random.uniform(0.0001, 0.02)}
        ),
        reuse_actors=True,
    ),
    run_config=tune.RunConfig(
        storage_path=directory,
        verbose=0,
        stop={"training_iteration": iterations},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=5, num_to_keep=4),
    ),
).fit()
whole_s = time.time() - began
assert not grid.errors
assert [result.metrics["training_iteration"] for result in grid] == [iterations] * members
print(json.dumps({"per_s": members * iterations / whole_s, "whole_s": whole_s}))
ray.shutdown()
