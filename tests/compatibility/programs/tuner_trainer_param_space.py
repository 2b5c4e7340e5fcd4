"""A TorchTrainer given to the Tuner, its loop config and scaling searched over."""

import os
import tempfile

import torch
from ray import train, tune
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_loop_per_worker(config):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = train.torch.prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    x = torch.randn(32, 2)
    y = x.sum(dim=1, keepdim=True)
    for epoch in range(config["num_epochs"]):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as tmp:
            torch.save(model.state_dict(), os.path.join(tmp, "model.pt"))
            train.report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(tmp))


trainer = TorchTrainer(
    train_loop_per_worker,
    train_loop_config={"lr": 1.0, "num_epochs": 4},
    scaling_config=ScalingConfig(num_workers=1, use_gpu=False),
)
tuner = tune.Tuner(
    trainer,
    param_space={"train_loop_config": {"lr": tune.grid_search([0.0, 0.1])}},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=RunConfig(storage_path=os.path.abspath("out"), name="torch"),
)
results = tuner.fit()
assert not results.errors, results.errors
best = results.get_best_result()
assert best.config["train_loop_config"]["lr"] == 0.1
assert best.metrics["training_iteration"] == 4
with best.checkpoint.as_directory() as path:
    state = torch.load(os.path.join(path, "model.pt"))
assert any(key.endswith("weight") for key in state)
