"""A searcher saved after one run and restored for the next."""

import os

from ray import tune
from ray.tune.search.hyperopt import HyperOptSearch
from ray.tune.search.optuna import OptunaSearch

space = {"x": tune.uniform(0, 10), "y": tune.randint(0, 3)}


def objective(config):
    tune.report({"loss": (config["x"] - 2) ** 2 + config["y"]})


for kind in (OptunaSearch, HyperOptSearch):
    path = os.path.abspath(kind.__name__ + ".pkl")
    search = kind(space, metric="loss", mode="min")
    first = tune.run(objective, search_alg=search, num_samples=4)
    search.save(path)
    assert os.path.exists(path)

    again = kind(space, metric="loss", mode="min")
    again.restore(path)
    second = tune.run(objective, search_alg=again, num_samples=3)
    assert len(first.trials) == 4 and len(second.trials) == 3
    assert all(t.status == "TERMINATED" for t in second.trials)
