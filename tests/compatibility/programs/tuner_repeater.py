"""Repeater: the same suggestion three times with its index."""

from ray import train, tune
from ray.tune.search import Repeater
from ray.tune.search.hyperopt import HyperOptSearch
from ray.tune.search.repeater import TRIAL_INDEX


def objective(config):
    train.report({"loss": config["x"] ** 2 + 0.1 * config[TRIAL_INDEX]})


search = Repeater(HyperOptSearch(metric="loss", mode="min", n_initial_points=2), repeat=3, set_index=True)
results = tune.Tuner(
    objective,
    param_space={"x": tune.uniform(-1, 1)},
    tune_config=tune.TuneConfig(num_samples=6, search_alg=search, metric="loss", mode="min"),
).fit()
assert len(results) == 6
groups = {}
for r in results:
    groups.setdefault(r.config["x"], []).append(r.config[TRIAL_INDEX])
assert sorted(sorted(g) for g in groups.values()) == [[0, 1, 2], [0, 1, 2]], groups
