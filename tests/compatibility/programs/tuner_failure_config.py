"""Trials that fail twice and go on from their checkpoint; fail_fast in both forms."""

import os
import tempfile

from ray import train, tune
from ray.train import Checkpoint, FailureConfig, RunConfig

TRIES = os.path.abspath("tries")
os.makedirs(TRIES)


def flaky(config):
    mark = os.path.join(TRIES, train.get_context().get_trial_id())
    with open(mark, "a") as f:
        f.write(".")
    tries = os.path.getsize(mark)
    start = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        start = int(open(os.path.join(checkpoint.path, "n")).read())
    for n in range(start, 6):
        if n == 2 * tries:
            raise RuntimeError(f"failure {tries}")
        d = tempfile.mkdtemp()
        open(os.path.join(d, "n"), "w").write(str(n + 1))
        train.report({"n": n, "tries": tries}, checkpoint=Checkpoint.from_directory(d))


results = tune.Tuner(
    flaky,
    tune_config=tune.TuneConfig(num_samples=2),
    run_config=RunConfig(failure_config=FailureConfig(max_failures=2)),
).fit()
assert not results.errors, results.errors
assert [r.metrics["tries"] for r in results] == [3, 3]
assert all(list(r.metrics_dataframe["n"]) == [0, 1, 2, 3, 4, 5] for r in results)


def broken(config):
    raise ValueError("always")


results = tune.Tuner(broken, param_space={}, run_config=RunConfig(failure_config=FailureConfig(fail_fast=True))).fit()
assert results.num_errors == 1
assert isinstance(results.errors[0], Exception)
assert str(results[0].error) == str(results.errors[0])
try:
    tune.Tuner(broken, run_config=RunConfig(failure_config=FailureConfig(max_failures=0, fail_fast="raise"))).fit()
except Exception as error:
    assert "always" in str(error), error
else:
    raise AssertionError('fail_fast="raise" did not raise')
