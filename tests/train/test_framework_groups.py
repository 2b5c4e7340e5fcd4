"""Groups of torch, JAX and TensorFlow with real processes: few runs of many trials, as importing takes seconds."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

import sweep
from sweep.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, get_checkpoint, get_context, report
from sweep.train.jax import JaxTrainer
from sweep.train.tensorflow import TensorflowTrainer
from sweep.train.torch import DistributedTrainableCreator, TorchConfig, TorchTrainer

TWO = ScalingConfig(num_workers=2)


@pytest.fixture
def run(tmp_path):
    """Return `run(trainable)`: a sweep on a machine of four CPUs, whatever this one has."""

    def start(trainable, **arguments):
        return sweep.run(
            trainable, storage_path=tmp_path, **{"verbose": 0, "raise_on_failed_trial": False, **arguments}
        )

    sweep.init(num_cpus=4)
    yield start
    sweep.shutdown()


def listeners() -> list[str]:
    """Return the addresses on which this process listens."""
    found = psutil.Process().net_connections("tcp")
    return sorted({one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN})


def with_torch(rank):
    """Sum over the ranks; tell what the group is."""
    import torch
    import torch.distributed as dist

    total = torch.tensor([float(rank + 1)])
    dist.all_reduce(total)
    told = {"backend": dist.get_backend(), "world": dist.get_world_size(), "listens": listeners()}
    return total.item(), told


def with_jax(rank):
    """Sum and gather over the processes; tell what the group is."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("i",))
    summed = jax.jit(
        jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec())
    )
    gathered = multihost_utils.process_allgather(jnp.array([rank + 1])).ravel().tolist()
    local = multihost_utils.host_local_array_to_global_array(np.array([rank + 1.0]), mesh, PartitionSpec("i"))
    told = {"gathered": gathered, "devices": jax.device_count(), "processes": jax.process_count()}
    return float(np.asarray(summed(local).addressable_data(0))[0]), {**told, "platform": os.environ["JAX_PLATFORMS"]}


class LateTorch(TorchConfig):
    """Rank 1 joins late, and no other's loop may have begun by then: what ends early breaks the connections of gloo."""

    def start(self, rank):
        import torch.distributed as dist

        def join(*arguments, join=dist.init_process_group, **options):
            join(*arguments, **options)
            time.sleep(0.1)
            assert not begun().exists()

        if rank.rank == 1:
            dist.init_process_group = join
        super().start(rank)


def begun():
    """Return the file that says that a loop has begun in this attempt."""
    return Path(get_context().get_trial_dir(), f"begun_{os.environ['SWEEP_ATTEMPT']}")


def many_things(config):
    """Sum over the ranks, store shards, and do what the config says."""
    begun().touch()
    rank, start, checkpoint = get_context().get_world_rank(), 0, get_checkpoint()
    if checkpoint is not None:
        start = int(Path(checkpoint.path, "rank0").read_text())
        assert Path(checkpoint.path, "rank1").read_text() == str(start)
    for step in range(start, 3):
        total, told = config["summed"](rank)
        if config["what"] == "killed" and rank == 1 and step == 1 and start == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["what"] == "raised" and rank == 1 and step == 1:
            raise ValueError("boom")
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"rank{rank}").write_text(str(step + 1))
            report({"total": total, "start": start, **told}, checkpoint=Checkpoint(directory))


