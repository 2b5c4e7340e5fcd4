"""The search algorithms under their first names, in ray.tune.suggest."""

from hyperopt import hp
from ray import tune
from ray.tune.suggest import BasicVariantGenerator, ConcurrencyLimiter
from ray.tune.suggest.hyperopt import HyperOptSearch
from ray.tune.suggest.optuna import OptunaSearch


def objective(config):
    tune.report(loss=(config["x"] - 2) ** 2 + config.get("y", 0))


space = {"x": hp.uniform("x", -5, 5), "y": hp.choice("y", [0, 1])}
analysis = tune.run(
    objective,
    search_alg=ConcurrencyLimiter(
        HyperOptSearch(space, metric="loss", mode="min", n_initial_points=3), max_concurrent=2
    ),
    num_samples=6,
)
assert len(analysis.trials) == 6
assert all(-5 <= t.config["x"] <= 5 and t.config["y"] in (0, 1) for t in analysis.trials)

analysis = tune.run(
    objective,
    config={"x": tune.uniform(-5, 5)},
    search_alg=OptunaSearch(seed=3),
    metric="loss",
    mode="min",
    num_samples=6,
)
assert len(analysis.trials) == 6

analysis = tune.run(
    objective,
    config={"x": tune.grid_search([0, 2])},
    search_alg=BasicVariantGenerator(points_to_evaluate=[{"x": 2}]),
    metric="loss",
    mode="min",
)
assert analysis.best_config == {"x": 2}
