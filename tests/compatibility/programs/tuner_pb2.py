"""PB2 with bounds, over a Trainable."""

from ray import tune
from ray.train import CheckpointConfig, RunConfig
from ray.tune.schedulers.pb2 import PB2


class T(tune.Trainable):
    def setup(self, config):
        self.total = 0.0

    def step(self):
        self.total += 1 - (self.config["lr"] - 0.5) ** 2
        return {"reward": self.total}

    def save_checkpoint(self, d):
        return {"total": self.total}

    def load_checkpoint(self, state):
        self.total = state["total"]


pb2 = PB2(
    time_attr="training_iteration",
    metric="reward",
    mode="max",
    perturbation_interval=2,
    quantile_fraction=0.5,
    hyperparam_bounds={"lr": [0.0, 1.0]},
)
results = tune.Tuner(
    T,
    param_space={"lr": tune.uniform(0.0, 1.0)},
    tune_config=tune.TuneConfig(scheduler=pb2, num_samples=4),
    run_config=RunConfig(stop={"training_iteration": 8}, checkpoint_config=CheckpointConfig(checkpoint_frequency=2)),
).fit()
assert not results.errors, results.errors
assert all(r.metrics["training_iteration"] == 8 for r in results)
assert results.get_best_result("reward", "max").metrics["reward"] > 4
assert all(0 <= r.config["lr"] <= 1 for r in results)
