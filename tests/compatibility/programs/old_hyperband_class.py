"""HyperBand over a Trainable, its trials paused and taken up again."""

from ray import tune
from ray.tune.schedulers import HyperBandScheduler


class T(tune.Trainable):
    def setup(self, config):
        self.t = 0

    def step(self):
        self.t += 1
        return {"episode_reward_mean": self.config["h"] * self.t, "t": self.t}

    def save_checkpoint(self, d):
        return {"t": self.t}

    def load_checkpoint(self, state):
        self.t = state["t"]


hyperband = HyperBandScheduler(time_attr="training_iteration", metric="episode_reward_mean", mode="max", max_t=9)
analysis = tune.run(
    T,
    name="hyperband_test",
    num_samples=8,
    scheduler=hyperband,
    config={"h": tune.sample_from(lambda spec: __import__("random").random())},
    fail_fast=True,
)
assert all(t.status == "TERMINATED" for t in analysis.trials)
lengths = sorted(t.last_result["training_iteration"] for t in analysis.trials)
assert lengths[-1] <= 9 and lengths[0] < lengths[-1], lengths
assert all(t.last_result["t"] == t.last_result["training_iteration"] for t in analysis.trials)
