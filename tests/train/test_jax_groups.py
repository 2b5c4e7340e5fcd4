"""JAX groups with real processes: collectives on CPUs, one device each."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

import sweep
from sweep.train import Checkpoint, ScalingConfig, get_checkpoint, get_context, report
from sweep.train.jax import JaxTrainer


@pytest.fixture(autouse=True)
def declared():
    """A machine of four CPUs, whatever this one has."""
    sweep.init(num_cpus=4)
    yield
    sweep.shutdown()


def many_things(config):
    """Sum and gather over the processes, store shards, and do what the config says."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, PartitionSpec

    rank = get_context().get_world_rank()
    start = 0
    checkpoint = get_checkpoint()
    if checkpoint is not None:
        start = int(Path(checkpoint.path, "rank0").read_text())
    mesh = Mesh(np.array(jax.devices()), ("i",))
    summed = jax.jit(
        jax.shard_map(lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec())
    )
    for step in range(start, 2):
        gathered = multihost_utils.process_allgather(jnp.array([rank + 1])).ravel().tolist()
        local = multihost_utils.host_local_array_to_global_array(np.array([rank + 1.0]), mesh, PartitionSpec("i"))
        total = float(np.asarray(summed(local).addressable_data(0))[0])
        if config["what"] == "killed" and rank == 1 and step == 1 and start == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["what"] == "raised" and rank == 1:
            raise ValueError("boom")
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"rank{rank}").write_text(str(step + 1))
            report(
                {
                    "gathered": gathered,
                    "total": total,
                    "start": start,
                    "devices": jax.device_count(),
                    "processes": jax.process_count(),
                    "platform": os.environ["JAX_PLATFORMS"],
                },
                checkpoint=Checkpoint(directory),
            )


def test_processes_sum_and_gather_and_start_again_from_their_merged_checkpoint(tmp_path):
    analysis = sweep.run(
        JaxTrainer(many_things, scaling_config=ScalingConfig(num_workers=2)),
        config={"train_loop_config": {"what": sweep.grid_search(["plain", "killed", "raised"])}},
        max_failures=1,
        storage_path=tmp_path,
        raise_on_failed_trial=False,
        verbose=0,
    )
    plain, killed, raised = analysis.trials
    assert (plain.status, killed.status, raised.status) == ("TERMINATED", "TERMINATED", "ERROR")
    for trial in (plain, killed):
        assert trial.last_result["gathered"] == [1, 2]
        assert trial.last_result["total"] == 3.0
        assert (trial.last_result["devices"], trial.last_result["processes"]) == (2, 2)
    assert plain.last_result["platform"] == "cpu"
    assert (killed.attempt, killed.last_result["start"], killed.last_result["training_iteration"]) == (2, 1, 2)
    assert str(raised.error) == "rank 1 of 2: ValueError: boom"


def test_a_stop_rule_ends_all_processes_at_the_same_report(tmp_path):
    def loop(config):
        try:
            for step in range(100):
                report(step=step)
        finally:
            Path(get_context().get_trial_dir(), f"unwound{get_context().get_world_rank()}").touch()

    analysis = sweep.run(
        JaxTrainer(loop, scaling_config=ScalingConfig(num_workers=2)),
        stop={"step": 2},
        storage_path=tmp_path,
        verbose=0,
    )
    (trial,) = analysis.trials
    assert trial.last_result["step"] == 2
    assert Path(trial.path, "unwound0").exists()
    assert Path(trial.path, "unwound1").exists()
