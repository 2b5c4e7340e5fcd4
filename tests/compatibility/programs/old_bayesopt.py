"""BayesOptSearch with its own arguments, behind a limiter."""

from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.suggest import ConcurrencyLimiter
from ray.tune.suggest.bayesopt import BayesOptSearch


def objective(config):
    for step in range(4):
        tune.report(iterations=step, mean_loss=(0.1 + config["width"] * step / 100) ** (-1) + config["height"] * 0.1)


algo = BayesOptSearch(utility_kwargs={"kind": "ucb", "kappa": 2.5, "xi": 0.0}, random_search_steps=3, random_state=1)
algo = ConcurrencyLimiter(algo, max_concurrent=2)
analysis = tune.run(
    objective,
    name="my_exp",
    metric="mean_loss",
    mode="min",
    search_alg=algo,
    scheduler=AsyncHyperBandScheduler(),
    num_samples=6,
    config={"steps": 4, "width": tune.uniform(0, 20), "height": tune.uniform(-100, 100)},
)
assert len(analysis.trials) == 6
assert all(t.config["steps"] == 4 for t in analysis.trials)
assert -100 <= analysis.best_config["height"] <= 100
