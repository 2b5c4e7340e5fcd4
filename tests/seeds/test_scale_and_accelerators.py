"""The guide to scale and accelerators, block by block, on declared machines; devices that nobody has exist on paper.

Blocks that stand in the guide to scale and GPUs as well are run there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import sweep
import sweep.train
from sweep.core.resources import Bundle, Device, Node
from sweep.errors import ResourceError
from sweep.train import DataParallelTrainer, ScalingConfig, get_context, report
from sweep.train.jax import JaxTrainer
from sweep.train.torch import TorchConfig, TorchTrainer

pytestmark = pytest.mark.docs

VARIABLES = ("CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "MEGASCALE_SLICE_ID")


@pytest.fixture(autouse=True)
def _machine(monkeypatch, tmp_path):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    for name in (
        *VARIABLES,
        "HIP_VISIBLE_DEVICES",
        "JAX_PLATFORMS",
        "XLA_FLAGS",
        "NCCL_SOCKET_IFNAME",
        "OMP_NUM_THREADS",
    ):
        monkeypatch.delenv(name, raising=False)
    yield
    sweep.shutdown()


def hosts(name, *, tpu_type="TPU-V6E"):
    """Return the nodes of a slice: four hosts of four chips."""
    chips = tuple(Device(f"tpu{i}", "tpu", tpu_type, visible=str(i)) for i in range(4))
    return [Node(f"{name}{i}", 4.0, devices=chips, slice=name) for i in range(4)]


def look():
    """Write down what this worker sees."""
    context = get_context()
    seen = [context.get_num_threads(), *(os.environ.get(name) for name in VARIABLES)]
    Path(context.get_trial_dir(), f"seen{context.get_world_rank()}.json").write_text(json.dumps(seen), encoding="utf-8")
    report({"size": context.get_world_size()})


def run(scaling_config):
    """Run `look` in a group; return what each worker saw, in the order of the ranks: threads, and the variables."""
    result = DataParallelTrainer(look, scaling_config=scaling_config).fit()
    seen = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(result.path).glob("seen*.json"))]
    assert result.metrics["size"] == len(seen)
    return [tuple(one) for one in seen]


def names_of_hosts(name):
    return ",".join(node.id for node in hosts(name))


# --- how many workers, and what each has -----------------------------------------------------------------------------


def test_using_accelerators_a_single_slice():
    # Single slice: 4 v6e VMs in a 4x4 topology
    scaling_config = ScalingConfig(
        num_workers=4,
        use_tpu=True,
        topology="4x4",
        accelerator_type="TPU-V6E",
    )
    resources = scaling_config.to_resources()
    assert resources.bundles == (Bundle(cpu=1.0, tpu=4.0, accelerator_type="TPU-V6E"),) * 4
    assert resources.bundles_per_slice == 4
    sweep.init(nodes=hosts("a"))
    assert run(scaling_config) == [(1, "", None, f"{rank}", names_of_hosts("a"), None) for rank in range(4)]


def test_using_accelerators_several_slices():
    # Multi-slice: 2 v6e slices, 8 VMs total
    scaling_config = ScalingConfig(
        num_workers=8,
        use_tpu=True,
        topology="4x4",
        accelerator_type="TPU-V6E",
    )
    resources = scaling_config.to_resources()
    assert resources.bundles == (Bundle(cpu=1.0, tpu=4.0, accelerator_type="TPU-V6E"),) * 8
    assert resources.bundles_per_slice == 4
    sweep.init(nodes=[*hosts("a"), *hosts("b")])
    assert run(scaling_config) == [
        (1, "", None, f"{rank % 4}", names_of_hosts("ab"[rank // 4]), f"{rank // 4}") for rank in range(8)
    ]


@pytest.mark.parametrize("num_workers", [1, 2, 3, 5, 6])
def test_the_number_of_workers_must_fill_whole_slices(num_workers):
    with pytest.raises(ResourceError, match="expected a multiple of 4: 4, 8, 12"):
        ScalingConfig(num_workers=num_workers, use_tpu=True, topology="4x4", accelerator_type="TPU-V6E")


# --- in the training function ----------------------------------------------------------------------------------------


def test_using_accelerators_in_the_training_function_gpus():
    import torch

    from sweep.train.torch import get_device  # not above: torch would be imported for the others, too

    def train_func():
        device = get_device()
        assert device == torch.device("cuda:0")
        report({"visible": os.environ["CUDA_VISIBLE_DEVICES"]})

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
    assert result.metrics["visible"] == "0"


def test_using_accelerators_in_the_training_function_tpus():
    def train_func():
        import jax

        devices = jax.devices()
        sweep.train.report({"num_devices": len(devices)})

    # CPUs in place of chips: each host has four, as it would have chips.
    stand_in = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    sweep.init(nodes=hosts("a"), runtime_env={"env_vars": stand_in})
    trainer = JaxTrainer(
        train_func,
        scaling_config=ScalingConfig(
            num_workers=4,
            use_tpu=True,
            topology="4x4",
            accelerator_type="TPU-V6E",
        )
    )  # fmt: skip
    assert trainer.fit().metrics["num_devices"] == 16


def test_assigning_multiple_gpus_to_a_worker():
    import torch

    from sweep.train.torch import get_device, get_devices  # not above: torch would be imported for the others, too

    def train_func():
        device = get_device()
        devices = get_devices()
        assert device == torch.device("cuda:0")
        assert devices == [torch.device("cuda:0"), torch.device("cuda:1")]
        report({"visible": os.environ["CUDA_VISIBLE_DEVICES"]})

    sweep.init(num_cpus=1, num_gpus=2)
    trainer = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(
            num_workers=1,
            use_gpu=True,
            resources_per_worker={"GPU": 2}
        )
    )  # fmt: skip
    result = trainer.fit()
    assert result.error is None
    assert result.metrics["visible"] == "0,1"


def test_using_only_two_of_the_four_chips_of_a_host():
    with pytest.warns(UserWarning, match="8 of the 16 chips of every slice stay unused"):
        scaling_config = ScalingConfig(
            num_workers=4,
            use_tpu=True,
            topology="4x4",
            accelerator_type="TPU-V6E",
            resources_per_worker={"TPU": 2},
        )
    assert scaling_config.to_resources().bundles == (Bundle(tpu=2.0, accelerator_type="TPU-V6E"),) * 4
    sweep.init(nodes=hosts("a"))
    assert run(scaling_config) == [(1, "", "0,1", f"{rank}", names_of_hosts("a"), None) for rank in range(4)]


@pytest.mark.parametrize("number", [1, 2, 4, 8])
def test_supported_chip_counts(number):
    scaling_config = ScalingConfig(use_tpu=True, resources_per_worker={"TPU": number})
    assert scaling_config.to_resources().bundles == (Bundle(tpu=float(number)),)


@pytest.mark.parametrize("number", [3, 5, 16, 0.5])
def test_other_chip_counts_are_refused(number):
    with pytest.raises(ResourceError, match="expected 1, 2, 4 or 8"):
        ScalingConfig(use_tpu=True, resources_per_worker={"TPU": number})


# --- types -----------------------------------------------------------------------------------------------------------


def test_setting_the_accelerator_type_of_gpus():
    scaling_config = ScalingConfig(
        num_workers=1,
        use_gpu=True,
        accelerator_type="A100"
    )  # fmt: skip
    assert scaling_config.to_resources().bundles == (Bundle(gpu=1.0, accelerator_type="A100"),)
    sweep.init(num_cpus=1, num_gpus=3, gpu_type=["V100", "V100", "A100"])
    assert run(scaling_config) == [(1, "2", None, None, None, None)]
    sweep.init(num_cpus=1, num_gpus=2, gpu_type="V100")
    with pytest.raises(ResourceError, match="it needs gpu=1 of type A100; this machine has 2 x V100"):
        run(scaling_config)


def test_setting_the_accelerator_type_of_tpus():
    scaling_config = ScalingConfig(
        num_workers=4,
        use_tpu=True,
        topology="2x2x4",
        accelerator_type="TPU-V4",
    )
    resources = scaling_config.to_resources()
    assert resources.bundles == (Bundle(cpu=1.0, tpu=4.0, accelerator_type="TPU-V4"),) * 4
    assert resources.bundles_per_slice == 4
    # A slice of another generation is there as well, and first.
    sweep.init(nodes=[*hosts("a"), *hosts("b", tpu_type="TPU-V4")])
    assert run(scaling_config) == [(1, "", None, f"{rank}", names_of_hosts("b"), None) for rank in range(4)]


# --- torch and NCCL --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_torch(tmp_path_factory):
    """The two blocks in one run: a backend of one's own, and variables for all workers. Return what rank 0 reported,
    and the variable as each rank had it."""
    num_training_workers = 2

    def train_func():
        import torch.distributed as dist

        context = get_context()
        has = Path(context.get_trial_dir(), f"interface{context.get_world_rank()}")
        has.write_text(os.environ["NCCL_SOCKET_IFNAME"], encoding="utf-8")
        report({"backend": dist.get_backend(), "size": dist.get_world_size()})

    runtime_env = {"env_vars": {"NCCL_SOCKET_IFNAME": "ens5"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEP_STORAGE", str(tmp_path_factory.mktemp("torch")))
        # Names that no machine has: where there are GPUs, none of them is used.
        sweep.init(num_cpus=1, gpu_ids=["GPU-8a5b0001", "GPU-8a5b0002"])
        sweep.init(runtime_env=runtime_env)
        trainer = TorchTrainer(
            train_func,
            scaling_config=ScalingConfig(
                num_workers=num_training_workers,
                use_gpu=True, # Defaults to NCCL
            ),
            torch_config=TorchConfig(backend="gloo"),
        )  # fmt: skip
        result = trainer.fit()
        sweep.shutdown()
    return result.metrics, [path.read_text(encoding="utf-8") for path in sorted(Path(result.path).glob("interface*"))]


def test_setting_the_communication_backend(of_torch):
    metrics, _ = of_torch
    assert (metrics["backend"], metrics["size"]) == ("gloo", 2)


def test_setting_the_communication_network_interface(of_torch):
    _, interfaces = of_torch
    assert interfaces == ["ens5", "ens5"]
    assert "NCCL_SOCKET_IFNAME" not in os.environ


# --- resources per worker --------------------------------------------------------------------------------------------


def test_custom_resources_limit_a_worker_too():
    scaling_config = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1, "licence": 1})
    sweep.init(num_cpus=8, num_gpus=0, resources={"licence": 2})
    assert run(scaling_config) == [(1, "", None, None, None, None)] * 2
    sweep.init(num_cpus=8, num_gpus=0, resources={"licence": 1})
    with pytest.raises(ResourceError, match="licence=2 in all, there are 1"):
        run(scaling_config)
