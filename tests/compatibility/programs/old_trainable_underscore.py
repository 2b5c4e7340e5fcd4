"""A Trainable of 0.8: _setup, _train, _save and _restore. Ray itself no longer takes these."""

from ray import tune


class Old(tune.Trainable):
    def _setup(self, config):
        self.t = 0

    def _train(self):
        self.t += 1
        return {"mean_accuracy": self.t}

    def _save(self, checkpoint_dir):
        return {"t": self.t}

    def _restore(self, state):
        self.t = state["t"]


tune.run(Old, stop={"training_iteration": 2}, config={"lr": 0.1})
