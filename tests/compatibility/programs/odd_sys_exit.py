"""A trial that calls sys.exit, one that kills its process: both fail, the others go on."""

import os
import sys

from ray import train, tune


def objective(config):
    train.report({"x": 1})
    if config["how"] == "exit":
        sys.exit(3)
    if config["how"] == "die":
        os._exit(7)
    train.report({"x": 2})


results = tune.Tuner(objective, param_space={"how": tune.grid_search(["fine", "exit", "die", "fine"])}).fit()
assert len(results) == 4
by = {}
for r in results:
    by.setdefault(r.config["how"], []).append(r)
assert all(r.error is None and r.metrics["x"] == 2 for r in by["fine"])
assert by["exit"][0].error is not None
assert by["die"][0].error is not None
assert results.num_errors == 2
