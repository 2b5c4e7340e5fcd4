"""The blocks of the guides as scripts: as they stand there, in Ray's words, with `ray` replaced as our guide says.

`blocks/` has the code of each block with the names that it leaves open left open, and a comma where one was forgotten.
The lines here define those names, declare a machine, and look at what came of it. To attach to a cluster is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import most_at_once

from sweep.accelerators.gpu import detect

pytestmark = pytest.mark.docs

BLOCKS = Path(__file__).parent / "blocks"
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "migrate-from-ray-tune.md"

TRIALS = """
import os
import time
import ray
from ray import tune

def trainable(config):
    time.sleep(0.05)
    tune.report({"score": 1.0, "shown": os.environ["CUDA_VISIBLE_DEVICES"]})
"""
SLICE = """
import ray
from ray import Device, Node

chips = tuple(Device(f"tpu{i}", "tpu", "TPU-V6E", visible=str(i)) for i in range(4))
hosts = [Node(f"host{i}", 4.0, devices=chips, slice="a") for i in range(4)]
# CPUs in place of chips: each host has four.
stand_in = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
ray.init(nodes=hosts, runtime_env={"env_vars": stand_in})
"""
TORCH = """
import os
import ray
from ray.train import ScalingConfig, report
from ray.train.torch import TorchTrainer

num_training_workers = 2

def train_func():
    import torch.distributed as dist
    report({"backend": dist.get_backend(), "interface": os.environ.get("NCCL_SOCKET_IFNAME")})
"""
TENSORFLOW = """
import argparse
import json
import os
import ray
from ray import tune

ray.init(num_cpus=2, num_gpus=0)
args = argparse.Namespace(use_gpu=False)

def train_mnist(config):
    tune.report({"workers": len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])})
