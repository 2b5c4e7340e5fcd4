"""The names of 2.0 to 2.6: ray.air's session, config and Checkpoint."""

import os

from ray import air, tune
from ray.air import session
from ray.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig


def train_fn(config):
    for i in range(3):
        session.report({"score": config["w"] * i})
    assert session.get_trial_name() and session.get_trial_id()
    assert os.path.isdir(session.get_trial_dir())
    assert session.get_experiment_name() == "air_names"


tuner = tune.Tuner(
    tune.with_resources(train_fn, ScalingConfig(trainer_resources={"CPU": 1})),
    param_space={"w": tune.grid_search([1, 2])},
    tune_config=tune.TuneConfig(num_samples=2, metric="score", mode="max"),
    run_config=RunConfig(
        name="air_names",
        failure_config=FailureConfig(max_failures=1),
        checkpoint_config=CheckpointConfig(num_to_keep=1),
        stop={"training_iteration": 2},
    ),
)
grid = tuner.fit()
assert len(grid) == 4
best = grid.get_best_result()
assert best.metrics["score"] == 2 and best.metrics["training_iteration"] == 2
assert isinstance(best, air.Result)
