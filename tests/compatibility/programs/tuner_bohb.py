"""BOHB: HyperBandForBOHB beside TuneBOHB, behind a ConcurrencyLimiter."""

import time

from ray import tune
from ray.train import RunConfig
from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.bohb import TuneBOHB


class MyTrainable(tune.Trainable):
    def setup(self, config):
        self.timestep = 0

    def step(self):
        self.timestep += 1
        time.sleep(0.002)
        v = 1 / (1 + self.config["width"]) + self.config["height"] / 100
        return {"episode_reward_mean": v * self.timestep}

    def save_checkpoint(self, checkpoint_dir):
        return {"timestep": self.timestep}

    def load_checkpoint(self, checkpoint):
        self.timestep = checkpoint["timestep"]


scheduler = HyperBandForBOHB(time_attr="training_iteration", max_t=9, reduction_factor=3, stop_last_trials=True)
search = ConcurrencyLimiter(TuneBOHB(seed=5), max_concurrent=4)
results = tune.Tuner(
    MyTrainable,
    param_space={
        "width": tune.uniform(0, 20),
        "height": tune.uniform(-100, 100),
        "activation": tune.choice(["relu", "tanh"]),
    },
    tune_config=tune.TuneConfig(
        metric="episode_reward_mean", mode="max", scheduler=scheduler, search_alg=search, num_samples=9
    ),
    run_config=RunConfig(name="bohb", stop={"training_iteration": 9}),
).fit()
assert not results.errors, results.errors
assert len(results) == 9
iterations = sorted(r.metrics["training_iteration"] for r in results)
assert iterations[-1] == 9 and iterations[0] < 9, iterations
assert results.get_best_result().config["activation"] in ("relu", "tanh")
