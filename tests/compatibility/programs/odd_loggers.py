"""LoggerCallback subclasses beside the built-in JSON and CSV ones."""

import json
import os

from ray import train, tune
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback


class CustomLoggerCallback(LoggerCallback):
    def __init__(self, filename="log.txt"):
        self._trial_files = {}
        self._filename = filename

    def log_trial_start(self, trial):
        self._trial_files[trial] = open(os.path.join(trial.local_path, self._filename), "at")

    def log_trial_result(self, iteration, trial, result):
        if trial in self._trial_files:
            self._trial_files[trial].write(json.dumps({"v": result["v"], "id": result["trial_id"]}) + "\n")

    def on_trial_complete(self, iteration, trials, trial, **info):
        if trial in self._trial_files:
            self._trial_files[trial].close()
            del self._trial_files[trial]


def objective(config):
    for v in range(3):
        train.report({"v": v})


custom = CustomLoggerCallback("my.txt")
results = tune.Tuner(
    objective,
    tune_config=tune.TuneConfig(num_samples=2),
    run_config=train.RunConfig(
        callbacks=[custom, JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback()],
        storage_path=os.path.abspath("out"),
    ),
).fit()
for result in results:
    lines = [json.loads(line) for line in open(os.path.join(result.path, "my.txt"))]
    assert [line["v"] for line in lines] == [0, 1, 2], lines
    assert os.path.exists(os.path.join(result.path, "result.json"))
    assert os.path.exists(os.path.join(result.path, "progress.csv"))
    assert [f for f in os.listdir(result.path) if f.startswith("events.out")], os.listdir(result.path)
assert not custom._trial_files
