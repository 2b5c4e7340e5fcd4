"""Optuna's own forms: a define-by-run function, a dict of distributions, two objectives, a sampler."""

import optuna
from ray import train, tune
from ray.tune.search.optuna import OptunaSearch


def space(trial):
    kind = trial.suggest_categorical("kind", ["lin", "quad"])
    if kind == "lin":
        trial.suggest_float("slope", -2, 2)
    else:
        trial.suggest_float("curve", 0.1, 10, log=True)
    trial.suggest_int("width", 1, 5)
    return {"const": 42, "kind_again": kind}


def objective(config):
    assert config["const"] == 42 and config["kind_again"] == config["kind"]
    value = abs(config["slope"]) if config["kind"] == "lin" else config["curve"]
    train.report({"loss": value + config["width"]})


results = tune.Tuner(
    objective,
    tune_config=tune.TuneConfig(
        search_alg=OptunaSearch(space, metric="loss", mode="min", sampler=optuna.samplers.RandomSampler(seed=2)),
        num_samples=8,
    ),
).fit()
assert not results.errors, results.errors
assert len(results) == 8
for r in results:
    assert ("slope" in r.config) == (r.config["kind"] == "lin")


def two(config):
    train.report({"loss": config["x"] ** 2, "size": -config["x"]})


search = OptunaSearch(
    {"x": optuna.distributions.FloatDistribution(-1, 1)}, metric=["loss", "size"], mode=["min", "max"]
)
results = tune.Tuner(two, tune_config=tune.TuneConfig(search_alg=search, num_samples=5)).fit()
assert all(-1 <= r.config["x"] <= 1 for r in results)
assert results.get_best_result("loss", "min").metrics["loss"] == min(r.metrics["loss"] for r in results)
