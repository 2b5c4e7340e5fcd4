"""Reading results: ResultGrid after fit, ExperimentAnalysis from the directory."""

import os

import sweep as tune
from sweep import ExperimentAnalysis


def train_fn(config):
    for i in range(5):
        tune.report({"mean_loss": (config["x"] - 2) ** 2 + 1 / (i + 1) - 3 * (i == 2 and config["x"] == 1)})


tuner = tune.Tuner(
    train_fn,
    param_space={"x": tune.grid_search([1, 2, 3]), "note": {"kind": "q"}},
    tune_config=tune.TuneConfig(metric="mean_loss", mode="min"),
    run_config=tune.RunConfig(name="analysed", verbose=0),
)
result_grid = tuner.fit()
assert result_grid.num_terminated == 3
assert result_grid.num_errors == 0
best_result = result_grid.get_best_result()
assert best_result.config["x"] == 2
assert best_result.metrics["training_iteration"] == 5
assert result_grid.get_best_result(scope="all").config["x"] == 1
assert len(best_result.metrics_dataframe) == 5
assert result_grid.get_dataframe(filter_metric="mean_loss", filter_mode="min")["training_iteration"].tolist() == [
    3,
    5,
    5,
]
assert [result.metrics["mean_loss"] for result in result_grid] == [1.2, 0.2, 1.2]
assert os.path.basename(best_result.path) in os.listdir(result_grid.experiment_path)

analysis = ExperimentAnalysis(result_grid.experiment_path, default_metric="mean_loss", default_mode="min")
assert len(analysis.trials) == 3
assert analysis.best_config == {"x": 2, "note": {"kind": "q"}}
assert analysis.best_result["mean_loss"] == 0.2
assert analysis.best_trial.trial_id == best_result.metrics["trial_id"]
assert analysis.get_best_config(metric="mean_loss", mode="max")["x"] in (1, 3)
assert analysis.get_best_trial("mean_loss", "min", scope="all").config["x"] == 1
assert analysis.get_best_trial("mean_loss", "min", scope="avg").config["x"] in (1, 2)
assert analysis.get_best_trial("mean_loss", "min", scope="last-5-avg").config["x"] in (1, 2)
assert analysis.best_logdir == best_result.path
assert set(analysis.trial_dataframes) >= {trial.trial_id for trial in analysis.trials}
frame = analysis.dataframe(metric="mean_loss", mode="min")
assert frame["config/x"].tolist() == [1, 2, 3]
assert analysis.results_df["mean_loss"].tolist() == [1.2, 0.2, 1.2]
assert len(analysis.get_all_configs()) == 3
assert analysis.stats()["start_time"] > 0
assert analysis.get_best_checkpoint(analysis.best_trial, metric="mean_loss", mode="min") is None
print("analysed", len(analysis.results))
