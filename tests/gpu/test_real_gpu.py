"""What only a real NVIDIA GPU can show: its inventory, its memory, its visibility in a child, shares, the hand-over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sweep
from sweep.accelerators.cuda import ask as ask_cuda
from sweep.accelerators.gpu import detect
from sweep.accelerators.meter import read_memory
from sweep.accelerators.nvml import ask, list_gpus, open_library
from sweep.worker.gpu_memory import wait_for_gpu

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def library():
    """The driver's library; without it there is nothing to test."""
    found = open_library()
    if found is None:
        pytest.skip(f"no NVIDIA driver answers here: {list_gpus()[1]}")
    return found


@pytest.fixture
def device():
    """The first GPU that this process may use."""
    devices = detect()
    if not devices:
        pytest.skip("this process sees no NVIDIA GPU")
    return devices[0]


def in_child(code: str, **variables: str) -> list:
    """Run code in a new process and return what it prints as JSON in its last line."""
    environ = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def has_torch_with_cuda() -> bool:
    """Ask in a child, so that this process never touches CUDA: the trials are forked from it."""
    code = (
        "import importlib.util, json\n"
        "found = importlib.util.find_spec('torch') is not None\n"
        "if found:\n"
        "    import torch\n"
        "    found = torch.cuda.is_available()\n"
        "print(json.dumps([found]))"
    )
    return in_child(code)[0]


@pytest.fixture
def torch_with_cuda():
    """Skip where torch cannot use the GPU."""
    if not has_torch_with_cuda():
        pytest.skip("torch is not installed, or it sees no GPU")


def test_the_inventory_agrees_with_the_driver(library):
    devices = detect({}, sysfs="/nowhere")
    handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
    whole = [handle for handle in handles if (ask(library, "nvmlDeviceGetMigMode", handle) or [0])[0] != 1]
    uuids = [library.nvmlDeviceGetUUID(handle) for handle in whole]
    assert [device.id for device in devices if device.id.startswith("GPU-")] == uuids
    assert len({device.id for device in devices}) == len(devices) > 0
    for device in devices:
        assert device.id.startswith(("GPU-", "MIG-"))
        assert (device.kind, device.vendor) == ("gpu", "nvidia")
        assert device.type
        assert device.labels[0].casefold() in device.type.casefold().replace(" ", "").replace("-", "")
        assert device.visible in (device.id, str(devices.index(device)))


def test_cuda_counts_along_the_pci_bus_as_the_inventory_does():
    devices = detect({}, sysfs="/nowhere")
    if any(device.id.startswith("MIG-") for device in devices):
        pytest.skip("a GPU is in MIG mode, of which CUDA shows one instance")
    uuids = [device.id.partition("-")[2].replace("-", "").lower() for device in devices]
    assert ask_cuda(None, "PCI_BUS_ID") == tuple(uuids)
    assert ask_cuda("0", "PCI_BUS_ID") == tuple(uuids[:1])
    assert ask_cuda("", None) is None  # no device is an error to CUDA
    assert sorted(ask_cuda(None, None) or ()) == sorted(uuids)


def test_a_trial_that_asks_for_no_gpu_finds_none_by_cuda_itself(device, tmp_path):
    def train(config):
        import ctypes

        cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
        return {"code": cuda.cuInit(0), "count": count.value, "shown": os.environ["CUDA_VISIBLE_DEVICES"]}

    # Not even where the inventory knows of no GPU.
    for devices in ((device,), ()):
        analysis = sweep.run(
            train,
            resources_per_trial={"cpu": 1},
            nodes=[sweep.Node("local", cpus=1, devices=devices)],
            storage_path=str(tmp_path),
            verbose=0,
        )
        result = analysis.trials[0].last_result
        assert (result["code"], result["count"], result["shown"]) == (100, 0, "")


def test_memory_is_read_for_every_device():
    devices = detect({}, sysfs="/nowhere")
    memory = read_memory(devices)
    assert memory is not None
    assert list(memory) == [device.id for device in devices]
    for device in devices:
        assert 0 <= memory[device.id].used_bytes <= memory[device.id].total_bytes
        assert 0.9 * device.memory <= memory[device.id].total_bytes <= 1.1 * device.memory


def test_an_idle_gpu_need_not_be_waited_for(device):
    memory = (read_memory([device]) or {})[device.id]
    if memory.fraction > 0.01:
        pytest.skip(f"{device.id} is not idle: {memory.fraction:.0%} of its memory is in use")
    assert wait_for_gpu(device.id, retry=1) is True
    assert wait_for_gpu(0, retry=1) is True


def test_a_child_that_is_told_a_uuid_sees_that_gpu_alone(device):
    code = (
        "import json\n"
        "from sweep.accelerators.gpu import detect\n"
        "print(json.dumps([[device.id, device.visible] for device in detect()]))"
    )
    assert in_child(code, CUDA_VISIBLE_DEVICES=device.id) == [[device.id, device.id]]


def test_torch_in_a_child_that_is_told_a_uuid_sees_one_gpu(device, torch_with_cuda):
    code = "import json, torch\nprint(json.dumps([torch.cuda.device_count(), torch.cuda.get_device_name(0)]))"
    count, name = in_child(code, CUDA_VISIBLE_DEVICES=device.id)
    assert count == 1
    assert device.type.startswith(name)


