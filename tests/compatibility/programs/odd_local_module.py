"""A script with helpers in a module beside it, found through sys.path, used by the trial and as a config class."""

import os
import sys

HERE = os.path.join(os.getcwd(), "project")
os.makedirs(HERE)
with open(os.path.join(HERE, "my_helpers.py"), "w") as f:
    f.write("class Settings:\n    def __init__(self, k):\n        self.k = k\n\ndef score(x, s):\n    return x * s.k\n")
sys.path.insert(0, HERE)

import my_helpers  # noqa: E402
from ray import train, tune  # noqa: E402

SETTINGS = my_helpers.Settings(7)
TABLE = {i: i * i for i in range(100)}


def objective(config):
    from my_helpers import score

    train.report({"v": score(config["x"], SETTINGS) + TABLE[3], "k": config["s"].k})


results = tune.Tuner(objective, param_space={"x": tune.grid_search([1, 2]), "s": my_helpers.Settings(5)}).fit()
assert not results.errors, results.errors
assert sorted(r.metrics["v"] for r in results) == [16, 23]
assert all(r.metrics["k"] == 5 for r in results)
assert isinstance(results[0].config["s"], my_helpers.Settings)
