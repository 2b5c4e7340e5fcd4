"""The guides to scale, to GPUs and to accelerators, on declared machines; devices that nobody has exist on paper.

Their blocks run as scripts in `test_blocks`; what each example asks for stands in `train/test_scaling.py`.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest

import sweep
from sweep.core.resources import Device, Node
from sweep.errors import ResourceError
from sweep.train import DataParallelTrainer, ScalingConfig, get_context, report
from sweep.train.torch import TorchTrainer

pytestmark = pytest.mark.docs

VARIABLES = ("CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "MEGASCALE_SLICE_ID")


@pytest.fixture(autouse=True)
def _machine(monkeypatch, tmp_path):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    for name in (*VARIABLES, "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
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


def run(fields):
    """Run `look` in a group; return what each worker saw, in the order of the ranks: threads, and the variables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chips that stay unused, and of `trainer_resources`
        result = DataParallelTrainer(look, scaling_config=ScalingConfig(**fields)).fit()
    seen = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(result.path).glob("seen*.json"))]
    assert result.metrics["size"] == len(seen)
    return [tuple(one) for one in seen]


def on_gpus(shown, threads=1):
    return [(threads, one, None, None, None, None) for one in shown]


def on_slice(name, *, chips=None, number=None):
    names = ",".join(node.id for node in hosts(name))
    return [(1, "", chips, f"{worker}", names, number) for worker in range(4)]


V6E = {"use_tpu": True, "topology": "4x4", "accelerator_type": "TPU-V6E"}
FOUR_OF_TWO = {"num_workers": 4, "resources_per_worker": {"CPU": 2}}
A100 = {"num_workers": 1, "use_gpu": True, "accelerator_type": "A100"}
LICENSED = {"num_workers": 2, "resources_per_worker": {"CPU": 1, "licence": 1}}


@pytest.mark.parametrize(
    ("fields", "machine", "seen"),
    [
        ({"num_workers": 8}, {"num_cpus": 8, "num_gpus": 0}, on_gpus([""] * 8)),
        ({"num_workers": 8, "use_gpu": True}, {"num_cpus": 1, "num_gpus": 8}, on_gpus("01234567")),
        (
            {"num_workers": 8, "resources_per_worker": {"CPU": 4, "GPU": 2}, "use_gpu": True},
            {"num_cpus": 32, "num_gpus": 16},
            on_gpus([f"{2 * rank},{2 * rank + 1}" for rank in range(8)], 4),
        ),
        (
            {"num_workers": 8, "resources_per_worker": {"CPU": 4, "GPU": 0.5}, "use_gpu": True},
            {"num_cpus": 32, "num_gpus": 4},
            on_gpus("00112233", 4),
        ),
        # What the trainer holds is beside the workers, who do not see it; nothing is the default.
        (
            {"num_workers": 8, "trainer_resources": {"CPU": 4, "GPU": 1}},
            {"num_cpus": 12, "num_gpus": 1},
            on_gpus([""] * 8),
        ),
        (FOUR_OF_TWO | {"trainer_resources": {"CPU": 0}}, {"num_cpus": 8, "num_gpus": 0}, on_gpus([""] * 4, 2)),
        (FOUR_OF_TWO, {"num_cpus": 8, "num_gpus": 0}, on_gpus([""] * 4, 2)),
        (A100, {"num_cpus": 1, "num_gpus": 3, "gpu_type": ["V100", "V100", "A100"]}, on_gpus("2")),
        (LICENSED, {"num_cpus": 8, "num_gpus": 0, "resources": {"licence": 2}}, on_gpus([""] * 2)),
        ({"num_workers": 4, **V6E}, {"nodes": hosts("a")}, on_slice("a")),
        (
            {"num_workers": 8, **V6E},
            {"nodes": [*hosts("a"), *hosts("b")]},
            [*on_slice("a", number="0"), *on_slice("b", number="1")],
        ),
        (
            {"num_workers": 4, **V6E, "resources_per_worker": {"TPU": 2}},
            {"nodes": hosts("a")},
            on_slice("a", chips="0,1"),
        ),
        # A slice of another generation is there as well, and first.
        (
            {"num_workers": 4, "use_tpu": True, "topology": "2x2x4", "accelerator_type": "TPU-V4"},
            {"nodes": [*hosts("a"), *hosts("b", tpu_type="TPU-V4")]},
            on_slice("b"),
        ),
    ],
)
def test_the_workers_of_an_example_see_what_they_were_given(fields, machine, seen):
    sweep.init(**machine)
    assert run(fields) == seen


@pytest.mark.parametrize(
    ("fields", "machine", "words"),
    [
        (A100, {"num_gpus": 2, "gpu_type": "V100"}, "it needs gpu=1 of type A100; this machine has 2 x V100"),
        (FOUR_OF_TWO | {"trainer_resources": {"CPU": 1}}, {"num_gpus": 0}, "it needs cpu=9 in all, there are 8"),
        (LICENSED, {"num_gpus": 0, "resources": {"licence": 1}}, "licence=2 in all, there are 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_arithmetic(fields, machine, words):
    sweep.init(num_cpus=8, **machine)
    with pytest.raises(ResourceError, match=words):
        run(fields)


@pytest.mark.parametrize("number", [1, 2])
def test_the_training_function_asks_for_its_devices(number):
    import torch

    from sweep.train.torch import get_device, get_devices  # not above: torch would be imported for the others, too

    def train_func():
        assert get_device() == torch.device("cuda:0")
        assert get_devices() == [torch.device(f"cuda:{i}") for i in range(number)]
        report({"visible": os.environ["CUDA_VISIBLE_DEVICES"]})

    sweep.init(num_cpus=1, num_gpus=number)
    scaling = ScalingConfig(num_workers=1, use_gpu=True, resources_per_worker={"GPU": number})
    assert TorchTrainer(train_func, scaling_config=scaling).fit().metrics["visible"] == "0,1"[: 2 * number - 1]
