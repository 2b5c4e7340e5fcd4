"""What scripts read of a trial: in the analysis, in name creators, in callbacks."""

import os

from ray import tune

SEEN = []


class Watch(tune.Callback):
    def on_trial_complete(self, iteration, trials, trial, **info):
        SEEN.append((trial.trial_id, trial.status, trial.config["lr"], trial.last_result["acc"], str(trial)))


def named(trial):
    return "{}_{}_lr={}".format(trial.trainable_name, trial.trial_id, trial.config["lr"])


def train_mnist(config):
    tune.report({"acc": config["lr"]})


analysis = tune.run(
    train_mnist,
    name="attributes",
    config={"lr": tune.grid_search([0.1, 0.2])},
    trial_name_creator=named,
    callbacks=[Watch()],
    metric="acc",
    mode="max",
)
assert sorted(entry[2] for entry in SEEN) == [0.1, 0.2]
best = analysis.best_trial
assert str(best) == f"train_mnist_{best.trial_id}_lr=0.2"
assert best.trainable_name == "train_mnist"
assert best.experiment_tag and "lr=0.2" in best.experiment_tag
assert best.evaluated_params == {"lr": 0.2}
assert os.path.isdir(best.local_path)
assert best.metric_analysis["acc"]["max"] == 0.2
assert best.is_finished()
assert best.last_result["done"] is True
assert best.last_result["config"] == {"lr": 0.2}
