"""A sweep on a cluster of Ray beside a sweep that runs on one of its machines alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.engines.local.claims import Claims

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def test_trials_on_the_cluster_keep_off_the_gpu_that_a_sweep_of_the_machine_holds(run):
    def show(config):
        return {"devices": os.environ["CUDA_VISIBLE_DEVICES"]}

    machine = Node("local", cpus=8, devices=(Device("0"), Device("1")))
    other = Claims(Path(os.environ["SWEEP_CLAIMS"]), (machine,), experiment="other")
    try:
        assert other.take("theirs", Resources((Bundle(gpu=1),)), Placement((BundlePlacement("local", (("0", 1.0),)),)))
        analysis = run(show, num_samples=4, resources_per_trial={"gpu": 1})
        assert [trial.last_result["devices"] for trial in analysis.trials] == ["1"] * 4
        other.give_back("theirs")
        other.look()  # as a driver does, four times a second
        analysis = run(show, num_samples=4, resources_per_trial={"gpu": 1}, name="after")
        assert {trial.last_result["devices"] for trial in analysis.trials} == {"0", "1"}
    finally:
        other.close()
