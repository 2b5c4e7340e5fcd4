"""Metrics within metrics: "eval/acc" as the metric, the stop key, the column and the score."""

import os

from ray import train, tune
from ray.tune.schedulers import ASHAScheduler


def objective(config):
    for i in range(10):
        train.report({"eval": {"acc": i * config["x"], "per_class": {"a": i}}, "info/raw": i})


results = tune.Tuner(
    objective,
    param_space={"x": tune.grid_search([1, 2, 3])},
    tune_config=tune.TuneConfig(metric="eval/acc", mode="max", scheduler=ASHAScheduler(max_t=10, grace_period=5)),
    run_config=train.RunConfig(stop={"eval/per_class/a": 7}, storage_path=os.path.abspath("out")),
).fit()
best = results.get_best_result()
assert best.config["x"] == 3
assert best.metrics["eval"]["acc"] == 21, best.metrics
assert best.metrics["eval"]["per_class"]["a"] == 7
assert best.metrics["info/raw"] == 7
frame = results.get_dataframe()
assert {"eval/acc", "eval/per_class/a", "info/raw"} <= set(frame.columns), list(frame.columns)
assert frame["eval/acc"].max() == 21
assert list(best.metrics_dataframe["eval/acc"]) == [0, 3, 6, 9, 12, 15, 18, 21]
