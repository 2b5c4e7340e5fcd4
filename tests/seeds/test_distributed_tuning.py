"""The guide's distributed training in a sweep: creators of trainables, on declared machines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import sweep
from sweep.train import get_context, report, torch
from sweep.train.tensorflow import DistributedTrainableCreator

pytestmark = pytest.mark.docs


@pytest.fixture(autouse=True)
def _machine(monkeypatch, tmp_path):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    yield
    sweep.shutdown()


def train_mnist(config):
    """Stand in for a TensorFlow function: read what it would find the other workers by."""
    context = get_context()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    has = [config, task, os.environ.get("CUDA_VISIBLE_DEVICES")]
    name = f"rank{context.get_world_rank()}.json"
    Path(context.get_trial_dir(), name).write_text(json.dumps(has), encoding="utf-8")
    report({"mean_accuracy": 0.9})


@pytest.mark.parametrize(("use_gpu", "shown"), [(False, ["", ""]), (True, ["0", "1"])])
def test_a_distributed_tensorflow_job_is_a_trial(use_gpu, shown):
    sweep.init(num_cpus=2, num_gpus=2)
    tf_trainable = DistributedTrainableCreator(train_mnist, use_gpu=use_gpu, num_workers=2)
    analysis = sweep.run(tf_trainable, config={"lr": sweep.grid_search([0.1, 0.2]), "layers": {"width": 8}})
    for trial, lr in zip(analysis.trials, (0.1, 0.2), strict=True):
        assert (trial.status, trial.last_result["mean_accuracy"]) == ("TERMINATED", 0.9)
        paths = sorted(Path(trial.path).glob("rank*.json"))
        config = {"lr": lr, "layers": {"width": 8}}  # the whole config of a trial is the function's
        assert [json.loads(path.read_text(encoding="utf-8")) for path in paths] == [
            [config, {"type": "worker", "index": rank}, shown[rank]] for rank in range(2)
        ]


def test_a_distributed_torch_job_is_a_trial_whose_workers_talk_by_gloo():
    def train_mnist(config, checkpoint_dir=None):
        import torch
        import torch.distributed as dist

        assert checkpoint_dir is None
        total = torch.tensor([config["factor"] * (dist.get_rank() + 1.0)])
        dist.all_reduce(total)
        report({"backend": dist.get_backend(), "size": dist.get_world_size(), "total": total.item()})

    sweep.init(num_cpus=2, num_gpus=0)
    torch_trainable = torch.DistributedTrainableCreator(train_mnist, num_workers=2, backend="gloo")
    analysis = sweep.run(torch_trainable, config={"factor": sweep.grid_search([1.0, 10.0])}, verbose=0)
    results = [trial.last_result for trial in analysis.trials]
    assert [(one["backend"], one["size"], one["total"]) for one in results] == [("gloo", 2, 3.0), ("gloo", 2, 30.0)]
