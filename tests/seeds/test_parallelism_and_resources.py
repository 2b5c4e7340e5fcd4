"""The guide to parallelism and resources, example by example: how many trials run at a time on a declared machine."""

from __future__ import annotations

import os

import pytest
from recorded import most_at_once

import sweep

pytestmark = pytest.mark.docs


def trainable(config):
    sweep.report(score=1.0, visible=os.environ.get("CUDA_VISIBLE_DEVICES", "unset"))


def run(tmp_path, **arguments):
    return sweep.run(trainable, num_samples=10, storage_path=tmp_path, name="guide", verbose=0, **arguments)


@pytest.fixture(autouse=True)
def _declared():
    yield
    sweep.shutdown()


def test_by_default_four_cpus_run_four_trials_at_a_time(tmp_path):
    sweep.init(num_cpus=4, num_gpus=0)
    run(tmp_path)
    assert most_at_once(tmp_path / "guide") == 4


def test_two_cpus_per_trial_run_two_at_a_time(tmp_path):
    sweep.init(num_cpus=4, num_gpus=0)
    run(tmp_path, resources_per_trial={"cpu": 2})
    assert most_at_once(tmp_path / "guide") == 2


def test_four_cpus_per_trial_run_one_at_a_time(tmp_path):
    sweep.init(num_cpus=4, num_gpus=0)
    run(tmp_path, resources_per_trial={"cpu": 4})
    assert most_at_once(tmp_path / "guide") == 1


def test_half_a_cpu_per_trial_runs_eight_at_a_time(tmp_path):
    sweep.init(num_cpus=4, num_gpus=0)
    run(tmp_path, resources_per_trial={"cpu": 0.5})
    assert most_at_once(tmp_path / "guide") == 8


def test_eight_gpus_run_eight_trials_of_one_gpu_at_once_each_seeing_its_own(tmp_path):
    sweep.init(num_cpus=4, num_gpus=8)
    analysis = run(tmp_path, resources_per_trial={"gpu": 1})
    assert most_at_once(tmp_path / "guide") == 8
    seen = [trial.last_result["visible"] for trial in analysis.trials]
    assert set(seen[:8]) == {str(i) for i in range(8)}


def test_two_cpus_and_the_only_gpu_run_one_at_a_time(tmp_path):
    sweep.init(num_cpus=4, num_gpus=1)
    run(tmp_path, resources_per_trial={"cpu": 2, "gpu": 1})
    assert most_at_once(tmp_path / "guide") == 1


def test_a_placement_group_factory_is_admitted_whole(tmp_path):
    sweep.init(num_cpus=4, num_gpus=2)
    run(tmp_path, resources_per_trial=sweep.PlacementGroupFactory([{"CPU": 2, "GPU": 1}]))
    assert most_at_once(tmp_path / "guide") == 2


def test_without_a_gpu_in_the_request_none_is_visible(tmp_path):
    sweep.init(num_cpus=2, num_gpus=2)
    analysis = run(tmp_path)
    assert {trial.last_result["visible"] for trial in analysis.trials} == {""}


def test_memory_and_custom_resources_limit_too(tmp_path):
    sweep.init(num_cpus=8, num_gpus=0, memory="8G", resources={"licence": 3})
    run(tmp_path, resources_per_trial={"cpu": 1, "memory": 2e9, "licence": 1})
    assert most_at_once(tmp_path / "guide") == 3


def test_max_concurrent_trials_wraps_the_searcher_in_a_limiter(tmp_path):
    sweep.init(num_cpus=8, num_gpus=0)
    run(tmp_path, max_concurrent_trials=4)
    assert most_at_once(tmp_path / "guide") == 4


def test_a_limiter_given_explicitly_works_with_a_scheduler(tmp_path):
    sweep.init(num_cpus=8, num_gpus=0)
    algo = sweep.ConcurrencyLimiter(sweep.RandomSearch(), max_concurrent=4)
    run(
        tmp_path,
        config={"x": sweep.uniform(0, 1)},
        search_alg=algo,
        scheduler=sweep.AsyncHyperBandScheduler(),
        metric="score",
        mode="max",
    )
    assert most_at_once(tmp_path / "guide") == 4
