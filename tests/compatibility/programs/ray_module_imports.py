"""Imports as modules: `import ray.tune as tune`, `import ray.train`, names over several lines in brackets."""

import ray.train
import ray.tune as tune
from ray.tune import (
    Callback,  # noqa: F401
    Checkpoint,  # noqa: F401
    ResultGrid,
    Trainable,
    TuneConfig,
    Tuner,
    grid_search,
)
from ray.tune.experiment import Trial
from ray.tune.result import DONE, TRAINING_ITERATION
from ray.tune.schedulers.async_hyperband import ASHAScheduler
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.utils import wait_for_gpu  # noqa: F401


class Quick(Trainable):
    def setup(self, config: dict):
        self.x = config["x"]

    def step(self):
        return {"score": self.x * self.training_iteration, DONE: self.training_iteration >= 2}


tuner = Tuner(
    Quick,
    param_space={"x": grid_search([1, 2])},
    tune_config=TuneConfig(
        metric="score", mode="max", scheduler=ASHAScheduler(max_t=5), search_alg=BasicVariantGenerator()
    ),
    run_config=ray.train.RunConfig(verbose=0),
)
grid = tuner.fit()
assert isinstance(grid, ResultGrid)
best = grid.get_best_result()
assert best.metrics[TRAINING_ITERATION] == 3 and best.metrics["score"] == 4
assert [one.status for one in grid._experiment_analysis.trials] == [Trial.TERMINATED] * 2
assert callable(tune.run)
