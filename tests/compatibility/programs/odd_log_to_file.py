"""print() in trials with log_to_file, as one name pair and as True."""

import os
import sys

from ray import train, tune


def objective(config):
    print("hello from", config["x"])
    print("a warning", file=sys.stderr)
    train.report({"x": config["x"]})


for log, out, err in [(True, "stdout", "stderr"), (("my_out.log", "my_err.log"), "my_out.log", "my_err.log")]:
    results = tune.Tuner(
        objective,
        param_space={"x": tune.grid_search([1, 2])},
        run_config=train.RunConfig(log_to_file=log, storage_path=os.path.abspath("out")),
    ).fit()
    for r in results:
        assert f"hello from {r.config['x']}" in open(os.path.join(r.path, out)).read()
        assert "a warning" in open(os.path.join(r.path, err)).read()

analysis = tune.run(objective, config={"x": 5}, log_to_file="all.log", local_dir=os.path.abspath("out"))
text = open(os.path.join(analysis.trials[0].local_path, "all.log")).read()
assert "hello from 5" in text and "a warning" in text