@pytest.mark.parametrize(
    ("trainer", "summed", "told"),
    [
        (
            partial(TorchTrainer, torch_config=LateTorch()),
            with_torch,
            {"backend": "gloo", "world": 2, "listens": ["127.0.0.1"]},
        ),
        pytest.param(
            JaxTrainer,
            with_jax,
            {"gathered": [1, 2], "devices": 2, "processes": 2, "platform": "cpu"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["torch", "jax"],
)
def test_ranks_sum_are_listening_on_loopback_only_and_start_again_from_their_merged_checkpoint(
    run, trainer, summed, told
):
    group = trainer(many_things, train_loop_config={"summed": summed}, scaling_config=TWO)
    space = {"train_loop_config": {"what": sweep.grid_search(["plain", "killed", "raised"])}}
    plain, killed, raised = run(group, config=space, max_failures=1).trials
    assert (plain.status, killed.status, raised.status) == ("TERMINATED", "TERMINATED", "ERROR")
    assert plain.last_result["total"] == killed.last_result["total"] == 3.0
    assert {name: plain.last_result[name] for name in told} == told
    assert (plain.last_result["start"], killed.last_result["start"]) == (0, 1)
    assert (plain.attempt, plain.losses) == (1, 0)
    assert (killed.attempt, killed.failures, killed.last_result["training_iteration"]) == (2, 1, 3)
    assert (raised.attempt, raised.failures) == (2, 2)
    assert str(raised.error) == "rank 1 of 2: ValueError: boom"
    assert "in many_things" in raised.error.traceback
    assert sorted(os.listdir(plain.checkpoint.path))[-2:] == ["rank0", "rank1"]
    assert not [name for name in os.listdir(killed.path) if name.startswith("tmp-")]


@pytest.mark.slow
def test_a_stopped_rank_is_found_by_the_hang_limit_and_the_stacks_of_all_are_in_their_logs(run):
    def stops_itself(config):
        import torch
        import torch.distributed as dist

        report(step=1)
        if get_context().get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(torch.ones(1))
        report(step=2)

    impatient = RunConfig(failure_config=FailureConfig(hang_timeout_s=1.0))
    (trial,) = run(TorchTrainer(stops_itself, scaling_config=TWO, run_config=impatient)).trials
    assert str(trial.error).startswith("no report within report_timeout_s=1: rank 1 is stopped (SIGSTOP)")
    logs = [Path(trial.path, f"rank{rank}.log").read_text() for rank in range(2)]
    assert "all_reduce" in logs[0]  # where the one that waited was
    assert "stops_itself" in logs[1]


@pytest.mark.slow
def test_sixteen_groups_at_once_find_their_own_ranks(run):
    def whose(config):
        import torch
        import torch.distributed as dist

        total = torch.tensor([float(config["number"])])
        dist.all_reduce(total)
        return {"total": total.item()}

    sweep.init(num_cpus=32)
    space = {"number": sweep.grid_search(list(range(16)))}
    analysis = run(DistributedTrainableCreator(whose, num_workers=2), config=space)
    assert [trial.last_result["total"] for trial in analysis.trials] == [2.0 * number for number in range(16)]


@pytest.mark.slow
def test_a_trainer_runs_alone_and_with_one_worker_in_this_process(run, tmp_path):
    def loop():
        import torch.distributed as dist

        report({"world": dist.get_world_size(), "pid_is": os.getpid()})

    run_config = RunConfig(name="alone", storage_path=tmp_path, verbose=0)
    assert TorchTrainer(loop, scaling_config=TWO, run_config=run_config).fit().metrics["world"] == 2
    (trial,) = run(TorchTrainer(loop), engine="inline").trials
    assert (trial.last_result["world"], trial.last_result["pid_is"]) == (1, os.getpid())


@pytest.mark.slow
def test_workers_with_shares_are_put_on_one_gpu_talk_by_gloo_and_say_so(run, capsys):
    def loop(config):
        import torch.distributed as dist

        report({"backend": dist.get_backend(), "visible": os.environ["CUDA_VISIBLE_DEVICES"]})

    sweep.init(num_cpus=4, num_gpus=2)
    scaling = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"GPU": 0.5})
    (trial,) = run(TorchTrainer(loop, scaling_config=scaling), verbose=1).trials
    assert "workers of a group hold 0.5 of a GPU each and share one; no backend was chosen" in capsys.readouterr().err
    assert (trial.last_result["backend"], trial.last_result["visible"]) == ("gloo", "0")
    log = Path(trial.path, "rank0.log").read_text(encoding="utf-8")
    assert "workers of this group share a GPU, which NCCL refuses: the workers talk by gloo" in log


def test_tensorflows_workers_know_the_addresses_of_all_on_loopback(run):
    def loop(config):
        told = os.environ["TF_CONFIG"]
        Path(get_context().get_trial_dir(), f"told{get_context().get_world_rank()}").write_text(told)

    (trial,) = run(TensorflowTrainer(loop, scaling_config=ScalingConfig(num_workers=3))).trials
    told = [json.loads(Path(trial.path, f"told{rank}").read_text()) for rank in range(3)]
    addresses = told[0]["cluster"]["worker"]
    assert len(set(addresses)) == 3
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert told == [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}} for i in range(3)]


@pytest.mark.slow
def test_two_tensorflow_workers_make_a_step_with_a_multi_worker_strategy(run):
    pytest.importorskip("tensorflow", reason="needs tensorflow-cpu, which is not installed")

    def loop(config):
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()

        @tf.function
        def step():
            def mine():
                context = tf.distribute.get_replica_context()
                return context.all_reduce("sum", tf.cast(context.replica_id_in_sync_group + 1, tf.float32))

            return strategy.run(mine)

        report(replicas=strategy.num_replicas_in_sync, total=float(strategy.experimental_local_results(step())[0]))

    result = run(TensorflowTrainer(loop, scaling_config=TWO)).trials[0].last_result
    assert (result["replicas"], result["total"]) == (2, 3.0)
