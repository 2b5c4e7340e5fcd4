"""Eight trials that report as fast as they can, with log files. Arguments: a directory, reports of each trial.

The time is that from the first report's beginning to the last one's end by the trials' own clocks.
"""

import json
import logging
import sys
import time
from pathlib import Path

import ray
from ray import tune

directory, number = Path(sys.argv[1]), int(sys.argv[2])


def train(config):
    began = time.time()
    for step in range(number):
        tune.report({"loss": 1 / (step + 1)})
    (directory / f"times-{config['reporter']}").write_text(f"{began} {time.time()}")


ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
grid = tune.Tuner(
    train,
    param_space={"reporter": tune.grid_search(list(range(8)))},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(storage_path=str(directory), verbose=0),
).fit()
times = [[float(word) for word in path.read_text().split()] for path in directory.glob("times-*")]
assert len(times) == 8
kept = sum(len(result.metrics_dataframe) for result in grid)
assert kept == 8 * number, kept
print(json.dumps({"per_s": kept / (max(end for _, end in times) - min(began for began, _ in times))}))
ray.shutdown()
