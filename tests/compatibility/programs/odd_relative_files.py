"""Files of a trial written by relative names: in Ray each trial has its own working directory."""

import os

from ray import train, tune


def objective(config):
    with open("weights.txt", "w") as f:
        f.write(str(config["x"]))
    train.report({"x": config["x"], "here": os.path.samefile(os.getcwd(), train.get_context().get_trial_dir())})


results = tune.Tuner(objective, param_space={"x": tune.grid_search([1, 2, 3])}).fit()
assert all(r.metrics["here"] for r in results), "trials share a working directory"
assert [open(os.path.join(r.path, "weights.txt")).read() for r in results] == ["1", "2", "3"]
