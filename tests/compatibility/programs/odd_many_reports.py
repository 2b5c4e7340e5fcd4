"""A trial that reports thousands of times, with done and training_iteration of its own."""

from ray import train, tune


def objective(config):
    for i in range(1000):
        train.report({"i": i})


results = tune.Tuner(objective, run_config=train.RunConfig(verbose=0)).fit()
assert results[0].metrics["i"] == 999 and results[0].metrics["training_iteration"] == 1000
assert len(results[0].metrics_dataframe) == 1000


def ends_itself(config):
    for i in range(10):
        train.report({"i": i, "done": i == 4})


results = tune.Tuner(ends_itself).fit()
assert results[0].metrics["i"] == 4, results[0].metrics


def own_iteration(config):
    for i in (10, 20, 30):
        train.report({"training_iteration": i})


results = tune.Tuner(own_iteration, run_config=train.RunConfig(stop={"training_iteration": 20})).fit()
assert results[0].metrics["training_iteration"] == 20
