"""Tuner, TuneConfig and RunConfig, and the whole ResultGrid."""

import os

from ray import train, tune


def objective(config):
    for step in range(config["steps"]):
        train.report({"loss": (config["x"] - 3) ** 2 / (step + 1), "step": step})


tuner = tune.Tuner(
    objective,
    param_space={"x": tune.grid_search([1, 2, 3.5]), "steps": 4},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=train.RunConfig(name="basic", storage_path=os.path.abspath("out"), verbose=0),
)
results = tuner.fit()
assert len(results) == 3 and results.num_terminated == 3 and results.num_errors == 0 and not results.errors
best = results.get_best_result()
assert best.config["x"] == 3.5
assert best.metrics["loss"] == 0.25 / 4
assert best.metrics["training_iteration"] == 4
assert best.metrics["config"] == best.config
assert best.error is None and best.checkpoint is None
assert list(best.metrics_dataframe["step"]) == [0, 1, 2, 3]
assert os.path.isdir(best.path) and best.path.startswith(os.path.abspath("out/basic"))
assert results.experiment_path == os.path.abspath("out/basic")
first = results.get_best_result(metric="step", mode="max", scope="all")
assert first.metrics["step"] == 3
frame = results.get_dataframe()
assert len(frame) == 3 and set(frame["config/x"]) == {1, 2, 3.5}
frame = results.get_dataframe(filter_metric="loss", filter_mode="max")
assert set(frame["step"]) == {0}
assert [r.metrics["step"] for r in results] == [3, 3, 3]
assert results[0].config["x"] in (1, 2, 3.5)
