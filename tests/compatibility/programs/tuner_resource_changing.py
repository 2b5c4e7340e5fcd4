"""ResourceChangingScheduler with an allocation function of one's own."""

import ray
from ray import train, tune
from ray.tune import PlacementGroupFactory
from ray.tune.schedulers import ASHAScheduler, ResourceChangingScheduler


class T(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"loss": self.config["x"] / self.n, "cpus": self.trial_resources.required_resources.get("CPU", 0)}

    def save_checkpoint(self, d):
        return {"n": self.n}

    def load_checkpoint(self, state):
        self.n = state["n"]


def allocate(tune_controller, trial, result, scheduler):
    if result["training_iteration"] < 2:
        return None
    return PlacementGroupFactory([{"CPU": 2}])


ray.init(num_cpus=4)
results = tune.Tuner(
    tune.with_resources(T, PlacementGroupFactory([{"CPU": 1}])),
    param_space={"x": tune.grid_search([1, 2])},
    tune_config=tune.TuneConfig(
        metric="loss",
        mode="min",
        scheduler=ResourceChangingScheduler(
            base_scheduler=ASHAScheduler(max_t=6, grace_period=6), resources_allocation_function=allocate
        ),
    ),
    run_config=train.RunConfig(stop={"training_iteration": 6}),
).fit()
assert not results.errors, results.errors
assert [r.metrics["cpus"] for r in results] == [2, 2], [r.metrics["cpus"] for r in results]
assert all(r.metrics["training_iteration"] == 6 for r in results)
