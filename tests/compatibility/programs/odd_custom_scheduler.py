"""A TrialScheduler of one's own, with the controller's hooks."""

from ray import train, tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler


class Cutoff(FIFOScheduler):
    def on_trial_result(self, tune_controller, trial, result):
        if result["training_iteration"] >= 2 and result["score"] < 5:
            return TrialScheduler.STOP
        return TrialScheduler.CONTINUE


def objective(config):
    for i in range(4):
        train.report({"score": config["x"]})


results = tune.Tuner(
    objective,
    param_space={"x": tune.grid_search([1, 9])},
    tune_config=tune.TuneConfig(scheduler=Cutoff()),
).fit()
assert {r.config["x"]: r.metrics["training_iteration"] for r in results} == {1: 2, 9: 4}
