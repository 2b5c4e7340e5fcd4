"""A time budget ends trials that would never end; what they reported is kept."""

import time

import sweep as tune


def endless(config):
    step = 0
    while True:
        step += 1
        time.sleep(0.02)
        tune.report({"step": step})


tuner = tune.Tuner(
    endless,
    tune_config=tune.TuneConfig(num_samples=-1, time_budget_s=1.0, metric="step", mode="max"),
    run_config=tune.RunConfig(verbose=0),
)
results = tuner.fit()
assert len(results) >= 1
assert results.num_errors == 0
assert results.get_best_result().metrics["step"] >= 1

began = time.monotonic()
analysis = tune.run(endless, time_budget_s=0.5, stop={"training_iteration": 1_000_000}, verbose=0)
assert time.monotonic() - began < 30
assert analysis.trials[0].status == "TERMINATED"
print("in time")
