"""The guide to parallelism and resources, example by example: how many trials run at a time on a declared machine."""

from __future__ import annotations

import os

import pytest
from recorded import most_at_once

import sweep

pytestmark = pytest.mark.docs


def trainable(config):
    sweep.report(score=1.0, visible=os.environ.get("CUDA_VISIBLE_DEVICES", "unset"))


@pytest.fixture
def run(tmp_path):
    """Return `run(machine, **arguments)`: how many of ten trials ran at a time, and which GPUs each saw."""

    def start(machine, **arguments):
        sweep.init(**{"num_cpus": 4, "num_gpus": 0, **machine})
        given = {"num_samples": 10, "storage_path": tmp_path, "name": "guide", "verbose": 0, **arguments}
        seen = [trial.last_result["visible"] for trial in sweep.run(trainable, **given).trials]
        return most_at_once(tmp_path / "guide"), seen

    yield start
    sweep.shutdown()


@pytest.mark.parametrize(
    ("machine", "arguments", "at_once"),
    [
        ({}, {}, 4),
        ({}, {"resources_per_trial": {"cpu": 2}}, 2),
        ({}, {"resources_per_trial": {"cpu": 4}}, 1),
        ({}, {"resources_per_trial": {"cpu": 0.5}}, 8),
        ({"num_gpus": 1}, {"resources_per_trial": {"cpu": 2, "gpu": 1}}, 1),
        ({"num_gpus": 2}, {"resources_per_trial": sweep.PlacementGroupFactory([{"CPU": 2, "GPU": 1}])}, 2),
        (
            {"num_cpus": 8, "memory": "8G", "resources": {"licence": 3}},
            {"resources_per_trial": {"cpu": 1, "memory": 2e9, "licence": 1}},
            3,
        ),
        ({"num_cpus": 8}, {"max_concurrent_trials": 4}, 4),
        (
            {"num_cpus": 8},
            {
                "config": {"x": sweep.uniform(0, 1)},
                "search_alg": sweep.ConcurrencyLimiter(sweep.RandomSearch(), max_concurrent=4),
                "scheduler": sweep.AsyncHyperBandScheduler(),
                "metric": "score",
                "mode": "max",
            },
            4,
        ),
    ],
)
def test_as_many_trials_run_at_a_time_as_fit_and_a_limit_allows(run, machine, arguments, at_once):
    assert run(machine, **arguments)[0] == at_once


def test_eight_gpus_run_eight_trials_of_one_gpu_at_once_each_seeing_its_own(run):
    at_once, seen = run({"num_gpus": 8}, resources_per_trial={"gpu": 1})
    assert (at_once, set(seen[:8])) == (8, set("01234567"))


def test_without_a_gpu_in_the_request_none_is_visible(run):
    assert set(run({"num_gpus": 2})[1]) == {""}
