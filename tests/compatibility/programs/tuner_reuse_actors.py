"""reuse_actors with reset_config: one process serves many trials."""

import os

import ray
from ray import tune


class Reused(tune.Trainable):
    built = 0

    def setup(self, config):
        Reused.built += 1
        self.k = config["k"]

    def reset_config(self, new_config):
        self.k = new_config["k"]
        return True

    def step(self):
        return {"k": self.k, "pid": os.getpid(), "built": Reused.built, "done": self.iteration >= 1}


ray.init(num_cpus=1)
results = tune.Tuner(
    Reused,
    param_space={"k": tune.grid_search([1, 2, 3, 4])},
    tune_config=tune.TuneConfig(reuse_actors=True),
).fit()
assert sorted(r.metrics["k"] for r in results) == [1, 2, 3, 4]
assert all(r.metrics["training_iteration"] == 2 for r in results)
assert len({r.metrics["pid"] for r in results}) == 1
assert {r.metrics["built"] for r in results} == {1}
