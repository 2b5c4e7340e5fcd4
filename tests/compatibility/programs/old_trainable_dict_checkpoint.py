"""save_checkpoint that returns a dict, restored through tune.run(restore=...)."""

from ray import tune


class Counter(tune.Trainable):
    def setup(self, config):
        self.count = 0
        self.restored = False

    def step(self):
        self.count += self.config["inc"]
        return {"count": self.count, "restored": self.restored}

    def save_checkpoint(self, checkpoint_dir):
        return {"count": self.count}

    def load_checkpoint(self, state):
        self.count = state["count"]
        self.restored = True


first = tune.run(Counter, name="first", config={"inc": 10}, stop={"training_iteration": 3}, checkpoint_at_end=True)
trial = first.trials[0]
checkpoint = first.get_last_checkpoint(trial)
assert checkpoint
second = tune.run(Counter, name="second", config={"inc": 1}, stop={"count": 32}, restore=checkpoint)
last = second.trials[0].last_result
assert last["restored"] is True
assert last["count"] == 32, last
