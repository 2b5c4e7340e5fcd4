"""PBT over a function trainable with checkpoints, tune's domains as mutations, synch."""

import os
import tempfile

from ray import train, tune
from ray.train import Checkpoint, CheckpointConfig
from ray.tune.schedulers import PopulationBasedTraining


def train_fn(config):
    step, weight = 0, 0.0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as d:
            step, weight = eval(open(os.path.join(d, "w.txt")).read())
    while True:
        step += 1
        weight += config["lr"]
        with tempfile.TemporaryDirectory() as d:
            if step % 2 == 0:
                open(os.path.join(d, "w.txt"), "w").write(repr((step, weight)))
                saved = Checkpoint.from_directory(d)
            else:
                saved = None
            train.report({"acc": weight, "lr": config["lr"], "step": step}, checkpoint=saved)


scheduler = PopulationBasedTraining(
    time_attr="training_iteration",
    perturbation_interval=2,
    hyperparam_mutations={"lr": tune.uniform(0.01, 0.1), "mom": [0.8, 0.9]},
    synch=True,
    resample_probability=0.5,
)
results = tune.Tuner(
    train_fn,
    param_space={"lr": tune.uniform(0.01, 0.1), "mom": tune.choice([0.8, 0.9])},
    tune_config=tune.TuneConfig(metric="acc", mode="max", scheduler=scheduler, num_samples=3),
    run_config=train.RunConfig(
        stop={"training_iteration": 8},
        checkpoint_config=CheckpointConfig(num_to_keep=3),
        failure_config=train.FailureConfig(max_failures=1),
    ),
).fit()
assert not results.errors, results.errors
assert len(results) == 3
assert all(r.metrics["training_iteration"] == 8 for r in results)
best = results.get_best_result()
assert best.checkpoint is not None
assert 0 < best.metrics["acc"] < 8 * 0.2
