"""Reports with a checkpoint of 1 MB each, all kept. Arguments: a directory, reports of each of four trials."""

import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import ray
from ray import tune

directory, number = Path(sys.argv[1]), int(sys.argv[2])
TRIALS = 4


def train(config):
    weights = os.urandom(1_000_000)
    began = time.time()
    for step in range(number):
        with tempfile.TemporaryDirectory(dir=directory) as place:
            Path(place, "model.bin").write_bytes(weights)
            tune.report({"loss": 1 / (step + 1)}, checkpoint=tune.Checkpoint.from_directory(place))
    (directory / f"times-{config['trial']}").write_text(f"{began} {time.time()}")


ray.init(address="local", num_cpus=TRIALS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
grid = tune.Tuner(
    train,
    param_space={"trial": tune.grid_search(list(range(TRIALS)))},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(storage_path=str(directory), name="checkpoints", verbose=0),
).fit()
times = [[float(word) for word in path.read_text().split()] for path in directory.glob("times-*")]
assert len(times) == TRIALS
kept = len(list((directory / "checkpoints").rglob("model.bin")))
assert kept == TRIALS * number, kept
print(json.dumps({"per_s": kept / (max(end for _, end in times) - min(began for began, _ in times))}))
ray.shutdown()
