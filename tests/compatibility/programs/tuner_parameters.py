"""with_parameters: a large array beside the config, for a function and for a Trainable."""

import numpy as np
from ray import train, tune

data = np.random.default_rng(0).normal(size=(1000, 1000))


def objective(config, data=None, offset=0):
    train.report({"mean": float(data[: config["rows"]].mean()) + offset, "shape": data.shape[0]})


grid = tune.Tuner(
    tune.with_parameters(objective, data=data, offset=100),
    param_space={"rows": tune.choice([10, 500])},
    tune_config=tune.TuneConfig(num_samples=3, metric="mean", mode="max"),
).fit()
assert all(result.metrics["shape"] == 1000 for result in grid)
assert abs(grid.get_best_result().metrics["mean"] - 100) < 1
assert "data" not in grid.get_best_result().config


class Trainable(tune.Trainable):
    def setup(self, config, data=None):
        self.data = data

    def step(self):
        return {"total": float(self.data.sum()), "done": True}


grid = tune.Tuner(tune.with_parameters(Trainable, data=data), param_space={"a": 1}).fit()
assert grid[0].metrics["total"] == float(data.sum())
