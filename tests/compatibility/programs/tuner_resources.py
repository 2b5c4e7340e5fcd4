"""with_resources in its forms: a dict, a PlacementGroupFactory, a function of the config."""

import ray
from ray import tune
from ray.tune import PlacementGroupFactory


def objective(config):
    resources = tune.get_context().get_trial_resources()
    tune.report({"cpus": resources.required_resources.get("CPU", 0), "x": config["x"]})


ray.init(num_cpus=4)


def cpus(trainable):
    grid = tune.Tuner(trainable, param_space={"x": tune.grid_search([1, 2])}).fit()
    assert not grid.errors, grid.errors
    return sorted(result.metrics["cpus"] for result in grid)


assert cpus(objective) == [1, 1]
assert cpus(tune.with_resources(objective, {"cpu": 2})) == [2, 2]
assert cpus(tune.with_resources(objective, resources={"CPU": 1, "GPU": 0})) == [1, 1]
assert cpus(tune.with_resources(objective, PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}], strategy="PACK"))) == [2, 2]
assert cpus(tune.with_resources(objective, lambda config: {"cpu": config["x"]})) == [1, 2]
assert cpus(tune.with_resources(tune.with_parameters(objective), {"cpu": 3})) == [3, 3]
assert ray.cluster_resources()["CPU"] == 4
