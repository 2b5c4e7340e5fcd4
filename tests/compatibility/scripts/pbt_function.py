"""Population based training of a function that saves and continues from checkpoints."""

import os
import tempfile

import sweep as tune
from sweep import Checkpoint, CheckpointConfig, FailureConfig, RunConfig
from sweep.schedulers import PopulationBasedTraining


def pbt_function(config):
    lr = config["lr"]
    accuracy, start = 0.0, 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            text = open(os.path.join(checkpoint_dir, "state.txt")).read()
            accuracy, last_step = float(text.split()[0]), int(text.split()[1])
            start = last_step + 1
    for step in range(start, 41):
        accuracy += min(lr, 0.005) / max(lr, 0.005)
        with tempfile.TemporaryDirectory() as tempdir:
            with open(os.path.join(tempdir, "state.txt"), "w") as file:
                file.write(f"{accuracy} {step}")
            metrics = {"mean_accuracy": accuracy, "cur_lr": lr, "step": step, "done": accuracy > 96}
            tune.report(metrics, checkpoint=Checkpoint.from_directory(tempdir) if step % 5 == 0 else None)


perturbation_interval = 5
scheduler = PopulationBasedTraining(
    time_attr="training_iteration",
    perturbation_interval=perturbation_interval,
    metric="mean_accuracy",
    mode="max",
    hyperparam_mutations={
        "lr": tune.uniform(0.0001, 0.02),
        "some_other_factor": [1, 2],
    },
)
tuner = tune.Tuner(
    pbt_function,
    run_config=RunConfig(
        name="pbt_function_api_example",
        verbose=0,
        stop={"mean_accuracy": 96, "training_iteration": 40},
        failure_config=FailureConfig(fail_fast=True),
        checkpoint_config=CheckpointConfig(checkpoint_score_attribute="mean_accuracy", num_to_keep=4),
    ),
    tune_config=tune.TuneConfig(scheduler=scheduler),
    param_space={"lr": tune.grid_search([0.0001, 0.003, 0.005, 0.007]), "some_other_factor": 1},
)
results = tuner.fit()
assert not results.errors
best = results.get_best_result(metric="mean_accuracy", mode="max")
assert best.metrics["training_iteration"] >= 35
directory = results.experiment_path
assert os.path.exists(os.path.join(directory, "pbt_global.txt"))
assert [result.config["lr"] != 0.0001 for result in results] == [True] * 4  # the worst was replaced
print("perturbed")
