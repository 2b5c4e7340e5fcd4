"""A limit of concurrent trials: by a ConcurrencyLimiter, and for every searcher by max_concurrent_trials."""

import os
import time

from sweep.search import ConcurrencyLimiter, Repeater, create_searcher
from sweep.search.basic_variant import BasicVariantGenerator
from sweep.search.optuna import OptunaSearch

import sweep as tune


def train_fn(config):
    here = os.path.join(config["place"], tune.get_context().get_trial_id())
    open(here, "w").close()
    most = 0
    for _ in range(3):
        time.sleep(0.01)
        most = max(most, len(os.listdir(config["place"])))
    os.remove(here)
    tune.report({"loss": (config["x"] - 3) ** 2, "at_once": most})


def most_at_once(**tune_config):
    place = os.path.abspath(f"running_{time.monotonic_ns()}")
    os.makedirs(place)
    tuner = tune.Tuner(
        tune.with_resources(train_fn, {"cpu": 0.1}),
        param_space={"x": tune.uniform(0, 10), "place": place},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=8, **tune_config),
        run_config=tune.RunConfig(verbose=0),
    )
    results = tuner.fit()
    assert len(results) == 8
    assert not results.errors
    return max(result.metrics["at_once"] for result in results)


assert most_at_once(search_alg=ConcurrencyLimiter(OptunaSearch(), max_concurrent=2)) <= 2
assert most_at_once(search_alg=ConcurrencyLimiter(OptunaSearch(seed=1), max_concurrent=4, batch=True)) <= 4
assert most_at_once(max_concurrent_trials=1) == 1
assert most_at_once(search_alg=BasicVariantGenerator(max_concurrent=3)) <= 3
assert most_at_once(search_alg=create_searcher("optuna"), max_concurrent_trials=2) <= 2
assert most_at_once(search_alg=Repeater(OptunaSearch(), repeat=2), max_concurrent_trials=2) <= 2
print("limited")
