"""TensorFlow groups: what each worker is told, and one real step where TensorFlow is installed."""

from __future__ import annotations

import json
import os

import pytest

import sweep
from sweep.train import ScalingConfig, report
from sweep.train.tensorflow import TensorflowTrainer


@pytest.fixture(autouse=True)
def declared():
    """A machine of four CPUs, whatever this one has."""
    sweep.init(num_cpus=4)
    yield
    sweep.shutdown()


def test_every_worker_knows_the_addresses_of_all_on_loopback(tmp_path):
    def loop(config):
        told = json.loads(os.environ["TF_CONFIG"])
        with open(f"{sweep.get_context().get_trial_dir()}/told{told['task']['index']}", "w") as file:
            json.dump(told, file)
        report(workers=len(told["cluster"]["worker"]))

    analysis = sweep.run(
        TensorflowTrainer(loop, scaling_config=ScalingConfig(num_workers=3)), storage_path=tmp_path, verbose=0
    )
    (trial,) = analysis.trials
    told = []
    for rank in range(3):
        with open(f"{trial.path}/told{rank}") as file:
            told.append(json.load(file))
    addresses = told[0]["cluster"]["worker"]
    assert len(set(addresses)) == 3
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert told == [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}} for i in range(3)]


@pytest.mark.slow
def test_two_workers_make_a_step_with_a_multi_worker_strategy(tmp_path):
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

    analysis = sweep.run(
        TensorflowTrainer(loop, scaling_config=ScalingConfig(num_workers=2)),
        storage_path=tmp_path,
        verbose=0,
    )
    result = analysis.trials[0].last_result
    assert (result["replicas"], result["total"]) == (2, 3.0)
