"""A schedule found by PBT, replayed from its policy file."""

import glob
import os

from ray import tune
from ray.train import CheckpointConfig, RunConfig
from ray.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay


class T(tune.Trainable):
    def setup(self, config):
        self.total = 0.0

    def step(self):
        self.total += self.config["lr"]
        return {"score": self.total, "lr": self.config["lr"]}

    def save_checkpoint(self, d):
        return {"total": self.total}

    def load_checkpoint(self, state):
        self.total = state["total"]

    def reset_config(self, new_config):
        self.config = new_config
        return True


results = tune.Tuner(
    T,
    param_space={"lr": tune.grid_search([0.01, 0.02, 0.5, 1.0])},
    tune_config=tune.TuneConfig(
        metric="score",
        mode="max",
        scheduler=PopulationBasedTraining(
            time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations={"lr": tune.uniform(0, 1)}
        ),
    ),
    run_config=RunConfig(
        name="pbt",
        storage_path=os.path.abspath("out"),
        stop={"training_iteration": 10},
        checkpoint_config=CheckpointConfig(checkpoint_frequency=2),
    ),
).fit()
assert not results.errors, results.errors
files = glob.glob(os.path.join(results.experiment_path, "pbt_policy_*.txt"))
assert files, os.listdir(results.experiment_path)
replay = PopulationBasedTrainingReplay(files[0])
results = tune.Tuner(
    T,
    tune_config=tune.TuneConfig(scheduler=replay),
    run_config=RunConfig(stop={"training_iteration": 10}),
).fit()
assert len(results) == 1 and not results.errors, results.errors
assert results[0].metrics["training_iteration"] >= 10
