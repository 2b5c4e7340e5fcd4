"""Spaces out of numpy: choices from linspace, numpy bounds, None and dicts among the options."""

import numpy as np
from ray import train, tune

options = [{"name": "sgd", "momentum": 0.9}, {"name": "adam"}]


def objective(config):
    assert float(config["lr"]) <= 0.5 and 1 <= config["n"] < 5
    train.report({"loss": float(config["lr"]) + config["n"], "opt": config["opt"]["name"]})


results = tune.Tuner(
    objective,
    param_space={
        "lr": tune.choice(np.linspace(0.1, 0.5, 5)),
        "n": tune.randint(np.int64(1), np.int64(5)),
        "u": tune.uniform(np.float64(0.0), np.float32(1.0)),
        "opt": tune.grid_search(options),
        "drop": tune.grid_search([None, 0.5]),
        "batch": tune.choice(range(8, 65, 8)),
        "array": np.zeros((2, 2)),
    },
    tune_config=tune.TuneConfig(num_samples=2, metric="loss", mode="min"),
).fit()
assert not results.errors, results.errors
assert len(results) == 8
found = {(r.config["opt"]["name"], r.config["drop"]) for r in results}
assert found == {("sgd", None), ("sgd", 0.5), ("adam", None), ("adam", 0.5)}
assert all(r.config["array"].shape == (2, 2) for r in results)
assert all(r.config["batch"] % 8 == 0 for r in results)
assert len(results.get_dataframe()) == 8
