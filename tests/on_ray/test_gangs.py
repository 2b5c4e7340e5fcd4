"""Training groups with a worker on each node of a cluster of Ray."""

from __future__ import annotations

import pytest

import sweep
from sweep.train import ScalingConfig
from sweep.train.torch import TorchConfig, TorchTrainer

pytestmark = pytest.mark.ray


def all_reduce(config):
    """Sum over the ranks, and gather what each rank sees of its machine."""
    import os

    import torch
    import torch.distributed as dist

    from sweep.train import get_context, report

    context = get_context()
    rank = context.get_world_rank()
    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)
    names = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR")
    seen = {name: os.environ[name] for name in names} | {"backend": dist.get_backend()}
    assert len(seen["CUDA_VISIBLE_DEVICES"].split(",")) == 1, seen
    assert seen["NODE_RANK"] == str(rank), seen
    assert seen["LOCAL_RANK"] == "0", seen
    everybody = [None] * context.get_world_size()
    dist.all_gather_object(everybody, seen)
    report({"total": total.item(), "seen": everybody})


@pytest.mark.usefixtures("joined")
def test_16_gangs_with_a_worker_on_each_node_sum_over_gloo_and_each_rank_sees_one_gpu_of_its_node(run):
    trainer = TorchTrainer(
        all_reduce,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=2,
            use_gpu=True,
            resources_per_worker={"CPU": 1, "GPU": 1},
            placement_strategy="STRICT_SPREAD",
        ),
    )
    analysis = run(trainer, config={"train_loop_config": {"x": sweep.uniform(0, 1)}}, num_samples=16)
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 16
    for trial in analysis.trials:
        assert trial.last_result["total"] == 3.0
        first, second = trial.last_result["seen"]
        assert first["MASTER_ADDR"] == second["MASTER_ADDR"]
        assert {first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]} <= {"0", "1"}
        assert first["backend"] == "gloo"
