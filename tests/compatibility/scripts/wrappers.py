"""What trainables are wrapped in: parameters, resources, partials, names, experiments."""

from functools import partial

import numpy as np

import sweep as tune
from sweep import Experiment, PlacementGroupFactory, register_trainable, run_experiments


def train_fn(config, data=None, scale=1):
    resources = tune.get_context().get_trial_resources()
    tune.report({"total": float(data.sum()) * scale + config["x"], "cpus": resources.required_resources["CPU"]})


data = np.arange(1_000.0)


def totals(trainable, **options):
    tuner = tune.Tuner(trainable, param_space={"x": 1}, run_config=tune.RunConfig(verbose=0), **options)
    (result,) = tuner.fit()
    assert result.error is None, result.error
    return result.metrics["total"], result.metrics["cpus"]


assert totals(tune.with_parameters(train_fn, data=data)) == (499501.0, 1)
assert totals(partial(train_fn, data=data, scale=2)) == (999001.0, 1)
wrapped = tune.with_resources(tune.with_parameters(train_fn, data=data, scale=3), {"cpu": 2})
assert totals(wrapped) == (1498501.0, 2)
group = PlacementGroupFactory([{"CPU": 0.5}, {"CPU": 0.5}])
assert totals(tune.with_resources(tune.with_parameters(train_fn, data=data), group)) == (499501.0, 1)
by_config = tune.with_resources(
    tune.with_parameters(train_fn, data=data),
    lambda config: PlacementGroupFactory([{"CPU": 0.25 * (config["x"] + 1)}]),
)
assert totals(by_config) == (499501.0, 0.5)


class WithData(tune.Trainable):
    def setup(self, config, data=None):
        self.total = float(data.sum())

    def step(self):
        return {"total": self.total, "cpus": 1, "done": True}


assert totals(tune.with_parameters(WithData, data=data)) == (499500.0, 1)


def simple(config):
    return {"score": config["x"] ** 2}


register_trainable("simple", simple)
analysis = tune.run("simple", config={"x": tune.grid_search([2, 3])}, metric="score", mode="max", verbose=0)
assert analysis.best_config == {"x": 3}
trials = run_experiments(
    [
        Experiment("one", run="simple", config={"x": 2}),
        Experiment("two", run=simple, config={"x": 4}, num_samples=2),
    ],
    verbose=0,
)
assert [trial.last_result["score"] for trial in trials] == [4, 16, 16]


def generator(config):
    for i in range(3):
        yield {"i": i}


assert tune.run(generator, verbose=0).trials[0].last_result["i"] == 2
assert tune.run(lambda config: 7.5, metric="_metric", mode="max", verbose=0).best_result["_metric"] == 7.5
print("wrapped")
