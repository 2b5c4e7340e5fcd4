"""A function trial that builds a TorchTrainer itself and asks for no resources at all."""

import os

import ray
from ray import train, tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def loop(config):
    context = train.get_context()
    for epoch in range(2):
        train.report({"loss": config["lr"] * (epoch + 1), "world": context.get_world_size()})


def driver(config):
    trainer = TorchTrainer(
        loop,
        train_loop_config={"lr": config["lr"]},
        scaling_config=ScalingConfig(num_workers=config["num_workers"]),
        run_config=RunConfig(name=f"train-{tune.get_context().get_trial_id()}", storage_path=os.path.abspath("inner")),
    )
    result = trainer.fit()
    tune.report({"loss": result.metrics["loss"], "world": result.metrics["world"]})


os.environ.setdefault("OMP_NUM_THREADS", "1")
ray.init(num_cpus=4)
ROOT = os.getcwd()
tuner = tune.Tuner(
    driver,
    param_space={"lr": tune.grid_search([0.1, 0.2]), "num_workers": 2},
    tune_config=tune.TuneConfig(max_concurrent_trials=2),
    run_config=RunConfig(storage_path=os.path.join(ROOT, "outer")),
)
results = tuner.fit()
assert not results.errors, results.errors
best = results.get_best_result("loss", "min")
assert best.config["lr"] == 0.1
assert abs(best.metrics["loss"] - 0.2) < 1e-9 and best.metrics["world"] == 2
