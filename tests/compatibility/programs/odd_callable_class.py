"""functools.partial, a callable object and a bound lambda as trainables."""

import functools

from ray import train, tune


def base(config, factor):
    train.report({"v": config["x"] * factor})


class Runner:
    def __init__(self, factor):
        self.factor = factor

    def run(self, config):
        train.report({"v": config["x"] * self.factor})


space = {"x": tune.grid_search([1, 2])}
for trainable in (
    functools.partial(base, factor=3),
    Runner(3).run,
    lambda config: train.report({"v": config["x"] * 3}),
):
    results = tune.Tuner(trainable, param_space=space).fit()
    assert not results.errors, results.errors
    assert sorted(r.metrics["v"] for r in results) == [3, 6]
