"""A Trainable driven by hand: train, save, restore, stop, without any experiment."""

from ray import tune


class Counter(tune.Trainable):
    def setup(self, config):
        self.n = config.get("start", 0)

    def step(self):
        self.n += 1
        return {"n": self.n}

    def save_checkpoint(self, checkpoint_dir):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


one = Counter(config={"start": 10})
assert one.train()["n"] == 11
result = one.train()
assert result["n"] == 12 and result["training_iteration"] == 2 and result["done"] is False
saved = one.save()
two = Counter(config={})
two.restore(saved)
assert two.train()["n"] == 13
assert two.training_iteration == 3
one.stop()
two.stop()
