"""register_trainable, run by name, and run_experiments with a dict and with Experiment objects."""

from ray import tune
from ray.tune import Experiment, register_trainable, run_experiments


def train_func(config, reporter):
    for i in range(10):
        reporter(timesteps_total=i, neg_mean_loss=-config["alpha"] / (i + 1))


register_trainable("my_train", train_func)

trials = run_experiments(
    {
        "exp_a": {
            "run": "my_train",
            "stop": {"training_iteration": 3},
            "config": {"alpha": tune.grid_search([0.2, 0.4, 0.6])},
            "num_samples": 1,
        },
        "exp_b": {"run": "my_train", "config": {"alpha": 1.0}, "stop": {"timesteps_total": 5}},
    }
)
assert len(trials) == 4, trials
assert sorted(t.last_result["training_iteration"] for t in trials) == [3, 3, 3, 6]

experiment = Experiment("exp_c", run="my_train", stop={"training_iteration": 2}, config={"alpha": 3})
trials = run_experiments(experiment)
assert [t.last_result["neg_mean_loss"] for t in trials] == [-1.5]

analysis = tune.run("my_train", config={"alpha": 1.0}, stop={"training_iteration": 4})
assert analysis.trials[0].last_result["training_iteration"] == 4
