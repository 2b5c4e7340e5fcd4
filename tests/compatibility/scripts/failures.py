"""Failures: errors in the results, retries, fail_fast, raise_on_failed_trial."""

import os

import sweep as tune
from sweep import FailureConfig, RunConfig, TuneError


def train_fn(config):
    tune.report({"x": config["x"]})
    if config["x"] == 2:
        raise ValueError("x is two")


space = {"x": tune.grid_search([1, 2, 3])}
results = tune.Tuner(train_fn, param_space=space, run_config=RunConfig(name="some_fail", verbose=0)).fit()
assert results.num_errors == 1
assert "x is two" in str(results.errors[0])
assert [result.error is None for result in results] == [True, False, True]
assert results[1].metrics["x"] == 2  # what was reported before the error
assert "x is two" in open(os.path.join(results[1].path, "error.txt")).read()

try:
    tune.run(train_fn, config=space, verbose=0)
except TuneError as error:
    assert "x is two" in str(error)
else:
    raise AssertionError("nothing was raised")

analysis = tune.run(train_fn, config=space, raise_on_failed_trial=False, verbose=0)
assert [trial.status for trial in analysis.trials] == ["TERMINATED", "ERROR", "TERMINATED"]


def flaky(config):
    path = os.path.abspath("tries")
    with open(path, "a") as file:
        file.write("x")
    if os.path.getsize(path) < 3:
        raise RuntimeError("not yet")
    tune.report({"tries": os.path.getsize(path)})


run_config = RunConfig(failure_config=FailureConfig(max_failures=3), verbose=0)
(result,) = tune.Tuner(flaky, run_config=run_config).fit()
assert result.error is None
assert result.metrics["tries"] == 3


def long(config):
    if config["x"] == 1:
        raise ValueError("first")
    for _ in range(1000):
        tune.report({"x": 1})


run_config = RunConfig(failure_config=FailureConfig(fail_fast=True), verbose=0)
results = tune.Tuner(long, param_space={"x": tune.grid_search([1, *range(2, 20)])}, run_config=run_config).fit()
assert results.num_errors == 1
assert sum(bool(result.metrics) for result in results) < 10

try:
    tune.run(train_fn, config={"x": 2}, fail_fast="raise", verbose=0)
except ValueError as error:
    assert str(error) == "x is two"
else:
    raise AssertionError("nothing was raised")
print("failed as they should")
