"""What may be given as stop: dicts, functions, Stopper classes and lists of them."""

from ray import tune
from ray.tune.stopper import (
    CombinedStopper,
    FunctionStopper,
    MaximumIterationStopper,
    TrialPlateauStopper,
)


def count(config):
    i = 0
    while True:
        i += 1
        tune.report(i=i, flat=min(i, 4), nested={"deep": i * 10})


def iterations(stop):
    analysis = tune.run(count, stop=stop, num_samples=2, verbose=0)
    return [trial.last_result["training_iteration"] for trial in analysis.trials]


assert iterations({"i": 5, "training_iteration": 9}) == [5, 5]
assert iterations({"nested/deep": 30}) == [3, 3]
assert iterations(lambda trial_id, result: result["i"] >= 4) == [4, 4]
assert iterations(MaximumIterationStopper(6)) == [6, 6]
assert iterations(FunctionStopper(lambda trial_id, result: result["flat"] == 2)) == [2, 2]
assert iterations(CombinedStopper(MaximumIterationStopper(8), FunctionStopper(lambda t, r: r["i"] > 6))) == [7, 7]
plateau = iterations(TrialPlateauStopper("flat", std=0.001, num_results=3, grace_period=3))
assert plateau == [6, 6], plateau
