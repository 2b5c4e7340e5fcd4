"""As many samples as the time allows: num_samples=-1 with time_budget_s."""

import datetime
import time

from ray import train, tune


def objective(config):
    for i in range(3):
        time.sleep(0.02)
        train.report({"x": config["x"] * i})


results = tune.Tuner(
    objective,
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(num_samples=-1, time_budget_s=1.5),
).fit()
assert results.num_errors == 0
assert len(results) >= 2
done = [r for r in results if r.metrics and r.metrics.get("training_iteration") == 3]
assert done

analysis = tune.run(
    objective, config={"x": tune.uniform(0, 1)}, num_samples=-1, time_budget_s=datetime.timedelta(seconds=1)
)
assert len(analysis.trials) >= 1
