"""A trial that never reports, and a best result that nobody has."""

from ray import train, tune


def silent(config):
    pass


results = tune.Tuner(silent, tune_config=tune.TuneConfig(num_samples=2)).fit()
assert len(results) == 2 and results.num_errors == 0
assert results[0].metrics_dataframe is None or results[0].metrics_dataframe.empty
try:
    results.get_best_result("missing", "max")
except RuntimeError as error:
    assert "missing" in str(error), error
else:
    raise AssertionError("a best result without the metric")


def other(config):
    train.report({"loss": 1})


results = tune.Tuner(other, tune_config=tune.TuneConfig(num_samples=2)).fit()
try:
    results.get_best_result()
except ValueError as error:
    assert "metric" in str(error), error
else:
    raise AssertionError("a best result of no metric")
assert results.get_best_result("loss", "min").metrics["loss"] == 1
