"""Lanes on a real NVIDIA GPU: equal to a trial alone, on the device, with too little memory, and in whose process."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import sweep
from sweep.accelerators.gpu import detect
from sweep.accelerators.nvml import list_gpus, open_library
from sweep.lanes.batch import Pool
from sweep.lanes.trainable import program_of

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]  # compiling, and copies of gigabytes

SHARE = 0.03  # of a GPU's memory, for what is to run out


@pytest.fixture
def device():
    """The first GPU that this process may use."""
    if open_library() is None:
        pytest.skip(f"no NVIDIA driver answers here: {list_gpus()[1]}")
    devices = detect()
    if not devices:
        pytest.skip("this process sees no NVIDIA GPU")
    return devices[0]


def finds_gpu_by(framework):
    """Return whether a framework is installed and uses the GPU; to be called in a trial."""
    if framework == "torch":
        import torch

        return torch.cuda.is_available()
    import jax

    return jax.default_backend() == "gpu"


@pytest.fixture(params=["jax", "torch"])
def framework(request, device, tmp_path):
    """Skip where a framework cannot use the GPU; asked in a trial, so that this process never touches CUDA."""
    name = request.param
    pytest.importorskip(name)
    (trial,) = swept(lambda config: {"finds": finds_gpu_by(name)}, device, tmp_path, verbose=0).trials
    if not trial.last_result["finds"]:
        pytest.skip(f"{name} here is one without CUDA")
    return name


def swept(trainable, device, tmp_path, *, cpus=1, **how):
    """Run a sweep on one GPU, all trials of which end well."""
    if not hasattr(trainable, "__sweep_lanes__"):
        how["resources_per_trial"] = {"cpu": 1, "gpu": 1}
    analysis = sweep.run(
        trainable, nodes=[sweep.Node("local", cpus=cpus, devices=(device,))], storage_path=str(tmp_path), **how
    )
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert {trial.num_failures for trial in analysis.trials} == {0}
    return analysis


class Net(sweep.VectorTrainable):
    """A small network with noise on its targets; it says whether all that a step is given lies on the GPU."""

    batch_size = 16
    steps_per_report = 5

    def data(self):
        x = np.random.default_rng(0).random((64, 4)).astype(np.float32)
        return {"x": x, "y": x.sum(1, keepdims=True)}


class JaxNet(Net):
    def init(self, key, config):
        import jax

        return {"w": jax.random.normal(key, (4, 8)), "v": jax.numpy.ones((8, 1))}

    def step(self, state, lr, key, x, y):
        import jax

        def loss(state):
            return ((jax.numpy.tanh(x @ state["w"]) @ state["v"] - y - noise) ** 2).mean()

        with jax.default_matmul_precision("highest"):  # or products of one size are rounded otherwise than of another
            noise = jax.random.normal(key, y.shape) / 100
            value, gradient = jax.value_and_grad(loss)(state)
        is_there = float(jax.default_backend() == "gpu")
        return jax.tree.map(lambda a, g: a - lr * g, state, gradient), {"loss": value, "is_there": is_there}


class TorchNet(Net):
    framework: Any = "torch"

    def init(self):
        import torch

        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def step(self, params, module, lr, key, x, y):
        import torch

        from sweep.lanes.torch_program import normal

        noise = normal(key, y.shape) / 100

        def loss(params):
            return torch.nn.functional.mse_loss(torch.func.functional_call(module, params, (x,)), y + noise)

        gradient, value = torch.func.grad_and_value(loss)(params)
        is_there = all(one.is_cuda for one in (x, y, key, lr, *params.values()))
        made = torch.ones(())  # without a device, as code for the CPU makes it
        new = {name: array - lr * made * gradient[name] for name, array in params.items()}
        return new, {"loss": value, "is_there": float(is_there)}


def test_lanes_are_on_the_gpu_and_equal_to_a_trial_alone_also_after_a_checkpoint(framework, device, tmp_path):
    net = {"jax": JaxNet, "torch": TorchNet}[framework]

    def train(config):
        def entered(most, count, restored):
            pool = Pool(net(), program_of(net), {}, most)
            seats = [pool.enter({"lr": 0.05 * seed}, seed) for seed in range(4 - most, 4)]
            for seat in seats:
                seat.count, seat.restored = count, restored
            assert seats[0].group.settle() == {}
            return seats[-1]

        seat = entered(4, 0, None)
        lane = [seat.group.advance()[seat] for _ in range(4)]
        places = seat.group.batches[0].states.values()
        on = {str(one.device) if framework == "torch" else one.device.platform for one in places}
        early = entered(4, 0, None)
        early.group.advance(), early.group.advance()
        later = entered(1, early.count, early.arrays())
        restored = [later.group.advance()[later] for _ in range(2)]
        return {"lane": lane, "restored": restored, "on": sorted(on), "alone": net.run_one({"lr": 0.15}, 4, seed=3)}

    found = swept(train, device, tmp_path, verbose=0).trials[0].last_result
    assert found["on"] == [{"jax": "gpu", "torch": "cuda:0"}[framework]]
    assert found["alone"][-1]["loss"] < found["alone"][0]["loss"]
    for rows in (found["lane"], found["alone"][:2] + found["restored"]):
        assert {row["is_there"] for row in rows} == {1.0}
        assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in found["alone"]], rel=1e-4)


class JaxSums(sweep.VectorTrainable):
    """A state of many numbers, all of which a step changes."""

    num_lanes = 32
    size = 0  # numbers of four bytes in a lane

    def init(self, x):
        import jax.numpy as jnp

        return {"sum": jnp.full(self.size, 100 * x)}

    def step(self, state, x):
        return {"sum": state["sum"] + x}, {"sum": state["sum"][-1] + x}


class TorchSums(JaxSums):
    framework: Any = "torch"

    def data(self):
        sweep.limit_gpu_memory(SHARE)  # jax is told by the environment
        return np.zeros(1)

    def init(self, x):
        import torch

        return {"sum": (100 * x) * torch.ones(self.size)}


@pytest.mark.parametrize(("lanes", "when"), [(56, "at a step"), (20, "at the beginning")])
def test_where_the_memory_of_the_gpu_runs_out_all_trials_end_well(
    framework, device, tmp_path, caplog, capfd, lanes, when
):
    """Its share has room for the states of so many lanes; a step needs some times as much."""
    sums = {"jax": JaxSums, "torch": TorchSums}[framework]
    size = int(0.9 * SHARE * device.memory / lanes / 4)
    analysis = swept(
        type("Large", (sums,), {"size": size, "resources_per_worker": {"cpu": 1, "gpu": SHARE}}),
        device,
        tmp_path,
        config={"x": sweep.grid_search([float(number) for number in range(32)])},
        stop={"training_iteration": 3},
        verbose=1,
    )
    assert sorted(trial.last_result["sum"] for trial in analysis.trials) == [103.0 * x for x in range(32)]
    assert "the memory of a process suffices for no more than" in caplog.text + "".join(capfd.readouterr())


class JaxPlaces(sweep.VectorTrainable):
    """Says whether its process sees the one GPU that it was given."""

    expected = ""

    def init(self):
        import jax.numpy as jnp

        return {"sum": jnp.zeros(1000)}

    def step(self, state, x):
        is_seen = os.environ["CUDA_VISIBLE_DEVICES"] == self.expected
        return {"sum": state["sum"] + x}, {"is_seen": float(is_seen and self.count() == 1), "sum": x}

    def count(self):
        import jax

        return len(jax.devices("gpu"))


class TorchPlaces(JaxPlaces):
    framework: Any = "torch"

    def init(self):
        import torch

        return {"sum": torch.zeros(1000)}

    def count(self):
        import torch

        return torch.cuda.device_count()


@pytest.mark.parametrize(("request_of_worker", "workers"), [(None, 1), ({"cpu": 1, "gpu": 0.5}, 2)])
def test_a_worker_has_a_whole_gpu_unless_it_is_given_a_share_and_sees_no_other(
    framework, device, tmp_path, request_of_worker, workers
):
    places = {"jax": JaxPlaces, "torch": TorchPlaces}[framework]
    analysis = swept(
        type("Placed", (places,), {"expected": device.visible, "resources_per_worker": request_of_worker}),
        device,
        tmp_path,
        cpus=2,
        config={"x": sweep.grid_search([float(number) for number in range(8)])},
        stop={"training_iteration": 20},
        verbose=0,
    )
    assert {trial.last_result["is_seen"] for trial in analysis.trials} == {1.0}
    assert len({trial.last_result["pid"] for trial in analysis.trials}) == workers
