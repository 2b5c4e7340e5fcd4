"""local_dir, the files in a trial's directory, and an ExperimentAnalysis read from them later."""

import csv
import json
import os

from ray import tune
from ray.tune import ExperimentAnalysis


def objective(config):
    for i in range(4):
        tune.report(acc=config["x"] * i)


LOCAL = os.path.join(os.getcwd(), "ray_results")
analysis = tune.run(
    objective,
    name="my_exp",
    local_dir=LOCAL,
    config={"x": tune.grid_search([1, 5])},
    trial_name_creator=lambda trial: f"obj_{trial.trial_id}",
    metric="acc",
    mode="max",
)
assert os.path.isdir(os.path.join(LOCAL, "my_exp"))
logdir = analysis.best_logdir
assert os.path.dirname(logdir) == os.path.join(LOCAL, "my_exp"), logdir
assert analysis.get_best_logdir("acc", "max") == logdir

with open(os.path.join(logdir, "params.json")) as f:
    assert json.load(f) == {"x": 5}
with open(os.path.join(logdir, "result.json")) as f:
    results = [json.loads(line) for line in f]
assert [r["acc"] for r in results] == [0, 5, 10, 15]
assert [r["training_iteration"] for r in results] == [1, 2, 3, 4]
with open(os.path.join(logdir, "progress.csv")) as f:
    rows = list(csv.DictReader(f))
assert [int(row["acc"]) for row in rows] == [0, 5, 10, 15]

again = ExperimentAnalysis(os.path.join(LOCAL, "my_exp"))
assert again.get_best_config("acc", "max") == {"x": 5}
frames = again.trial_dataframes
assert len(frames) == 2
assert sorted(list(frame["acc"]) for frame in frames.values()) == [[0, 1, 2, 3], [0, 5, 10, 15]]
assert sorted(c["x"] for c in again.get_all_configs().values()) == [1, 5]
assert again.dataframe("acc", "max")["acc"].max() == 15
