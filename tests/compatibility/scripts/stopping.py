"""Stopping: a dict, a function, stoppers, a list of them, one of one's own, and done=True."""

from sweep.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    Stopper,
    TrialPlateauStopper,
)

import sweep as tune


def trainable(config):
    for step in range(1, 41):
        value = min(step, 12)
        tune.report({"mean_accuracy": value / 40, "loss": 1 / value, "done": step == config.get("done_at", 0)})


class FirstToReach(Stopper):
    def __init__(self):
        self.should_stop = False

    def __call__(self, trial_id, result):
        if not self.should_stop and result["mean_accuracy"] >= 0.1:
            self.should_stop = True
        return self.should_stop

    def stop_all(self):
        return self.should_stop


def iterations(stop, **more):
    results = tune.run(trainable, stop=stop, verbose=0, **more)
    return [trial.last_result.get("training_iteration", 0) for trial in results.trials]


assert iterations({"training_iteration": 5}) == [5]
assert iterations({"mean_accuracy": 0.2, "training_iteration": 30}) == [8]
assert iterations(lambda trial_id, result: result["mean_accuracy"] > 0.05) == [3]
assert iterations(MaximumIterationStopper(4)) == [4]
assert iterations(FunctionStopper(lambda trial_id, result: result["loss"] < 0.5)) == [3]
assert iterations(TrialPlateauStopper("mean_accuracy", num_results=3, grace_period=3)) == [14]
assert iterations(
    CombinedStopper(MaximumIterationStopper(9), TrialPlateauStopper("loss", std=1e-9, num_results=30))
) == [9]
assert iterations([MaximumIterationStopper(9), FunctionStopper(lambda *_: False)]) == [9]
assert iterations(None, config={"done_at": 6}) == [6]
assert max(iterations(FirstToReach(), num_samples=3)) < 40
assert iterations(ExperimentPlateauStopper("mean_accuracy", mode="max", top=2, patience=1))[0] < 40

tuner = tune.Tuner(trainable, run_config=tune.RunConfig(stop={"training_iteration": 2}, verbose=0))
(result,) = tuner.fit()
assert result.metrics["training_iteration"] == 2
print("stopped")
