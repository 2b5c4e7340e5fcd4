"""MedianStoppingRule with a limited searcher: the bad ones end early."""

import os
import time

from ray import train, tune
from ray.tune.schedulers import MedianStoppingRule
from ray.tune.search import BasicVariantGenerator


def objective(config):
    for i in range(1, 13):
        time.sleep(0.005)
        train.report({"reward": config["q"] * i})


tuner = tune.Tuner(
    objective,
    param_space={"q": tune.grid_search([10, 9, 8, 1, 0])},
    tune_config=tune.TuneConfig(
        search_alg=BasicVariantGenerator(max_concurrent=1),
        scheduler=MedianStoppingRule(
            time_attr="training_iteration", metric="reward", mode="max", grace_period=2, min_samples_required=2
        ),
        trial_name_creator=lambda trial: f"q-{trial.config['q']}",
        trial_dirname_creator=lambda trial: f"dir-{trial.config['q']}",
    ),
    run_config=train.RunConfig(stop={"training_iteration": 12}),
)
results = tuner.fit()
length = {r.config["q"]: r.metrics["training_iteration"] for r in results}
assert length[10] == 12, length
assert length[1] < 12 and length[0] < 12, length
assert os.path.samefile(os.path.join(results.experiment_path, "dir-8"), results[2].path)
