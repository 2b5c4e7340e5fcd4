"""What is shown and written: reporters, log files, names of trials and of their directories."""

import os

import sweep as tune
from sweep import CLIReporter, JupyterNotebookReporter


def train_fn(config):
    print("hello from", config["lr"])
    for i in range(3):
        tune.report({"mean_accuracy": i / 10, "custom": config["lr"] * i})


reporter = CLIReporter(metric_columns=["mean_accuracy", "training_iteration"], max_report_frequency=1)
reporter.add_metric_column("custom", "mine")
reporter.add_parameter_column("lr", "rate")
analysis = tune.run(
    train_fn,
    config={"lr": tune.grid_search([1, 2])},
    progress_reporter=reporter,
    log_to_file=True,
    trial_name_creator=lambda trial: f"trial_{trial.config['lr']}",
    trial_dirname_creator=lambda trial: f"dir_{trial.config['lr']}",
    name="shown",
    verbose=1,
)
root = analysis.experiment_path
for trial, rate in zip(analysis.trials, (1, 2)):
    assert str(trial) == f"trial_{rate}"
    assert open(os.path.join(root, f"dir_{rate}", "stdout")).read().strip() == f"hello from {rate}"
    assert os.path.exists(os.path.join(trial.local_path, "stderr"))

analysis = tune.run(train_fn, config={"lr": 3}, log_to_file=("out.log", "err.log"), name="files", verbose=0)
assert "hello from 3" in open(os.path.join(analysis.trials[0].local_path, "out.log")).read()
assert JupyterNotebookReporter(overwrite=True) is not None
print("shown")
