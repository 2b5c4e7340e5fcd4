"""Checkpoints of a function: reported with metrics, kept by score, read back from the results."""

import json
import os
import tempfile

import sweep as tune
from sweep import Checkpoint, CheckpointConfig, RunConfig


def train_fn(config):
    start = 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            with open(os.path.join(checkpoint_dir, "state.json")) as fp:
                start = json.load(fp)["step"] + 1
    for step in range(start, 7):
        metrics = {"score": [0, 3, 5, 4, 1, 2, 0.5][step], "started_at": start}
        with tempfile.TemporaryDirectory() as tempdir:
            with open(os.path.join(tempdir, "state.json"), "w") as fp:
                json.dump({"step": step}, fp)
            tune.report(metrics=metrics, checkpoint=Checkpoint.from_directory(tempdir))
        if step == 4 and start == 1 and config["fails"]:
            raise RuntimeError("fails once")


tuner = tune.Tuner(
    train_fn,
    param_space={"fails": tune.grid_search([False, True])},
    tune_config=tune.TuneConfig(metric="score", mode="max"),
    run_config=RunConfig(
        name="checkpoints",
        verbose=0,
        failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order="max"
        ),
    ),
)
results = tuner.fit()
assert not results.errors
for result, started_at in zip(results, (1, 5)):
    assert result.metrics["started_at"] == started_at
    kept = {name for name in os.listdir(result.path) if name.startswith("checkpoint_")}
    assert len(kept) <= 3  # the best two and the last
    scores = [metrics["score"] for _, metrics in result.best_checkpoints]
    assert max(scores) == 5
    best = result.get_best_checkpoint("score", mode="max")
    with best.as_directory() as directory:
        assert json.load(open(os.path.join(directory, "state.json")))["step"] == 2
    copied = result.checkpoint.to_directory(tempfile.mkdtemp())
    assert json.load(open(os.path.join(copied, "state.json")))["step"] == 6
    assert os.path.basename(result.checkpoint.path) in kept
checkpoint = results[0].checkpoint
checkpoint.set_metadata({"from": "script"})
checkpoint.update_metadata({"more": 1})
assert checkpoint.get_metadata() == {"from": "script", "more": 1}
print("kept")
