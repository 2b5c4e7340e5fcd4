"""Torch groups with real processes and gloo: few runs with many trials, because importing torch takes seconds."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

import sweep
from sweep.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, get_checkpoint, get_context, report
from sweep.train.torch import DistributedTrainableCreator, TorchConfig, TorchTrainer

LISTENING = "0A"


@pytest.fixture(autouse=True)
def declared():
    """A machine of four CPUs, whatever this one has."""
    sweep.init(num_cpus=4)
    yield
    sweep.shutdown()


def listeners(pid: int) -> set[str]:
    """Return the addresses on which a process listens, in the kernel's notation."""
    inodes = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found


def many_things(config):
    """Sum over the ranks, store shards, and do what the config says."""
    import torch
    import torch.distributed as dist

    rank = get_context().get_world_rank()
    start = 0
    checkpoint = get_checkpoint()
    if checkpoint is not None:
        start = int(Path(checkpoint.path, "rank0").read_text())
        assert Path(checkpoint.path, "rank1").read_text() == str(start)
    for step in range(start, 3):
        total = torch.tensor([float(rank + 1)])
        dist.all_reduce(total)
        if config["what"] == "killed" and rank == 1 and step == 1 and start == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["what"] == "raised" and rank == 1 and step == 1:
            raise ValueError("boom")
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"rank{rank}").write_text(str(step + 1))
            report(
                {
                    "total": total.item(),
                    "start": start,
                    "backend": dist.get_backend(),
                    "world": dist.get_world_size(),
                    "listens": sorted(listeners(os.getpid())),
                },
                checkpoint=Checkpoint(directory),
            )


def test_ranks_sum_over_gloo_are_listening_on_loopback_only_and_start_again_from_their_merged_checkpoint(tmp_path):
    analysis = sweep.run(
        TorchTrainer(many_things, scaling_config=ScalingConfig(num_workers=2)),
        config={"train_loop_config": {"what": sweep.grid_search(["plain", "killed", "raised"])}},
        max_failures=1,
        storage_path=tmp_path,
        raise_on_failed_trial=False,
        verbose=0,
    )
    plain, killed, raised = analysis.trials
    assert (plain.status, killed.status, raised.status) == ("TERMINATED", "TERMINATED", "ERROR")
    assert plain.last_result["total"] == killed.last_result["total"] == 3.0
    assert plain.last_result["backend"] == "gloo"
    assert plain.last_result["world"] == 2
    assert plain.last_result["listens"] == ["0100007F"]
    assert (plain.last_result["start"], killed.last_result["start"]) == (0, 1)
    assert (killed.attempt, killed.failures, killed.last_result["training_iteration"]) == (2, 1, 3)
    assert (raised.attempt, raised.failures) == (2, 2)
    assert str(raised.error) == "rank 1 of 2: ValueError: boom"
    assert raised.error.class_name == "ValueError"
    assert "in many_things" in raised.error.traceback
    assert sorted(os.listdir(plain.checkpoint.path))[-2:] == ["rank0", "rank1"]
    assert not [name for name in os.listdir(killed.path) if name.startswith("tmp-")]


def test_a_stopped_rank_is_found_by_the_hang_limit_and_the_stacks_of_all_are_in_their_logs(tmp_path):
    def stops_itself(config):
        import torch
        import torch.distributed as dist

        report(step=1)
        if get_context().get_world_rank() == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(torch.ones(1))
        report(step=2)

    trainer = TorchTrainer(
        stops_itself,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(failure_config=FailureConfig(hang_timeout_s=1.0)),
    )
    analysis = sweep.run(trainer, storage_path=tmp_path, raise_on_failed_trial=False, verbose=0)
    (trial,) = analysis.trials
    assert str(trial.error).startswith("no report within report_timeout_s=1: rank 1 is stopped (SIGSTOP)")
    logs = [Path(trial.path, f"rank{rank}.log").read_text() for rank in range(2)]
    assert "all_reduce" in logs[0]  # where the one that waited was
    assert "stops_itself" in logs[1]


def test_sixteen_groups_at_once_find_their_own_ranks(tmp_path):
    def whose(config):
        import torch
        import torch.distributed as dist

        total = torch.tensor([float(config["number"])])
        dist.all_reduce(total)
        return {"total": total.item()}

    sweep.init(num_cpus=32)
    analysis = sweep.run(
        DistributedTrainableCreator(whose, num_workers=2),
        config={"number": sweep.grid_search(list(range(16)))},
        storage_path=tmp_path,
        verbose=0,
    )
    assert [trial.last_result["total"] for trial in analysis.trials] == [2.0 * number for number in range(16)]


def test_a_trainer_runs_alone_and_with_one_worker_in_this_process(tmp_path):
    def loop():
        import torch.distributed as dist

        report({"world": dist.get_world_size(), "pid_is": os.getpid()})

    run_config = RunConfig(name="alone", storage_path=tmp_path, verbose=0)
    result = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=run_config).fit()
    assert result.metrics["world"] == 2
    analysis = sweep.run(TorchTrainer(loop), engine="inline", storage_path=tmp_path, verbose=0)
    assert analysis.trials[0].last_result["world"] == 1
    assert analysis.trials[0].last_result["pid_is"] == os.getpid()


def test_workers_with_shares_are_put_on_one_gpu_talk_by_gloo_and_say_so(tmp_path, capsys):
    def loop(config):
        import torch.distributed as dist

        report({"backend": dist.get_backend(), "visible": os.environ["CUDA_VISIBLE_DEVICES"]})

    sweep.init(num_cpus=4, num_gpus=2)
    scaling = ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"GPU": 0.5})
    analysis = sweep.run(TorchTrainer(loop, scaling_config=scaling), storage_path=tmp_path, verbose=1)
    assert "workers of a group hold 0.5 of a GPU each and share one; no backend was chosen" in capsys.readouterr().err
    (trial,) = analysis.trials
    assert (trial.last_result["backend"], trial.last_result["visible"]) == ("gloo", "0")
    assert "workers of this group share a GPU, which NCCL refuses: the workers talk by gloo" in Path(
        trial.path, "rank0.log"
    ).read_text(encoding="utf-8")
    sweep.init(num_cpus=4, num_gpus=1)
    nccl = TorchTrainer(loop, scaling_config=scaling, torch_config=TorchConfig(backend="nccl"))
    with pytest.raises(sweep.errors.ResourceError, match="own"):
        sweep.run(nccl, storage_path=tmp_path, name="nccl", verbose=0)
    assert not (tmp_path / "nccl").exists()
