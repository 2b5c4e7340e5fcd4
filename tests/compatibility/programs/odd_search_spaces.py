"""Every sampler of the search space, bounds and rounding checked by the trials."""

import random

import numpy as np
from ray import train, tune

space = {
    "uniform": tune.uniform(-5, -1),
    "quniform": tune.quniform(3.2, 5.4, 0.2),
    "loguniform": tune.loguniform(1e-4, 1e-2),
    "qloguniform": tune.qloguniform(1e-4, 1e-1, 5e-5),
    "randn": tune.randn(10, 2),
    "qrandn": tune.qrandn(10, 2, 0.2),
    "randint": tune.randint(-9, 15),
    "qrandint": tune.qrandint(-21, 12, 3),
    "lograndint": tune.lograndint(1, 10),
    "qlograndint": tune.qlograndint(2, 10, 2),
    "choice": tune.choice(["a", "b", "c"]),
    "func": tune.sample_from(lambda spec: spec.config.uniform * 0.01),
    "const": 3,
}


def objective(c):
    assert -5 <= c["uniform"] < -1
    assert abs(c["quniform"] / 0.2 - round(c["quniform"] / 0.2)) < 1e-6
    assert 1e-4 <= c["loguniform"] <= 1e-2
    assert abs(c["qrandn"] / 0.2 - round(c["qrandn"] / 0.2)) < 1e-6
    assert c["randint"] in range(-9, 15) and c["qrandint"] in range(-21, 13, 3)
    assert 1 <= c["lograndint"] < 10 and c["qlograndint"] % 2 == 0
    assert c["func"] == c["uniform"] * 0.01
    train.report({"ok": 1})


random.seed(1)
np.random.seed(1)
results = tune.Tuner(objective, param_space=space, tune_config=tune.TuneConfig(num_samples=10)).fit()
assert not results.errors, results.errors
assert len(results) == 10
domain = tune.uniform(0, 1)
assert 0 <= domain.sample() <= 1 and len(domain.sample(size=3)) == 3
assert tune.choice([1, 2, 3]).sample() in (1, 2, 3)
