"""Lanes in PyTorch: equal to a trial alone whatever the neighbours, modules as states, what cannot be in a lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sweep
from sweep.errors import TrainableError
from sweep.lanes.batch import Pool
from sweep.worker.environment import trial_seed

torch = pytest.importorskip("torch")
nn = torch.nn
programs = pytest.importorskip("sweep.lanes.torch_program")


class Net(sweep.VectorTrainable):
    """A module as the state, batches of rows, and noise on the targets that belongs to the trial and the step."""

    framework: Any = "torch"
    batch_size = 8
    steps_per_report = 3

    def data(self):
        x = np.random.default_rng(0).random((40, 4))
        return {"x": x, "y": x.sum(1, keepdims=True)}

    def init(self, key, config):
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))

    def step(self, params, module, lr, key, x, y):
        noise = programs.normal(key, y.shape) / 100

        def loss(params):
            return nn.functional.mse_loss(torch.func.functional_call(module, params, (x,)), y + noise)

        grads, value = torch.func.grad_and_value(loss)(params)
        return {name: array - lr * grads[name] for name, array in params.items()}, {"loss": value}

    def evaluate(self, params, module, x, y):
        return {"error": (torch.func.functional_call(module, params, (x,)) - y).abs().mean()}


class Walk(sweep.VectorTrainable):
    """A tree of several types that is changed in place; what is drawn decides all."""

    framework: Any = "torch"

    def init(self, key, config):
        return {"z": (torch.rand(2), 0), "a": programs.uniform(key, 3).bfloat16()}

    def step(self, state, lr, key, index):
        place, number = state["z"]
        place += lr * programs.normal(programs.fold_in(key, 1), 2)
        return {"a": state["a"] + programs.uniform(key, 3), "z": (place, number + 1)}, {
            "sum": place.sum(),
            "index": index,
        }


def together(vector, configs, num_reports, *, seeds=None, most=8):
    """Train as lanes of one batch; return the reports of each, and the trials in it."""
    pool = Pool(vector(), programs.TorchProgram, {}, most)
    seats = [pool.enter(config, seed) for config, seed in zip(configs, seeds or range(len(configs)), strict=True)]
    groups = list(pool.groups.values())
    assert not any(group.settle() for group in groups)
    rounds = [{seat: row for group in groups for seat, row in group.advance().items()} for _ in range(num_reports)]
    return [[one[seat] for one in rounds] for seat in seats], seats


def test_a_lane_has_the_numbers_of_the_trial_alone():
    configs = [{"lr": lr} for lr in (0.01, 0.3, 0.1)]
    reports, _ = together(Net, configs, 4)
    for seed, config in enumerate(configs):
        alone = Net.run_one(config, 4, seed=seed)
        assert list(alone[0]) == ["loss", "error"]
        for lane, one in zip(reports[seed], alone, strict=True):
            assert lane == pytest.approx(one, rel=1e-5)
    assert len({rows[-1]["error"] for rows in reports}) == 3


def test_neighbours_and_the_moment_it_comes_change_nothing():
    config = {"lr": 0.5}
    alone = Walk.run_one(config, 3, seed=7)
    reports, seats = together(Walk, [{"lr": 1.0}, config, {"lr": 0.0}], 3, seeds=[1, 7, 9])
    assert reports[1] == alone
    seats[0].leave()
    group = seats[1].group
    late = group.enter(7, seats[1].numbers)
    assert group.settle() == {}
    assert [group.advance()[late] for _ in range(3)] == alone
    assert seats[1].count == 6


def test_random_numbers_are_those_of_the_key_and_fit_their_distribution():
    keys = torch.tensor([3, 2**62, -5])
    drawn = torch.func.vmap(lambda key: programs.normal(key, (300, 100)))(keys)
    assert torch.equal(drawn[1], programs.normal(keys[1], (300, 100)))
    assert drawn.mean((1, 2)).abs().max() < 0.03
    assert (drawn.std((1, 2)) - 1).abs().max() < 0.02
    assert programs.uniform(keys[0]).shape == ()
    even = programs.uniform(keys[0], 30_000)
    counts = torch.histc(even, 10, 0.0, 1.0)
    assert even.min() >= 0.0
    assert even.max() < 1.0
    assert (counts - 3_000).abs().max() < 250
    others = [programs.uniform(programs.fold_in(keys[0], number), 30_000) for number in (0, 1, 2**40)]
    assert all(torch.corrcoef(torch.stack([even, *others])).fill_diagonal_(0).abs().flatten() < 0.03)


def test_a_state_is_saved_by_name_and_restored_into_any_lane():
    configs = [{"lr": 0.5}] * 3
    reports, seats = together(Walk, configs, 4)
    _, begun = together(Walk, configs, 2)
    arrays = begun[2].arrays()
    assert {name: array.shape for name, array in arrays.items()} == {"['a']": (3,), "['z'][0]": (2,), "['z'][1]": ()}
    assert list(arrays) == sorted(arrays)
    pool = Pool(Walk(), programs.TorchProgram, {}, 4)
    seat = pool.enter(configs[2], 2)
    seat.restored, seat.count = {name: array.copy() for name, array in arrays.items()}, 2
    assert seat.group.settle() == {}
    assert [seat.group.advance()[seat] for _ in range(2)] == reports[2][2:]
    assert all(np.array_equal(seat.arrays()[name], array) for name, array in seats[2].arrays().items())


def test_a_module_that_init_has_from_elsewhere_stays_as_it_is(monkeypatch):
    net = nn.Linear(4, 1)
    monkeypatch.setattr(Net, "init", lambda self: net)
    together(Net, [{"lr": 0.1}] * 2, 1)
    assert net.weight.device.type == "cpu"


def test_a_static_hyperparameter_may_decide_a_shape(monkeypatch):
    monkeypatch.setattr(Net, "static", ("width",))
    monkeypatch.setattr(Net, "init", wide)
    configs = [{"lr": 0.1, "width": width} for width in (3, 6, 3)]
    reports, seats = together(Net, configs, 2)
    assert [seat.arrays()["['params']['0.weight']"].shape for seat in seats] == [(3, 4), (6, 4), (3, 4)]
    assert seats[0].group is seats[2].group
    assert reports[1][-1] == pytest.approx(Net.run_one(configs[1], 2, seed=1)[-1], rel=1e-5)


def wide(self, key, config):
    return nn.Sequential(nn.Linear(4, config["width"]), nn.Linear(config["width"], 1))


def branching(self, state, lr, key, index):
    return state, {"sum": index if lr > 0.2 else -index}


def as_number(self, state, lr, offset):
    return state, {"sum": float(lr) + float(offset)}


def in_numpy(self, state, lr, offset):
    return state, {"sum": lr + torch.as_tensor(np.sin(offset))}


@pytest.mark.parametrize(
    ("vector", "name", "function", "guilty"),
    [
        (Net, "init", wide, "width"),
        (Walk, "step", branching, "lr"),
        (Walk, "step", as_number, "offset"),
        (Walk, "step", in_numpy, "offset"),
    ],
)
def test_a_hyperparameter_that_python_needs_is_named(monkeypatch, vector, name, function, guilty):
    monkeypatch.setattr(vector, name, function)
    config = {"lr": 0.1, "offset": 2.0, "width": 3}
    with pytest.raises(TrainableError, match=rf"config\['{guilty}'\] differs .*static = \('{guilty}',\)"):
        together(vector, [config] * 2, 1)
    assert vector.run_one(config, 1)  # alone, nothing differs


class Normed(Net):
    """A module with buffers, which its training changes."""

    def init(self, key, config):
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))

    def copied(self, buffers):
        return {name: buffer.clone() for name, buffer in buffers.items()}

    def step(self, params, buffers, module, lr, x, y):
        def loss(params):
            new = self.copied(buffers)
            return nn.functional.mse_loss(torch.func.functional_call(module, (params, new), (x,)), y), new

        grads, (value, new) = torch.func.grad_and_value(loss, has_aux=True)(params)
        return {name: array - lr * grads[name] for name, array in params.items()}, new, {"loss": value}

    def evaluate(self, buffers):
        return {"mean": buffers["1.running_mean"].sum(), "batches": buffers["1.num_batches_tracked"]}


def test_buffers_that_training_changes_are_those_of_the_trial_alone(monkeypatch):
    configs = [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]
    found, _ = together(Normed, configs, 2)
    for seed, (config, rows) in enumerate(zip(configs, found, strict=True)):
        assert rows == [pytest.approx(row, rel=1e-4) for row in Normed.run_one(config, 2, seed=seed)]
        assert [row["batches"] for row in rows] == [3, 6]
    monkeypatch.setattr(Normed, "copied", lambda self, buffers: buffers)
    with pytest.raises(TrainableError, match=r"Normed\.step changes a tensor in place .* as BatchNorm does"):
        Normed.run_one({"lr": 0.1}, 1)


def test_random_numbers_of_torch_are_refused_in_a_step(monkeypatch):
    monkeypatch.setattr(Walk, "step", lambda self, state, lr: (state, {"sum": lr * torch.rand(())}))
    with pytest.raises(TrainableError, match=r"Walk\.step draws random numbers of torch.* normal\(key, shape\)"):
        Walk.run_one({"lr": 0.1}, 1)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_when_the_memory_of_a_gpu_runs_out_in_a_step_lanes_are_halved_and_no_number_changes(monkeypatch, error):
    configs, calls, step = [{"lr": 0.1}] * 5, [], Walk.step
    expected, _ = together(Walk, configs, 3)

    def failing(self, state, lr, key, index):
        calls.append(1)
        if len(calls) == 2:
            raise error
        return step(self, state, lr, key, index)

    monkeypatch.setattr(Walk, "step", failing)
    reports, seats = together(Walk, configs, 3)
    assert reports == expected
    assert seats[0].group.most == 4


def test_beginning_leaves_the_random_numbers_of_the_process_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    Walk.run_one({"lr": 0.1}, 1)
    assert torch.equal(torch.rand(3), expected)


def test_what_a_refill_begins_is_only_what_is_new(monkeypatch):
    begun, init = [], Walk.init
    monkeypatch.setattr(Walk, "init", lambda self, key, config: begun.append(1) or init(self, key, config))
    _, seats = together(Walk, [{"lr": 0.1}] * 5, 1)
    assert len(begun) == 5
    seats[0].leave()
    seats[1].group.enter(9, seats[1].numbers)
    seats[1].group.settle()
    assert len(begun) == 6


@pytest.mark.slow
def test_asha_runs_in_one_process_and_its_best_is_that_of_a_trial_alone(tmp_path):
    analysis = sweep.run(
        Walk,
        config={"lr": sweep.grid_search([0.1 * number for number in range(12)])},
        metric="sum",
        mode="max",
        scheduler=sweep.ASHAScheduler(max_t=6, grace_period=2, reduction_factor=2),
        engine="lanes",
        seed=5,
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert len({trial.last_result["pid"] for trial in analysis.trials}) == 1
    reports = {trial.last_result["training_iteration"] for trial in analysis.trials}
    assert 6 in reports
    assert len(reports) > 1
    best = analysis.best_trial
    alone = Walk.run_one(best.config, 6, seed=trial_seed(5, best.trial_id))
    assert best.last_result["sum"] == pytest.approx(alone[-1]["sum"], rel=1e-6)
