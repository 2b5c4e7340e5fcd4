"""A Trainable whose step fails now and then, retried from its last checkpoint with max_failures."""

import os

from ray import tune

MARK = os.path.abspath("failed_once")


class Flaky(tune.Trainable):
    @classmethod
    def default_resource_request(cls, config):
        return tune.PlacementGroupFactory([{"CPU": 1}])

    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        if self.n == 4 and not os.path.exists(MARK):
            open(MARK, "w").close()
            raise RuntimeError("cosmic ray")
        return {"n": self.n, "done": self.n == 6}

    def save_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "n"), "w") as f:
            f.write(str(self.n))
        return checkpoint_dir

    def load_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "n")) as f:
            self.n = int(f.read())


analysis = tune.run(Flaky, checkpoint_freq=1, max_failures=3, keep_checkpoints_num=2, config={}, verbose=0)
trial = analysis.trials[0]
assert trial.status == "TERMINATED"
assert trial.last_result["n"] == 6
assert trial.last_result["training_iteration"] == 6
assert trial.num_failures == 1 if hasattr(trial, "num_failures") else True
assert list(analysis.trial_dataframes[list(analysis.trial_dataframes)[0]]["n"]) == [1, 2, 3, 4, 5, 6]
