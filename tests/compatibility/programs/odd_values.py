"""NaN, infinities, None, numpy scalars and arrays, strings and lists among the metrics."""

import math
import os

import numpy as np
from ray import train, tune


def objective(config):
    train.report({"loss": float("nan"), "note": "warm-up"})
    if config["i"] == 0:
        train.report({"loss": float("nan")})
        return
    train.report(
        {
            "loss": np.float32(config["i"]),
            "count": np.int64(7),
            "flag": np.bool_(True),
            "vector": np.arange(3),
            "nothing": None,
            "words": ["a", "b"],
            "inf": float("inf"),
            "note": "done",
        }
    )


results = tune.Tuner(
    objective,
    param_space={"i": tune.grid_search([0, 1, 2])},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=train.RunConfig(storage_path=os.path.abspath("out")),
).fit()
assert not results.errors, results.errors
best = results.get_best_result()
assert best.config["i"] == 1
assert best.metrics["loss"] == 1 and best.metrics["count"] == 7 and best.metrics["flag"]
assert list(best.metrics["vector"]) == [0, 1, 2]
assert best.metrics["nothing"] is None
assert best.metrics["words"] == ["a", "b"] and math.isinf(best.metrics["inf"])
only_nan = [r for r in results if r.config["i"] == 0][0]
assert math.isnan(only_nan.metrics["loss"])
assert results.get_best_result(filter_nan_and_inf=True).config["i"] == 1
