"""Known points first: points_to_evaluate, alone and with evaluated_rewards."""

from ray import train, tune
from ray.tune.search.hyperopt import HyperOptSearch
from ray.tune.search.optuna import OptunaSearch


def objective(config):
    train.report({"loss": (config["a"] - 4) ** 2 + config["b"]})


space = {"a": tune.uniform(0, 10), "b": tune.choice([0, 1])}
points = [{"a": 4.0, "b": 0}, {"a": 1.0, "b": 1}]

for search in (HyperOptSearch(points_to_evaluate=points), OptunaSearch(points_to_evaluate=points)):
    results = tune.Tuner(
        objective,
        param_space=space,
        tune_config=tune.TuneConfig(
            search_alg=search, metric="loss", mode="min", num_samples=4, max_concurrent_trials=1
        ),
    ).fit()
    configs = [{"a": r.config["a"], "b": r.config["b"]} for r in results]
    assert len(configs) == 4
    assert all(point in configs for point in points), configs
    assert results.get_best_result().metrics["loss"] == 0

search = OptunaSearch(points_to_evaluate=points, evaluated_rewards=[0.0, 10.0], seed=1)
results = tune.Tuner(
    objective,
    param_space=space,
    tune_config=tune.TuneConfig(search_alg=search, metric="loss", mode="min", num_samples=3),
).fit()
assert len(results) == 3
assert all({"a": r.config["a"], "b": r.config["b"]} not in points for r in results)
