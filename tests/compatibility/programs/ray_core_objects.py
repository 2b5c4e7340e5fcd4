"""A large object shared by ray.put, fetched in the trial by ray.get."""

import numpy as np
import ray
from ray import tune

ray.init(num_cpus=4)
data = ray.put(np.arange(10))


def objective(config):
    array = ray.get(config["data"])
    tune.report(total=int(array.sum()) * config["x"])


analysis = tune.run(objective, config={"data": data, "x": tune.grid_search([1, 2])}, metric="total", mode="max")
assert analysis.best_result["total"] == 90
ray.shutdown()
