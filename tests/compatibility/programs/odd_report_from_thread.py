"""Reports from a thread that the trial started, and from a helper deep below."""

import threading

from ray import train, tune


def deep(n, value):
    if n:
        deep(n - 1, value)
    else:
        train.report({"v": value})


def objective(config):
    deep(20, 1)
    thread = threading.Thread(target=lambda: train.report({"v": 2}))
    thread.start()
    thread.join()
    deep(3, 3)


results = tune.Tuner(objective, tune_config=tune.TuneConfig(num_samples=2)).fit()
assert not results.errors, results.errors
assert [list(r.metrics_dataframe["v"]) for r in results] == [[1, 2, 3], [1, 2, 3]]
