"""A Stopper of one's own that ends trials, and then everything."""

from ray import train, tune
from ray.tune import Stopper


class CustomStopper(Stopper):
    def __init__(self):
        self.should_stop = False
        self.seen = set()

    def __call__(self, trial_id, result):
        self.seen.add(trial_id)
        if not self.should_stop and result["acc"] > 0.8:
            self.should_stop = True
        return self.should_stop or result["training_iteration"] >= 20

    def stop_all(self):
        return self.should_stop


def objective(config):
    acc = 0.0
    while True:
        acc += config["gain"]
        train.report({"acc": acc})


stopper = CustomStopper()
results = tune.Tuner(
    objective,
    param_space={"gain": tune.grid_search([0.001, 0.3, 0.001, 0.001, 0.001, 0.001])},
    tune_config=tune.TuneConfig(max_concurrent_trials=1),
    run_config=train.RunConfig(stop=stopper),
).fit()
assert stopper.should_stop
reported = [r for r in results if r.metrics and "acc" in r.metrics]
assert len(reported) == 2, [r.metrics for r in results]
assert max(r.metrics["acc"] for r in reported) > 0.8
assert results.num_errors == 0