def test_cuda_itself_sees_one_gpu_by_what_the_inventory_says_and_none_when_it_is_told_none(device):
    code = (
        "import ctypes, json\n"
        "cuda, count = ctypes.CDLL('libcuda.so.1'), ctypes.c_int(0)\n"
        "codes = [cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count))]\n"
        "print(json.dumps([codes[0], count.value]))"
    )
    assert in_child(code, CUDA_VISIBLE_DEVICES=device.visible, CUDA_DEVICE_ORDER="PCI_BUS_ID") == [0, 1]
    no_device = 100
    assert in_child(code, CUDA_VISIBLE_DEVICES="") == [no_device, 0]


def test_two_trials_share_one_gpu_at_the_same_time(device, tmp_path):
    meeting = str(tmp_path / "meeting")
    os.mkfifo(meeting)

    def train(config):
        # Each opens one end, which waits for the other: trials that ran one after another would never end.
        with open(meeting, "wb" if config["end"] else "rb"):
            return {"sees": os.environ["CUDA_VISIBLE_DEVICES"]}

    analysis = sweep.run(
        train,
        config={"end": sweep.grid_search([0, 1])},
        resources_per_trial={"gpu": 0.5},
        nodes=[sweep.Node("local", cpus=2, devices=(device,))],
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert [trial.last_result["sees"] for trial in analysis.trials] == [device.visible] * 2


def test_the_memory_of_a_trial_has_come_back_when_the_next_one_starts(device, tmp_path):
    before = (read_memory([device]) or {})[device.id]
    amount = before.total_bytes // 8
    if before.total_bytes - before.used_bytes < 2 * amount:
        pytest.skip(f"{device.id} has too little free memory")

    def train(config):
        import ctypes

        def check(code):
            if code:
                raise RuntimeError(f"CUDA refuses with {code}")

        def used():
            return read_memory([device])[device.id].used_bytes

        found = used()
        cuda = ctypes.CDLL("libcuda.so.1")
        number, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        check(cuda.cuInit(0))
        check(cuda.cuDeviceGet(ctypes.byref(number), 0))
        check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
        check(cuda.cuCtxSetCurrent(context))
        check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(amount)))
        return {"found": found, "held": used()}  # it leaves without freeing

    analysis = sweep.run(
        train,
        num_samples=3,
        resources_per_trial={"gpu": 1},
        nodes=[sweep.Node("local", cpus=2, devices=(device,))],
        storage_path=str(tmp_path),
        verbose=0,
    )
    results = [trial.last_result for trial in analysis.trials]
    assert len(results) == 3
    allowed = max(before.total_bytes // 20, before.used_bytes + (64 << 20))
    for result in results:
        assert result["found"] <= allowed
        assert result["held"] >= result["found"] + amount


def test_torch_keeps_to_a_share(device, torch_with_cuda):
    code = (
        "import json, torch\n"
        "from sweep.worker.gpu_memory import limit_gpu_memory\n"
        "done = limit_gpu_memory(0.1)\n"
        "total = torch.cuda.get_device_properties(0).total_memory\n"
        "small = torch.empty(total // 20, dtype=torch.uint8, device='cuda')\n"
        "try:\n"
        "    torch.empty(total // 5, dtype=torch.uint8, device='cuda')\n"
        "    refused = False\n"
        "except torch.cuda.OutOfMemoryError:\n"
        "    refused = True\n"
        "print(json.dumps([done, refused]))"
    )
    assert in_child(code, CUDA_VISIBLE_DEVICES=device.id) == [True, True]


def test_nccl_adds_in_a_group_of_one(device, torch_with_cuda, tmp_path):
    code = (
        "import json, torch\n"
        "import torch.distributed as dist\n"
        f"store = dist.FileStore({str(tmp_path / 'store')!r}, 1)\n"
        "dist.init_process_group('nccl', store=store, rank=0, world_size=1)\n"
        "value = torch.full((3,), 2.0, device='cuda')\n"
        "dist.all_reduce(value)\n"
        "torch.cuda.synchronize()\n"
        "dist.destroy_process_group()\n"
        "print(json.dumps(value.tolist()))"
    )
    assert in_child(code, CUDA_VISIBLE_DEVICES=device.id) == [2.0, 2.0, 2.0]


def test_two_workers_share_the_gpu_and_add_by_gloo(device, torch_with_cuda, tmp_path):
    from sweep.train import ScalingConfig
    from sweep.train.torch import TorchTrainer

    def loop(config):
        import torch
        import torch.distributed as dist

        from sweep.train.torch import get_device

        value = torch.ones(3, device=get_device())
        dist.all_reduce(value)
        sweep.report(sum=value.sum().item(), backend=dist.get_backend(), device=str(value.device))

    scaling = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"GPU": 0.5})
    analysis = sweep.run(
        TorchTrainer(loop, scaling_config=scaling),
        nodes=[sweep.Node("local", cpus=2, devices=(device,))],
        storage_path=str(tmp_path),
        verbose=0,
    )
    result = analysis.trials[0].last_result
    assert (result["sum"], result["backend"], result["device"]) == (6.0, "gloo", "cuda:0")
