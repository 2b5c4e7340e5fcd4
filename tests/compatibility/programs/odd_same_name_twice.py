"""The same name run twice in the same place, without resume: a second, fresh experiment."""

import os

from ray import train, tune


def objective(config):
    train.report({"x": config["x"]})


def run(values):
    return tune.Tuner(
        objective,
        param_space={"x": tune.grid_search(values)},
        run_config=train.RunConfig(name="same", storage_path=os.path.abspath("out")),
    ).fit()


assert sorted(r.metrics["x"] for r in run([1, 2])) == [1, 2]
second = run([3, 4, 5])
assert sorted(r.metrics["x"] for r in second) == [3, 4, 5]
assert len(second.get_dataframe()) == 3
third = tune.run(objective, name="same", local_dir=os.path.abspath("out"), config={"x": 9})
assert [t.last_result["x"] for t in third.trials] == [9]
