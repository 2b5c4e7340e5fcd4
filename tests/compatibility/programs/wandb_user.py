"""A W&B user's script: the callback beside the Tuner and setup_wandb within the trial, both switched off line."""

import os

os.environ["WANDB_MODE"] = "disabled"
os.environ["WANDB_SILENT"] = "true"

from ray import train, tune  # noqa: E402
from ray.air.integrations.wandb import WandbLoggerCallback, setup_wandb  # noqa: E402


def train_fn(config):
    run = setup_wandb(config, project="demo", mode="disabled")
    for i in range(2):
        loss = config["mean"] + i
        run.log({"loss": loss})
        train.report({"loss": loss})


results = tune.Tuner(
    train_fn,
    param_space={"mean": tune.grid_search([1, 2]), "wandb": {"project": "demo"}},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=train.RunConfig(
        callbacks=[WandbLoggerCallback(project="demo", group="g", log_config=True, mode="disabled")]
    ),
).fit()
assert not results.errors, results.errors
assert results.get_best_result().config["mean"] == 1
