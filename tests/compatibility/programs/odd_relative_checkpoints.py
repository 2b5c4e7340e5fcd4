"""The idiom of a much-copied tutorial: each trial writes ./my_model and reports it; data lies beside the script."""

import os

import ray.cloudpickle as pickle
from ray import tune
from ray.tune import Checkpoint

with open("data.pkl", "wb") as file:
    pickle.dump([1.0, 2.0, 3.0], file)


def train_model(config):
    with open(os.path.join(os.environ["TUNE_ORIG_WORKING_DIR"], "data.pkl"), "rb") as file:
        data = pickle.load(file)
    for epoch in range(5):
        os.makedirs("my_model", exist_ok=True)
        with open("./my_model/checkpoint.pkl", "wb") as file:
            pickle.dump((config["x"], epoch), file)
        tune.report({"loss": config["x"] * sum(data)}, checkpoint=Checkpoint.from_directory("my_model"))


def try_file(config):
    open("data.pkl").close()


results = tune.Tuner(train_model, param_space={"x": tune.grid_search([1, 2, 3, 4])}).fit()
for result in results:
    with open(os.path.join(result.checkpoint.path, "checkpoint.pkl"), "rb") as file:
        assert pickle.load(file) == (result.config["x"], 4)
assert not os.path.exists("my_model")
(failed,) = tune.Tuner(try_file).fit()
assert "No such file or directory: 'data.pkl'" in str(failed.error)
