"""The oldest form: a second argument named reporter, called with keywords."""

import time

from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler


def easy_objective(config, reporter):
    width, height = config["width"], config["height"]
    for timestep in range(1, 11):
        intermediate = height * 0.1 + 10.0 / (0.1 + width * timestep / 100)
        reporter(timesteps_total=timestep, mean_loss=intermediate)
        time.sleep(0.002)


ahb = AsyncHyperBandScheduler(
    time_attr="timesteps_total", metric="mean_loss", mode="min", grace_period=2, max_t=10, reduction_factor=3
)
analysis = tune.run(
    easy_objective,
    name="asynchyperband_test",
    scheduler=ahb,
    stop={"timesteps_total": 8},
    num_samples=8,
    resources_per_trial={"cpu": 1, "gpu": 0},
    config={
        "width": tune.sample_from(lambda spec: 10 + int(90 * __import__("random").random())),
        "height": tune.sample_from(lambda spec: int(100 * __import__("random").random())),
    },
)
best = analysis.get_best_config(metric="mean_loss", mode="min")
assert 10 <= best["width"] <= 100, best
steps = [trial.last_result["timesteps_total"] for trial in analysis.trials]
assert max(steps) == 8, steps
assert min(steps) >= 2, steps
