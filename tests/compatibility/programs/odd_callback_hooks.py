"""A Callback with every hook, called as Tune calls them: by keyword, with **info."""

import os

from ray import tune
from ray.tune import Callback

EVENTS = []


class Recorder(Callback):
    def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
        EVENTS.append(("setup", total_num_samples))

    def on_step_begin(self, iteration, trials, **info):
        assert isinstance(iteration, int)
        EVENTS.append(("step_begin", len(trials)))

    def on_step_end(self, iteration, trials, **info):
        pass

    def on_trial_start(self, iteration, trials, trial, **info):
        EVENTS.append(("start", trial.trial_id))

    def on_trial_result(self, iteration, trials, trial, result, **info):
        assert trial in trials
        EVENTS.append(("result", result["metric"]))

    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        EVENTS.append(("checkpoint", trial.trial_id))

    def on_trial_save(self, iteration, trials, trial, **info):
        EVENTS.append(("save", trial.trial_id))

    def on_trial_error(self, iteration, trials, trial, **info):
        EVENTS.append(("error", trial.config["i"]))

    def on_trial_complete(self, iteration, trials, trial, **info):
        EVENTS.append(("complete", trial.config["i"]))

    def on_experiment_end(self, trials, **info):
        EVENTS.append(("end", len(trials)))


def train_fn(config):
    for i in range(2):
        tune.report({"metric": i})
    if config["i"] == 2:
        raise RuntimeError("bad")


results = tune.Tuner(
    train_fn,
    param_space={"i": tune.grid_search([0, 1, 2])},
    run_config=tune.RunConfig(callbacks=[Recorder()], storage_path=os.path.abspath("out")),
).fit()
names = [name for name, _ in EVENTS]
assert names[0] == "setup" and names[-1] == "end", names
assert EVENTS[0][1] == 3, EVENTS[0]
assert names.count("start") == 3
assert names.count("result") >= 6
assert sorted(value for name, value in EVENTS if name == "complete") == [0, 1]
assert [value for name, value in EVENTS if name == "error"] == [2]
assert ("end", 3) in EVENTS
assert "step_begin" in names
