"""Checkpoint.from_directory from a temporary directory, kept by score, read back with as_directory."""

import json
import os
import tempfile

from ray import train, tune
from ray.train import Checkpoint, CheckpointConfig, RunConfig


def train_fn(config):
    start = 1
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            start = json.load(open(os.path.join(checkpoint_dir, "state.json")))["epoch"] + 1
    for epoch in range(start, config["epochs"] + 1):
        acc = [0.1, 0.9, 0.3, 0.5][epoch - 1] * config["scale"]
        with tempfile.TemporaryDirectory() as tmp:
            with open(os.path.join(tmp, "state.json"), "w") as f:
                json.dump({"epoch": epoch, "acc": acc}, f)
            train.report({"acc": acc, "epoch": epoch}, checkpoint=Checkpoint.from_directory(tmp))


tuner = tune.Tuner(
    train_fn,
    param_space={"epochs": 4, "scale": tune.grid_search([1, 2])},
    run_config=RunConfig(
        storage_path=os.path.abspath("out"),
        checkpoint_config=CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="acc", checkpoint_score_order="max"
        ),
    ),
)
results = tuner.fit()
best = results.get_best_result(metric="acc", mode="max", scope="last")
assert best.config["scale"] == 2
assert best.metrics["epoch"] == 4
with best.checkpoint.as_directory() as path:
    assert json.load(open(os.path.join(path, "state.json")))["epoch"] == 4
kept = sorted(metrics["epoch"] for _, metrics in best.best_checkpoints)
assert kept == [2, 4], kept
top = best.get_best_checkpoint("acc", "max")
copied = top.to_directory(os.path.abspath("copied"))
assert json.load(open(os.path.join(copied, "state.json")))["epoch"] == 2
again = Checkpoint(top.path)
with again.as_directory() as path:
    assert "state.json" in os.listdir(path)
again.set_metadata({"who": "me"})
again.update_metadata({"what": 1})
assert again.get_metadata() == {"who": "me", "what": 1}
