"""Function trainables of the 1.x years: checkpoint_dir as argument and as context manager."""

import json
import os

from ray import tune


def train(config, checkpoint_dir=None):
    start = 0
    if checkpoint_dir:
        with open(os.path.join(checkpoint_dir, "state.json")) as f:
            start = json.load(f)["step"] + 1
    for step in range(start, 6):
        loss = config["a"] * (6 - step)
        with tune.checkpoint_dir(step=step) as checkpoint_dir:
            path = os.path.join(checkpoint_dir, "state.json")
            with open(path, "w") as f:
                json.dump({"step": step, "loss": loss}, f)
        tune.report(loss=loss)


analysis = tune.run(
    train,
    name="checkpoints",
    local_dir=os.path.abspath("results"),
    config={"a": tune.choice([1.0, 2.0])},
    num_samples=2,
    keep_checkpoints_num=2,
    checkpoint_score_attr="min-loss",
    resources_per_trial={"cpu": 1},
)

trial = analysis.get_best_trial("loss", "min", "last")
best = analysis.get_best_checkpoint(trial, metric="loss", mode="min")
assert best
kept = analysis.get_trial_checkpoints_paths(trial, metric="loss")
assert len(kept) == 2, kept
losses = []
for entry, loss in kept:
    losses.append(loss)
assert min(losses) == trial.last_result["loss"]
