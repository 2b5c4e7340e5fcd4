"""Nested results: metrics named by their path in the run, in stop rules, schedulers and dataframes."""

from sweep.search.optuna import OptunaSearch

import sweep as tune
from sweep.schedulers import ASHAScheduler


def train_fn(config):
    for i in range(1, 10):
        tune.report({"eval": {"acc": config["model"]["width"] * i / 100, "loss": {"total": 1 / i}}, "epoch": i})


space = {"model": {"width": tune.uniform(1, 10), "depth": 2}, "lr": 0.1}
tuner = tune.Tuner(
    train_fn,
    param_space=space,
    tune_config=tune.TuneConfig(
        metric="eval/acc",
        mode="max",
        num_samples=4,
        search_alg=OptunaSearch(seed=0),
        scheduler=ASHAScheduler(time_attr="epoch", max_t=9, grace_period=3),
    ),
    run_config=tune.RunConfig(stop={"eval/loss/total": 10.0}, verbose=0),
)
results = tuner.fit()
best = results.get_best_result()
assert best.metrics["eval"]["acc"] == max(r.metrics["eval"]["acc"] for r in results)
frame = results.get_dataframe()
assert {"eval/acc", "eval/loss/total", "config/model/width"} <= set(frame.columns)
assert frame["eval/acc"].max() == best.metrics["eval"]["acc"]
assert best.metrics_dataframe["eval/acc"].is_monotonic_increasing

analysis = tune.run(train_fn, config=space, stop={"eval/acc": 0.0001}, metric="eval/acc", mode="max", verbose=0)
assert analysis.best_result["training_iteration"] == 1
assert analysis.best_result_df["eval/acc"].iloc[0] > 0
print("nested")
