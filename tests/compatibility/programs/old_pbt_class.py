"""PopulationBasedTraining over a Trainable with reset_config and reused actors."""

import random

from ray import tune
from ray.tune.schedulers import PopulationBasedTraining


class PBTBench(tune.Trainable):
    def setup(self, config):
        self.lr = config["lr"]
        self.accuracy = 0.0

    def step(self):
        self.accuracy += self.lr * random.uniform(0.9, 1.0)
        return {"mean_accuracy": self.accuracy, "cur_lr": self.lr}

    def save_checkpoint(self, checkpoint_dir):
        return {"accuracy": self.accuracy, "lr": self.lr}

    def load_checkpoint(self, checkpoint):
        self.accuracy = checkpoint["accuracy"]

    def reset_config(self, new_config):
        self.lr = new_config["lr"]
        self.config = new_config
        return True


random.seed(7)
pbt = PopulationBasedTraining(
    time_attr="training_iteration",
    perturbation_interval=3,
    quantile_fraction=0.5,
    hyperparam_mutations={"lr": lambda: random.uniform(0.0001, 0.02), "other": [1, 2, 3]},
    custom_explore_fn=lambda config: dict(config, lr=min(config["lr"], 0.5)),
    log_config=True,
)
analysis = tune.run(
    PBTBench,
    name="pbt_test",
    scheduler=pbt,
    metric="mean_accuracy",
    mode="max",
    reuse_actors=True,
    checkpoint_freq=3,
    stop={"training_iteration": 12},
    num_samples=4,
    config={"lr": tune.uniform(0.001, 0.1), "other": 1},
)
assert len(analysis.trials) == 4
assert all(t.last_result["training_iteration"] == 12 for t in analysis.trials)
assert analysis.best_result["mean_accuracy"] > 0
assert analysis.best_checkpoint
