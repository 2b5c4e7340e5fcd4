"""A Trainable subclass saved every second iteration and at the end, its cleanup called."""

import json
import os
import pickle

from ray import tune

MARKS = os.path.abspath("marks")
os.makedirs(MARKS, exist_ok=True)


class Model(tune.Trainable):
    def setup(self, config):
        self.x = 0
        self.a = config["a"]
        self.b = config.get("b", 1)

    def step(self):
        self.x += 1
        return {"score": self.a * self.x**2 + self.b, "iter_seen": self.iteration}

    def save_checkpoint(self, checkpoint_dir):
        path = os.path.join(checkpoint_dir, "model.pkl")
        with open(path, "wb") as f:
            pickle.dump({"x": self.x}, f)
        return path

    def load_checkpoint(self, checkpoint):
        with open(checkpoint, "rb") as f:
            self.x = pickle.load(f)["x"]

    def cleanup(self):
        with open(os.path.join(MARKS, self.trial_id), "w") as f:
            json.dump({"x": self.x, "logdir": self.logdir}, f)


analysis = tune.run(
    Model,
    config={"a": tune.grid_search([1, 2, 3])},
    stop={"training_iteration": 5},
    checkpoint_freq=2,
    checkpoint_at_end=True,
    local_dir=os.path.abspath("results"),
    metric="score",
    mode="max",
)
assert analysis.best_config["a"] == 3
assert analysis.best_result["score"] == 3 * 25 + 1
assert analysis.best_result["iter_seen"] == 4  # counted after the step returns
marks = [json.load(open(os.path.join(MARKS, name))) for name in os.listdir(MARKS)]
assert sorted(mark["x"] for mark in marks) == [5, 5, 5], marks
assert analysis.best_checkpoint is not None
paths = analysis.get_trial_checkpoints_paths(analysis.best_trial, "training_iteration")
assert sorted(iteration for _, iteration in paths) == [2, 4, 5], paths
