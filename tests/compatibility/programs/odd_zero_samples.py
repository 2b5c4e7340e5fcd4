"""num_samples=0: Ray runs nothing and returns an empty grid."""

from ray import train, tune


def objective(config):
    train.report({"x": 1})


results = tune.Tuner(objective, tune_config=tune.TuneConfig(num_samples=0, metric="x", mode="max")).fit()
assert len(results) == 0
assert results.num_errors == 0
