"""The guide to scale and GPUs, block by block, on declared machines; devices that nobody has exist on paper."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import sweep
from sweep.core.resources import Bundle
from sweep.errors import ResourceError
from sweep.train import DataParallelTrainer, ScalingConfig, get_context, report
from sweep.train.torch import TorchConfig, TorchTrainer

pytestmark = pytest.mark.docs


@pytest.fixture(autouse=True)
def _machine(monkeypatch, tmp_path):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    yield
    sweep.shutdown()


def look():
    """Write down what this worker sees."""
    context = get_context()
    seen = [context.get_world_rank(), context.get_num_threads(), os.environ.get("CUDA_VISIBLE_DEVICES")]
    Path(context.get_trial_dir(), f"seen{context.get_world_rank()}.json").write_text(json.dumps(seen), encoding="utf-8")
    report({"size": context.get_world_size()})


def run(scaling_config):
    """Run `look` in a group; return what each worker saw: its rank, its threads, its GPUs."""
    result = DataParallelTrainer(look, scaling_config=scaling_config).fit()
    seen = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(result.path).glob("seen*.json"))]
    assert result.metrics["size"] == len(seen)
    return seen


def test_increasing_the_number_of_workers():
    scaling_config = ScalingConfig(
        num_workers=8
    )  # fmt: skip
    assert scaling_config.to_resources().bundles == (Bundle(cpu=1.0),) * 8
    sweep.init(num_cpus=8, num_gpus=0)
    assert run(scaling_config) == [[rank, 1, ""] for rank in range(8)]


def test_using_gpus():
    scaling_config = ScalingConfig(
        num_workers=8,
        use_gpu=True
    )  # fmt: skip
    assert scaling_config.to_resources().bundles == (Bundle(gpu=1.0),) * 8
    sweep.init(num_cpus=1, num_gpus=8)
    assert run(scaling_config) == [[rank, 1, f"{rank}"] for rank in range(8)]


def test_using_gpus_in_the_training_function():
    import torch

    from sweep.train.torch import get_device  # not above: torch would be imported for the others, too

    def train_func(config):
        device = get_device()
        assert device == torch.device("cuda:0")
        report({"device": str(device), "visible": os.environ["CUDA_VISIBLE_DEVICES"]})

    sweep.init(num_cpus=1, num_gpus=1)
    trainer = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(
            num_workers=1,
            use_gpu=True
        )
    )  # fmt: skip
    result = trainer.fit()
    assert result.error is None
    assert (result.metrics["device"], result.metrics["visible"]) == ("cuda:0", "0")


def test_setting_the_resources_per_worker():
    scaling_config = ScalingConfig(
        num_workers=8,
        resources_per_worker={
            "CPU": 4,
            "GPU": 2,
        },
        use_gpu=True,
    )
    assert scaling_config.to_resources().bundles == (Bundle(cpu=4.0, gpu=2.0),) * 8
    sweep.init(num_cpus=32, num_gpus=16)
    assert run(scaling_config) == [[rank, 4, f"{2 * rank},{2 * rank + 1}"] for rank in range(8)]


def test_gpus_in_resources_per_worker_need_use_gpu():
    with pytest.raises(ResourceError, match="GPU=2 and use_gpu is False; set use_gpu=True"):
        ScalingConfig(num_workers=8, resources_per_worker={"GPU": 2})


def test_fractional_gpus_put_several_workers_on_one_device():
    scaling_config = ScalingConfig(
        num_workers=8,
        resources_per_worker={
            "CPU": 4,
            "GPU": 0.5,
        },
        use_gpu=True,
    )
    assert scaling_config.to_resources().bundles == (Bundle(cpu=4.0, gpu=0.5),) * 8
    sweep.init(num_cpus=32, num_gpus=4)
    assert run(scaling_config) == [[rank, 4, f"{rank // 2}"] for rank in range(8)]


def test_setting_the_communication_backend():
    num_training_workers = 2

    def train_func():
        import torch
        import torch.distributed as dist

        total = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(total)
        report({"backend": dist.get_backend(), "size": dist.get_world_size(), "total": total.item()})

    # Names that no machine has: where there are GPUs, none of them is used.
    sweep.init(num_cpus=1, gpu_ids=["GPU-8a5b0001", "GPU-8a5b0002"])
    trainer = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(
            num_workers=num_training_workers,
            use_gpu=True,
        ),
        torch_config=TorchConfig(backend="gloo"),
    )
    metrics = trainer.fit().metrics
    assert (metrics["backend"], metrics["size"], metrics["total"]) == ("gloo", 2, 3.0)


def test_trainer_resources_are_held_beside_the_workers_who_do_not_see_them():
    with pytest.warns(DeprecationWarning, match="trainer_resources"):
        scaling_config = ScalingConfig(
            num_workers=8,
            trainer_resources={
                "CPU": 4,
                "GPU": 1,
            }
        )  # fmt: skip
    assert scaling_config.to_resources().bundles == (Bundle(cpu=4.0, gpu=1.0), *(Bundle(cpu=1.0),) * 8)
    assert scaling_config.total_resources == {"CPU": 12.0, "GPU": 1.0}
    sweep.init(num_cpus=12, num_gpus=1)
    assert run(scaling_config) == [[rank, 1, ""] for rank in range(8)]


def test_four_workers_of_two_cpus_fit_eight_cpus_without_trainer_resources():
    with pytest.warns(DeprecationWarning, match="trainer_resources"):
        scaling_config = ScalingConfig(
            num_workers=4,
            resources_per_worker={
                "CPU": 2,
            },
            trainer_resources={
                "CPU": 0,
            }
        )  # fmt: skip
    assert scaling_config.to_resources().bundles == (Bundle(cpu=2.0),) * 4
    sweep.init(num_cpus=8, num_gpus=0)
    assert run(scaling_config) == [[rank, 2, ""] for rank in range(4)]
    # Nothing is the default, so that the deprecated argument can be left out.
    plain = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 2})
    assert plain.to_resources() == scaling_config.to_resources()


def test_one_cpu_for_a_trainer_would_not_fit_and_the_arithmetic_is_shown():
    with pytest.warns(DeprecationWarning, match="trainer_resources"):
        scaling_config = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 2}, trainer_resources={"CPU": 1})
    sweep.init(num_cpus=8, num_gpus=0)
    with pytest.raises(ResourceError, match="it needs cpu=9 in all, there are 8"):
        run(scaling_config)
