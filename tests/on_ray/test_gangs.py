"""Training groups with a worker on each node of a cluster of Ray."""

from __future__ import annotations

import pytest

import sweep
from sweep.train import DataParallelTrainer, ScalingConfig
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


def see_chips(config):
    """Gather what each rank sees of the TPU chips of its node."""
    import os

    from sweep.train import get_context, report

    names = ("TPU_VISIBLE_CHIPS", "NODE_RANK", "LOCAL_RANK")
    seen = {name: os.environ.get(name) for name in names}
    context = get_context()
    assert seen["NODE_RANK"] == str(context.get_world_rank()), seen
    assert seen["LOCAL_RANK"] == "0", seen
    assert not seen["TPU_VISIBLE_CHIPS"] or len(seen["TPU_VISIBLE_CHIPS"].split(",")) == 4, seen
    report({"rank": context.get_world_rank(), "size": context.get_world_size()})


@pytest.mark.usefixtures("joined")
def test_a_gang_takes_a_tpu_slice_whose_hosts_are_nodes_of_the_cluster(cluster, run):
    added = [
        cluster.add_node(
            node_ip_address=f"127.0.0.{8 - number}",  # the hosts come in the order of their numbers, not of addresses
            num_cpus=1,
            resources={"TPU": 4, "accelerator_type:TPU-V4": 1},
            labels={"ray.io/tpu-slice-name": "slice-1", "ray.io/tpu-worker-id": str(number)},
        )
        for number in range(2)
    ]
    try:
        scaling = ScalingConfig(num_workers=2, use_tpu=True, topology="2x2x2", accelerator_type="TPU-V4")
        analysis = run(DataParallelTrainer(see_chips, scaling_config=scaling), num_samples=3)
        assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 3
        assert [trial.last_result["size"] for trial in analysis.trials] == [2] * 3
    finally:
        for node in added:
            cluster.remove_node(node)
