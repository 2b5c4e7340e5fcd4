"""RunConfig's other words: stop as a function, SyncConfig, env variables of Tune's, a Trainable stopped by time."""

import os
import time

os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = "2"
os.environ["TUNE_DISABLE_STRICT_METRIC_CHECKING"] = "1"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"

import ray  # noqa: E402
from ray import train, tune  # noqa: E402


def forever(config):
    i = 0
    while True:
        i += 1
        time.sleep(0.01)
        train.report({"i": i} if i % 2 else {"other": i})


ray.init(num_cpus=4, configure_logging=False)
tuner = tune.Tuner(
    forever,
    tune_config=tune.TuneConfig(metric="i", mode="max", num_samples=2),
    run_config=train.RunConfig(
        stop=lambda trial_id, result: result["training_iteration"] >= 5, sync_config=train.SyncConfig()
    ),
)
results = tuner.fit()
assert [r.metrics["training_iteration"] for r in results] == [5, 5]

results = tune.Tuner(forever, run_config=train.RunConfig(stop={"time_total_s": 0.3})).fit()
assert results[0].metrics["time_total_s"] >= 0.3
