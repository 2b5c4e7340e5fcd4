"""The environment of ranks as their own code reads it, in real processes: all of it, compared with the driver's."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from rank_variables import NO_GPU, cuda, threads, torch, who

import sweep
from sweep.train import DataParallelTrainer, RunConfig, ScalingConfig, get_context
from sweep.train.torch import TorchTrainer
from sweep.train.trainer import Backend
from sweep.worker.nested import process_mark

# What decides how devices and threads are shown: the machine that runs these tests may have any of them.
DECIDING = (
    *(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")),
    "VECLIB_MAXIMUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
    *(f"{name}_VISIBLE_DEVICES" for name in ("CUDA", "HIP", "ROCR")),
    "CUDA_DEVICE_ORDER",
    "TPU_VISIBLE_CHIPS",
    "TPU_CHIPS_PER_HOST_BOUNDS",
    "TPU_HOST_BOUNDS",
    "TPU_WORKER_ID",
    "TPU_WORKER_HOSTNAMES",
    *(f"MEGASCALE_{name}" for name in ("COORDINATOR_ADDRESS", "PORT", "NUM_SLICES", "SLICE_ID")),
    *(f"{name}_SOCKET_IFNAME" for name in ("GLOO", "NCCL", "TP")),
    "MASTER_PORT",
    "ACCELERATE_TORCH_DEVICE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_BLOCKING_WAIT",
    "JAX_PLATFORMS",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_CLIENT_MEM_FRACTION",
    "SWEEP_KEEP_VISIBLE_DEVICES",
)

# Not compared, because they are not the sweep's to choose.
LEFT_OUT = (
    "KMP_DUPLICATE_LIB_OK",  # threadpoolctl sets it when it is imported
    # jax sets these when it is imported, by what it finds on the machine
    "TF_CPP_MIN_LOG_LEVEL",
    "GRPC_VERBOSITY",
    "LIBTPU_INIT_ARGS",
    "TPU_LIBRARY_PATH",
    "TPU_ML_PLATFORM",
    "TPU_ML_PLATFORM_VERSION",
    "TPU_SKIP_MDS_QUERY",
    "SWEEP_SCRIPT",  # the program that runs the tests, if it has a file
    "MASTER_PORT",  # any that was free; compared between the ranks
)


@dataclass(frozen=True)
class TorchLike(Backend):
    """What the environment is told of torch, without the seconds that importing it takes."""

    framework: ClassVar[str] = "torch"
    visibility: ClassVar[str] = "share"


@dataclass(frozen=True)
class JaxLike(Backend):
    """The same for jax."""

    framework: ClassVar[str] = "jax"


@dataclass(frozen=True)
class SharingLike(TorchLike):
    """What torch is where nobody has chosen a backend."""

    sharing: ClassVar[str] = "share"
    sharing_notice: ClassVar[str] = "they talk by gloo"


def loop():
    """Write down what this rank has, and what a program that it starts has."""
    context = get_context()
    has = {
        "own": dict(os.environ),
        "inherited": dict(line.split("=", 1) for line in _lines(subprocess.check_output(["env", "-0"]))),
        "num_threads": context.get_num_threads(),
        "devices": context.get_device_indices(),
    }
    name = f"rank{context.get_world_rank()}.json"
    Path(context.get_trial_dir(), name).write_text(json.dumps(has), encoding="utf-8")


def _lines(data):
    return data.decode("utf-8", "surrogateescape").rstrip("\0").split("\0")


def plain_trial(config):
    """Do what a rank does, as a trial of one process."""
    loop()
    sweep.report(score=1.0)


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    for name in DECIDING:
        monkeypatch.delenv(name, raising=False)
    yield
    sweep.shutdown()


def run(trainable, tmp_path, *, name="run", **arguments):
    """Run a sweep; return for each trial its id and what its ranks wrote, in order."""
    analysis = sweep.run(trainable, storage_path=tmp_path, name=name, verbose=0, **arguments)
    written = []
    for trial in analysis.trials:
        files = sorted((tmp_path / name / trial.trial_id).glob("rank*.json"))
        written.append((trial.trial_id, [json.loads(file.read_text(encoding="utf-8")) for file in files]))
    return written


def run_one(trainable, tmp_path, **arguments):
    """Run a sweep of one trial; return what its ranks wrote."""
    ((_, ranks),) = run(trainable, tmp_path, **arguments)
    return ranks


def compare(ranks, tables, tmp_path, *, name="run", trial_id=None):
    """Check that the ranks have the driver's environment with the variables of `tables`, and nothing else.

    A table without the variable of a GPU is that of a rank to which all GPUs must be hidden.
    """
    trial_id = trial_id or next(path.parent.name for path in (tmp_path / name).glob("*/rank0.json"))
    assert len(ranks) == len(tables)
    for rank, table in zip(ranks, tables, strict=True):
        marks = {"SWEEP_EXPERIMENT": str(tmp_path / name), "SWEEP_TRIAL": trial_id, "SWEEP_ATTEMPT": "1"}
        marks["SWEEP_DRIVER"] = process_mark(os.getpid())
        marks["TUNE_ORIG_WORKING_DIR"] = os.getcwd()
        run_id = {"TORCHELASTIC_RUN_ID": trial_id} if "TORCHELASTIC_RUN_ID" in table else {}
        is_shown = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"} & table.keys()
        hidden = {} if is_shown or os.environ.get("SWEEP_KEEP_VISIBLE_DEVICES") == "1" else NO_GPU
        expected = {**os.environ, **marks, **hidden, **table, **run_id}
        expected = {key: value for key, value in expected.items() if value is not None and key not in LEFT_OUT}
        assert {key: value for key, value in rank["own"].items() if key not in LEFT_OUT} == expected
        assert rank["inherited"] == rank["own"]
    ports = {rank["own"].get("MASTER_PORT") for rank in ranks}
    assert len(ports) == 1
    is_meeting = all("MASTER_ADDR" in table for table in tables)
    assert all(port.isdecimal() and 0 < int(port) < 65536 for port in ports) if is_meeting else ports == {None}


def trainer(backend, **scaling):
    return DataParallelTrainer(loop, backend_config=backend, scaling_config=ScalingConfig(**scaling))


def test_without_gpus_anywhere_they_are_hidden_all_the_same(tmp_path):
    sweep.init(num_cpus=8, num_gpus=0)
    ranks = run_one(trainer(TorchLike(), num_workers=2, resources_per_worker={"CPU": 3}), tmp_path)
    compare(ranks, [{**torch(rank, 2), **threads(3)} for rank in range(2)], tmp_path)
    assert [(rank["num_threads"], rank["devices"]) for rank in ranks] == [(3, [])] * 2


@pytest.mark.parametrize(
    ("visibility", "tables", "devices"),
    [
        (None, [{**torch(rank, 2, f"cuda:{rank}"), **cuda("0,1")} for rank in range(2)], [[0], [1]]),
        (
            "isolate",
            [{**torch(rank, 2, "cuda:0", is_virtual=True), **cuda(f"{rank}")} for rank in range(2)],
            [[0], [0]],
        ),
    ],
    ids=["share", "isolate"],
)
def test_two_of_eight_gpus_are_shared_between_torch_workers_unless_they_are_isolated(
    tmp_path, visibility, tables, devices
):
    sweep.init(num_cpus=8, num_gpus=8)
    group = trainer(TorchLike(), num_workers=2, use_gpu=True, gpu_visibility=visibility)
    ranks = run_one(group, tmp_path)
    compare(ranks, [{**table, **threads(1)} for table in tables], tmp_path)
    assert [rank["devices"] for rank in ranks] == devices


ALL_CHIPS = dict.fromkeys(("TPU_VISIBLE_CHIPS", "TPU_CHIPS_PER_HOST_BOUNDS", "TPU_HOST_BOUNDS"))


def test_variables_of_init_reach_ranks_and_take_the_place_of_defaults(tmp_path):
    own = {"NCCL_SOCKET_IFNAME": "ens5", "OMP_NUM_THREADS": "2", "MY_OWN": "a b=c", "TO_BE_NEARER": "far"}
    sweep.init(num_cpus=8, num_gpus=0, runtime_env={"env_vars": own})
    group = DataParallelTrainer(
        loop,
        backend_config=TorchLike(),
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 4}),
        run_config=RunConfig(runtime_env={"env_vars": {"TO_BE_NEARER": "near", "GLOO_SOCKET_IFNAME": "ens6"}}),
    )
    ranks = run_one(group, tmp_path)
    given = {**own, "TO_BE_NEARER": "near", "GLOO_SOCKET_IFNAME": "ens6"}
    compare(ranks, [{**torch(rank, 2), **threads(2), **given} for rank in range(2)], tmp_path)
    assert [rank["num_threads"] for rank in ranks] == [2, 2]


def test_variables_of_init_reach_trials_of_one_process_until_they_are_taken_back(tmp_path):
    sweep.init(num_cpus=8, num_gpus=0, runtime_env={"env_vars": {"MY_OWN": "1", "OMP_NUM_THREADS": "3"}})
    ranks = run_one(plain_trial, tmp_path, name="with")
    compare(ranks, [{**threads(3), "MY_OWN": "1"}], tmp_path, name="with")
    assert ranks[0]["num_threads"] == 3
    assert "MY_OWN" not in os.environ
    sweep.shutdown()
    sweep.init(num_cpus=8, num_gpus=0)
    compare(run_one(plain_trial, tmp_path, name="without"), [threads(1)], tmp_path, name="without")


def loop_that_meets(config):
    """Set a variable, wait until the other trial has done so too, and write down what there is."""
    index, directory = config["index"], Path(config["directory"])
    context = get_context()
    os.environ[f"SET_BY_{index}_{context.get_world_rank()}"] = "1"
    os.environ["CUDA_DEVICE_ORDER"] = f"changed by {index}"
    if index < 2 and context.get_world_rank() == 0:
        # Opening a pipe returns when the other side opens it as well.
        for name in ("there", "and_back"):
            with open(directory / name, "r" if (name == "there") == (index == 0) else "w"):
                pass
    loop()


def test_no_trial_sees_what_another_sets_neither_beside_it_nor_after_it(tmp_path):
    for name in ("there", "and_back"):
        os.mkfifo(tmp_path / name)
    before = dict(os.environ)
    sweep.init(num_cpus=8, num_gpus=4)
    group = DataParallelTrainer(
        loop_that_meets,
        backend_config=TorchLike(),
        scaling_config=ScalingConfig(num_workers=2, use_gpu=True),
        train_loop_config={"directory": str(tmp_path)},
    )
    # Two at once on two GPUs each; the third takes over the devices and the process of the first that is done.
    space = {"train_loop_config": {"index": sweep.grid_search([0, 1, 2])}}
    written = run(group, tmp_path, config=space, name="three")
    shown = [ranks[0]["own"]["CUDA_VISIBLE_DEVICES"] for _, ranks in written]
    assert shown[:2] == ["0,1", "2,3"]
    assert shown[2] in shown[:2]
    for index, (trial_id, ranks) in enumerate(written):
        tables = [
            {
                **torch(rank, 2, f"cuda:{rank}"),
                **threads(1),
                "CUDA_VISIBLE_DEVICES": shown[index],
                "CUDA_DEVICE_ORDER": f"changed by {index}",
                f"SET_BY_{index}_{rank}": "1",
            }
            for rank in range(2)
        ]
        compare(ranks, tables, tmp_path, name="three", trial_id=trial_id)
    assert dict(os.environ) == before


def test_ranks_that_are_fresh_interpreters_have_the_same_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_HOST_BOUNDS", "2,2,1")
    sweep.init(num_cpus=8, num_gpus=0, num_tpus=4, runtime_env={"env_vars": {"MY_OWN": "1"}})
    group = trainer(JaxLike(), num_workers=1, use_tpu=True, resources_per_worker={"TPU": 4})
    ranks = run_one(group, tmp_path, start_method="spawn")
    expected = {**who(0, 1), **threads(1), **ALL_CHIPS, "JAX_PLATFORMS": "tpu", "MY_OWN": "1"}
    compare(ranks, [expected], tmp_path)


def test_workers_of_a_torch_trainer_have_what_torchrun_would_give_them(tmp_path):
    names = ["GPU-8a5b0001", "GPU-8a5b0002"]  # which no machine has, so that torch finds none of them anywhere
    sweep.init(num_cpus=8, gpu_ids=names)
    group = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2, use_gpu=True))
    ranks = run_one(group, tmp_path)
    shown = {"CUDA_VISIBLE_DEVICES": ",".join(names), **threads(1)}
    compare(ranks, [{**torch(rank, 2, f"cuda:{rank}"), **shown} for rank in range(2)], tmp_path)


def test_workers_with_shares_of_a_gpu_see_the_same_one_and_that_is_said(tmp_path, capsys):
    sweep.init(num_cpus=8, num_gpus=2)
    group = trainer(SharingLike(), num_workers=2, use_gpu=True, resources_per_worker={"GPU": 0.5})
    sweep.run(group, storage_path=tmp_path, name="run", verbose=1)
    (path,) = (tmp_path / "run").glob("*/rank0.json")
    ranks = [json.loads((path.parent / f"rank{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    own = {**cuda("0"), **threads(1), "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45"}
    own["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = None  # of a library that is not used
    compare(ranks, [{**torch(rank, 2, "cuda:0"), **own} for rank in range(2)], tmp_path)
    said = "workers of a group hold 0.5 of a GPU each and share one; they talk by gloo"
    assert f"sweep: {said}\n" in capsys.readouterr().err


def nested(config):
    """Run a group inside this trial, with a variable of its own set before."""
    os.environ["MINE"] = "set by the trial"
    scaling = ScalingConfig(**config["scaling"])
    result = DataParallelTrainer(loop, backend_config=SharingLike(), scaling_config=scaling).fit()
    assert result.path == os.path.join(get_context().get_trial_dir(), "fit_1")


@pytest.mark.parametrize(
    ("machine", "bundle", "scaling", "expected"),
    [
        (
            {"gpu_ids": ["GPU-a", "GPU-b"]},
            {"GPU": 1},
            {"num_workers": 4, "use_gpu": True, "resources_per_worker": {"GPU": 0.5}},
            [
                {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45", "LOCAL_RANK": rank}
                for rank in "0123"
            ],
        ),
        (
            {"gpu_ids": ["5", "7"]},
            {"GPU": 1},
            {"num_workers": 2, "use_gpu": True, "gpu_visibility": "isolate"},
            [{"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "LOCAL_RANK": "0"} for gpu in ("5", "7")],
        ),
        (
            {"num_tpus": 4, "tpu_type": "v6e"},
            {"TPU": 2},
            {"num_workers": 1, "use_tpu": True, "resources_per_worker": {"TPU": 2}},
            [{"TPU_VISIBLE_CHIPS": "0,1", "TPU_CHIPS_PER_HOST_BOUNDS": "1,2,1", "TPU_HOST_BOUNDS": "1,1,1"}],
        ),
        ({}, {"CPU": 2}, {"num_workers": 2, "resources_per_worker": {"CPU": 2}}, [{"OMP_NUM_THREADS": "2"}] * 2),
    ],
)
def test_ranks_of_a_group_inside_a_trial_see_their_part_of_what_it_holds(tmp_path, machine, bundle, scaling, expected):
    sweep.init(num_cpus=4, **machine)
    bundles = [{"CPU": 0}, *[bundle] * (1 if "TPU" in bundle else 2)]
    analysis = sweep.run(
        nested,
        config={"scaling": scaling},
        resources_per_trial=sweep.PlacementGroupFactory(bundles),
        storage_path=tmp_path,
        log_to_file="out.txt",
        verbose=0,
    )
    (trial,) = analysis.trials
    files = sorted(Path(trial.path).glob("fit_1/rank*.json"))
    ranks = [json.loads(file.read_text(encoding="utf-8"))["own"] for file in files]
    is_sharing = "workers of a group hold 0.5 of a GPU each and share one; they talk by gloo"
    said = Path(trial.path, "out.txt").read_text(encoding="utf-8")
    assert (f"sweep: {is_sharing}" in said) == ("XLA_PYTHON_CLIENT_MEM_FRACTION" in expected[0])
    for rank, wanted in zip(ranks, expected, strict=True):
        wanted = {"MINE": "set by the trial", "SWEEP_TRIAL": trial.trial_id, "SWEEP_ATTEMPT": "1", **wanted}
        assert {name: rank.get(name) for name in wanted} == wanted
        assert ("XLA_PYTHON_CLIENT_MEM_FRACTION" in rank) == ("XLA_PYTHON_CLIENT_MEM_FRACTION" in wanted)
