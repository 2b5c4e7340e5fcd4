"""tune.run with a grid beside a sampled value, keyword reports, and everything the analysis says."""

import ray
from ray import tune


def score(config):
    return (config["lr"] - 0.1) ** 2 + config["layers"]


def objective(config):
    total = 0.0
    for epoch in range(3):
        total += score(config)
        tune.report(loss=total / (epoch + 1), mean_accuracy=1.0 / (1.0 + total))


ray.init(num_cpus=4, ignore_reinit_error=True, include_dashboard=False)
analysis = tune.run(
    objective,
    config={"lr": tune.uniform(0.0, 1.0), "layers": tune.grid_search([1, 2, 3])},
    num_samples=2,
    metric="loss",
    mode="min",
    verbose=1,
)

assert len(analysis.trials) == 6
assert all(trial.status == "TERMINATED" for trial in analysis.trials)
assert analysis.best_config["layers"] == 1
assert analysis.get_best_config(metric="mean_accuracy", mode="max")["layers"] == 1
assert analysis.best_result["training_iteration"] == 3
assert analysis.best_trial.last_result["loss"] == analysis.best_result["loss"]
assert set(analysis.best_trial.config) == {"lr", "layers"}

frame = analysis.dataframe(metric="loss", mode="min")
assert len(frame) == 6
for column in ("loss", "training_iteration", "trial_id", "config/lr", "config/layers", "time_total_s", "done"):
    assert column in frame.columns, (column, list(frame.columns))
assert len(analysis.results_df) == 6
assert sorted(analysis.results) == sorted(trial.trial_id for trial in analysis.trials)
ray.shutdown()
