"""An Optuna user: a sampler of theirs, the study afterwards, suggestions with steps and logs."""

import optuna
from ray import train, tune
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch

optuna.logging.set_verbosity(optuna.logging.WARNING)


def objective(config):
    for step in range(2):
        train.report({"acc": -((config["lr"] - 0.01) ** 2) + 0.1 * step + 0.01 * config["layers"]})


space = {
    "lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
    "layers": optuna.distributions.IntDistribution(1, 4),
    "act": optuna.distributions.CategoricalDistribution(("relu", "tanh")),
}
sampler = optuna.samplers.TPESampler(seed=4)
search = OptunaSearch(space, metric="acc", mode="max", sampler=sampler)
results = tune.Tuner(
    objective,
    tune_config=tune.TuneConfig(search_alg=ConcurrencyLimiter(search, max_concurrent=2), num_samples=6),
).fit()
assert len(results) == 6
best = results.get_best_result("acc", "max")
assert set(best.config) == {"lr", "layers", "act"}
study = search._ot_study
assert len(study.trials) == 6
assert abs(study.best_value - best.metrics["acc"]) < 1e-12
