"""Callbacks and loggers of one's own, in Tune's form."""

import os

from sweep.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback

import sweep as tune
from sweep import Callback


class Recorder(Callback):
    def __init__(self):
        self.order = []
        self.results = []

    def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
        self.order.append("setup")
        self.asked = (num_samples, total_num_samples)

    def on_step_begin(self, iteration, trials, **info):
        assert isinstance(iteration, int)

    def on_trial_start(self, iteration, trials, trial, **info):
        self.order.append("start")

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.order.append("result")
        self.results.append((trial.trial_id, result["training_iteration"], result["config"]["x"]))
        assert trial.config["x"] == result["config"]["x"]
        assert trial in trials
        assert str(trial).startswith("train_fn_")

    def on_trial_save(self, iteration, trials, trial, **info):
        self.order.append("save")

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.order.append("complete")
        assert trial.status == "TERMINATED"

    def on_experiment_end(self, trials, **info):
        self.order.append("end")
        self.total = len(trials)


class CustomLogger(LoggerCallback):
    def __init__(self, filename="log.txt"):
        self._trial_files = {}
        self._filename = filename

    def log_trial_start(self, trial):
        self._trial_files[trial] = open(os.path.join(trial.path, self._filename), "w")

    def log_trial_result(self, iteration, trial, result):
        if trial in self._trial_files:
            self._trial_files[trial].write(f"{result['metric']}\n")

    def on_trial_complete(self, iteration, trials, trial, **info):
        if trial in self._trial_files:
            self._trial_files[trial].close()
            del self._trial_files[trial]


def train_fn(config):
    for i in range(3):
        tune.report({"metric": config["x"] * i})


recorder = Recorder()
tuner = tune.Tuner(
    train_fn,
    param_space={"x": tune.grid_search([1, 2])},
    tune_config=tune.TuneConfig(max_concurrent_trials=1),
    run_config=tune.RunConfig(
        callbacks=[recorder, CustomLogger("log_test.txt"), JsonLoggerCallback(), CSVLoggerCallback()],
        verbose=0,
    ),
)
results = tuner.fit()
one = ["start", "result", "result", "result", "complete"]
assert recorder.order == ["setup", *one, *one, "end"], recorder.order
assert recorder.asked == (1, 2)
assert recorder.total == 2
assert [(i, x) for _, i, x in recorder.results] == [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (3, 2)]
for result, x in zip(results, (1, 2)):
    assert open(os.path.join(result.path, "log_test.txt")).read().split() == [str(x * i) for i in range(3)]
    assert {"result.json", "progress.csv", "params.json"} <= set(os.listdir(result.path))
print("called")
