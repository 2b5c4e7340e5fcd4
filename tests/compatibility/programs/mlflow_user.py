"""An MLflow user's script: the callback with a tracking directory, runs read back with MLflow itself."""

import os

import mlflow
from ray import train, tune
from ray.air.integrations.mlflow import MLflowLoggerCallback

URI = "sqlite:///" + os.path.abspath("mlflow.db")


def easy(config):
    for step in range(3):
        train.report({"iterations": step, "mean_loss": config["width"] / (step + 1)})


results = tune.Tuner(
    easy,
    param_space={"width": tune.grid_search([10, 20])},
    run_config=train.RunConfig(
        name="mlflow",
        callbacks=[MLflowLoggerCallback(tracking_uri=URI, experiment_name="demo", tags={"who": "me"})],
    ),
).fit()
assert not results.errors, results.errors
mlflow.set_tracking_uri(URI)
client = mlflow.tracking.MlflowClient()
experiment = client.get_experiment_by_name("demo")
runs = client.search_runs([experiment.experiment_id])
assert len(runs) == 2, runs
assert sorted(run.data.params["width"] for run in runs) == ["10", "20"]
assert all(run.data.metrics["iterations"] == 2 for run in runs)
assert all(run.data.tags["who"] == "me" for run in runs)
