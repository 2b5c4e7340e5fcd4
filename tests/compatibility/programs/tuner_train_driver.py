"""More trials than fit: each trains with two workers that it never asked for, and their reports are its own."""

import os
import tempfile

import ray
from ray import tune
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import ASHAScheduler


def train_fn(config):
    for epoch in range(config["epochs"]):
        with tempfile.TemporaryDirectory() as tmp:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                with open(os.path.join(tmp, "epoch.txt"), "w") as file:
                    file.write(str(epoch))
                checkpoint = Checkpoint.from_directory(tmp)
            ray.train.report({"loss": config["lr"] / (epoch + 1), "epoch": epoch}, checkpoint=checkpoint)
    return "a model that nobody asks for"


def driver_fn(config):
    try:
        TorchTrainer(
            train_fn,
            train_loop_config=config["train_loop_config"],
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                name=f"train-{ray.tune.get_context().get_trial_id()}",
                storage_path=tempfile.gettempdir(),
                callbacks=[TuneReportCallback()],
            ),
        ).fit()
    except Exception as error:
        print("a script that logs its errors", error)
        raise


os.environ.setdefault("OMP_NUM_THREADS", "1")
ray.init(num_cpus=4, include_dashboard=False)
tuner = tune.Tuner(
    driver_fn,
    param_space={"train_loop_config": {"lr": tune.grid_search([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), "epochs": 3}},
    tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=ASHAScheduler(grace_period=3, max_t=10)),
)
results = tuner.fit()
assert len(results) == 6 and not results.errors
best = results.get_best_result()
assert best.config["train_loop_config"]["lr"] == 1.0
assert best.metrics["epoch"] == 2 and best.metrics["training_iteration"] == 3
with best.checkpoint.as_directory() as directory, open(os.path.join(directory, "epoch.txt")) as file:
    assert file.read() == "2"
