"""What people do with the dataframes: sort, group, plot columns, write CSV, go to logdir."""

import os

from ray import train, tune


def objective(config):
    for i in range(3):
        train.report({"loss": config["x"] * (i + 1), "sub": {"a": i}})


results = tune.Tuner(
    objective, param_space={"x": tune.grid_search([3, 1, 2]), "opt": {"kind": tune.grid_search(["a", "b"])}}
).fit()
df = results.get_dataframe()
top = df.sort_values("loss")[["config/x", "config/opt/kind", "loss", "trial_id", "training_iteration"]].head(2)
assert list(top["config/x"]) == [1, 1]
assert df.groupby("config/x")["loss"].mean().to_dict() == {1: 3, 2: 6, 3: 9}
df.to_csv("results.csv", index=False)
for column in ("timestamp", "done", "date", "time_this_iter_s", "time_total_s", "pid", "hostname", "node_ip"):
    assert column in df.columns, column
for column in ("time_since_restore", "iterations_since_restore", "checkpoint_dir_name", "logdir", "sub/a"):
    assert column in df.columns, column
best = results.get_best_result("loss", "min")
history = best.metrics_dataframe
assert list(history["loss"]) == [1, 2, 3] and list(history["sub/a"]) == [0, 1, 2]
assert list(history["training_iteration"]) == [1, 2, 3]

analysis = tune.run(objective, config={"x": tune.grid_search([1, 2]), "opt": {"kind": "a"}}, verbose=0)
df = analysis.dataframe()
assert all(os.path.isdir(path) for path in df["logdir"])
for path, frame in analysis.trial_dataframes.items():
    assert len(frame) == 3, path
assert analysis.results_df["loss"].max() == 6
assert analysis.stats()
