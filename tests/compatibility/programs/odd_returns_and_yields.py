"""Trials that return a dict, a number or nothing, and trials that yield."""

from ray import tune


def returns_dict(config):
    return {"score": config["a"] ** 2, "other": 1}


def returns_float(config):
    return config["a"] * 1.5


def yields(config):
    for i in range(3):
        yield {"score": config["a"] + i}


def yields_numbers(config):
    for i in range(3):
        yield i * config["a"]


def nothing(config):
    return None


space = {"a": tune.grid_search([1, 2])}
analysis = tune.run(returns_dict, config=space, metric="score", mode="max")
assert analysis.best_result["score"] == 4 and analysis.best_config == {"a": 2}

analysis = tune.run(returns_float, config=space, mode="max")
assert analysis.best_config == {"a": 2}
assert analysis.best_result["_metric"] == 3.0

analysis = tune.run(yields, config=space, metric="score", mode="max")
assert analysis.best_result["score"] == 4 and analysis.best_result["training_iteration"] == 3

analysis = tune.run(yields_numbers, config=space, mode="max")
assert analysis.best_result["_metric"] == 4

analysis = tune.run(nothing, config=space)
assert [t.status for t in analysis.trials] == ["TERMINATED", "TERMINATED"]