"""
SEARCH = """
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.suggest import ConcurrencyLimiter
from ray.tune.suggest.bayesopt import BayesOptSearch
"""
SCALING = "from ray.train import ScalingConfig"
ASKED = "print(scaling.total_resources)"

# Block -> the lines before it, those after it, and what these print.
CASES = {
    "workers": ("", ASKED, "{'CPU': 8.0}"),
    "workers_with_gpus": ("", ASKED, "{'GPU': 8.0}"),
    "resources_of_a_worker": ("", ASKED, "{'CPU': 32.0, 'GPU': 16.0}"),
    "half_a_gpu_each": ("", ASKED, "{'CPU': 32.0, 'GPU': 4.0}"),
    "resources_of_a_trainer": ("", ASKED, "{'CPU': 12.0, 'GPU': 1.0}"),
    "no_resources_of_a_trainer": ("", ASKED, "{'CPU': 8.0}"),
    "slices": ("", "print(one_slice.total_resources['TPU'], two_slices.total_resources['TPU'])", "16.0 32.0"),
    "some_chips_of_a_host": ("", "print(scaling.total_resources['TPU'])", "8.0"),
    "type_of_gpu": (SCALING, "", ""),
    "type_of_tpu": (SCALING, "", ""),
    "jax_on_a_slice": (SLICE, "print(trainer.fit().metrics['num_devices'])", "16"),
    # Names that no machine has: where there are GPUs, none of them is used.
    "backend": (
        f"{TORCH}\nray.init(num_cpus=1, gpu_ids=['GPU-8a5b0001', 'GPU-8a5b0002'])",
        "print(trainer.fit().metrics['backend'])",
        "gloo",
    ),
    "network_interface": (
        f"{TORCH}\nray.init(num_cpus=2, num_gpus=0)",
        "print(trainer.fit().metrics['interface'], 'NCCL_SOCKET_IFNAME' in os.environ)",
        "ens5 False",
    ),
    "distributed_tensorflow": (TENSORFLOW, "", ""),
    "limited_search": (SEARCH, "print(search.max_concurrent, type(scheduler).__name__)", "4 AsyncHyperBandScheduler"),
}
# Block of sweeps -> the machine that it is run on, and how many trials at a time each of its sweeps runs.
AT_ONCE = {
    "one_trial_on_each_cpu": ("num_cpus=4, num_gpus=0", [4]),
    "cpus_of_a_trial": ("num_cpus=4, num_gpus=0", [1, 2, 8]),
    "gpus_of_a_trial": ("num_cpus=4, num_gpus=8", [2, 8]),
    "bundles_of_a_trial": ("num_cpus=16, num_gpus=8", [8]),
    "limited_trials": ("num_cpus=8, num_gpus=0", [4]),
}
# Block that asserts what a real device is -> how many of them it needs.
NEEDS_GPUS = {"device_of_a_worker": 1, "devices_of_a_worker": 2}


def replaced(text: str) -> str:
    """Return a script after the command of the guide."""
    (command,) = re.findall(r"^sed -E -i '(.+)' script\.py$", GUIDE.read_text(encoding="utf-8"), flags=re.M)
    return subprocess.run(["sed", "-E", command], input=text, capture_output=True, text=True, check=True).stdout


def run(name: str, before: str, after: str, directory: Path) -> str:
    """Run a block between its lines as a script, and return what it prints after everything else."""
    text = f"{before}\n{(BLOCKS / name).with_suffix('.py').read_text(encoding='utf-8')}\n{after}\n"
    script = directory / "script.py"
    script.write_text(replaced(text), encoding="utf-8")
    hidden = ("SWEEP_", "TUNE_", "CUDA_VISIBLE", "HIP_VISIBLE", "JAX_", "XLA_", "NCCL_", "OMP_", "TF_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
    environment["SWEEP_CLAIMS"] = os.environ["SWEEP_CLAIMS"]
    ended = subprocess.run(
        [sys.executable, script.name], cwd=directory, env=environment, capture_output=True, text=True, timeout=110
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    return (ended.stdout.splitlines() or [""])[-1] if after else ""


def test_every_block_is_run():
    assert {path.stem for path in BLOCKS.glob("*.py")} == CASES.keys() | AT_ONCE.keys() | NEEDS_GPUS.keys()


@pytest.mark.parametrize(
    ("line", "expected"),
    {
        "import ray": "import sweep as ray",
        "    import ray  # here": "    import sweep as ray  # here",
        "import ray.train": "import sweep as ray",
        "import ray.tune as tune": "import sweep.tune as tune",
        "from ray import tune": "from sweep import tune",
        "from ray.tune.suggest.optuna import OptunaSearch": "from sweep.tune.suggest.optuna import OptunaSearch",
        "ray.init(num_cpus=2)": "ray.init(num_cpus=2)",
        "import rayon": "import rayon",
        "from rays import ray": "from rays import ray",
    }.items(),
)
def test_the_command_of_the_guide_changes_imports_and_nothing_else(line, expected):
    assert replaced(line + "\n") == expected + "\n"


@pytest.mark.parametrize("name", CASES)
def test_a_block_runs_after_its_imports_are_changed(name, tmp_path):
    if name == "limited_search":
        pytest.importorskip("bayes_opt")
    before, after, printed = CASES[name]
    assert run(name, before, after, tmp_path) == printed


@pytest.mark.parametrize("name", AT_ONCE)
def test_a_block_of_sweeps_runs_as_many_trials_at_a_time_as_fit(name, tmp_path):
    machine, at_once = AT_ONCE[name]
    run(name, f"{TRIALS}\nray.init({machine})\n", "", tmp_path)
    assert sorted(most_at_once(path.parent) for path in tmp_path.glob("sweep_results/*/sweep.db")) == at_once


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "needed"), NEEDS_GPUS.items())
def test_a_block_that_looks_at_its_devices_runs_on_real_ones(name, needed, tmp_path):
    if sum(device.vendor == "nvidia" for device in detect()) < needed:
        pytest.skip(f"needs {needed} NVIDIA GPU{'s' * (needed > 1)}")
    run(name, "", "", tmp_path)
