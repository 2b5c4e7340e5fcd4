"""Schedulers: ASHA, HyperBand and the median rule stop what is behind; by object and by name."""

import json
import os
import tempfile

import sweep as tune
from sweep import Checkpoint
from sweep.schedulers import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    create_scheduler,
)


def train_fn(config):
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            start = json.load(open(os.path.join(directory, "i.json")))
    for i in range(start + 1, 28):
        with tempfile.TemporaryDirectory() as directory:
            json.dump(i, open(os.path.join(directory, "i.json"), "w"))
            tune.report({"score": config["x"] * i}, checkpoint=Checkpoint.from_directory(directory))


def iterations(scheduler, **more):
    tuner = tune.Tuner(
        train_fn,
        param_space={"x": tune.grid_search([5, 1, 2, 4, 3, 6])},
        tune_config=tune.TuneConfig(scheduler=scheduler, metric="score", mode="max", **more),
        run_config=tune.RunConfig(verbose=0, stop={"training_iteration": 9}),
    )
    results = tuner.fit()
    assert not results.errors
    assert results.get_best_result().config["x"] == 6
    return [result.metrics["training_iteration"] for result in results]


assert iterations(FIFOScheduler()) == [9] * 6
assert sum(iterations(ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3), max_concurrent_trials=1)) < 54
assert sum(iterations(AsyncHyperBandScheduler(max_t=9, brackets=1))) <= 54
assert sum(iterations(HyperBandScheduler(max_t=9, reduction_factor=3))) < 54
rule = MedianStoppingRule(time_attr="training_iteration", grace_period=2, min_samples_required=2)
assert sum(iterations(rule, max_concurrent_trials=1)) < 54
assert sum(iterations(create_scheduler("async_hyperband", max_t=9, grace_period=1))) <= 54
print("scheduled")
