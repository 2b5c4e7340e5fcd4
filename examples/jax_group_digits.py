"""Tune a JAX model on scikit-learn's digits. Each trial is a group of two processes.

python examples/jax_group_digits.py
"""

import pickle
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import sweep
from sweep.train import Checkpoint, ScalingConfig, get_checkpoint, get_context, report
from sweep.train.jax import JaxTrainer


def loss_of(params, images, labels):
    """Return the mean cross-entropy of a two-layer network."""
    (w1, b1), (w2, b2) = params
    logits = jax.nn.relu(images @ w1 + b1) @ w2 + b2
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels])


@jax.jit
def step_of(params, images, labels, lr):
    """Return the parameters after one step. Images and labels are sharded, the rest is replicated."""
    return jax.tree.map(lambda p, g: p - lr * g, params, jax.grad(loss_of)(params, images, labels))


def train(config):
    """Train in every process of the group. Each process has one device; together they form one mesh."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
    train_x, valid_x, train_y, valid_y = (np.asarray(p, np.float32 if p.ndim == 2 else np.int32) for p in parts)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    spread, same = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    rank, size = jax.process_index(), jax.process_count()

    rng = np.random.default_rng(0)  # the same seed in every process, so the same first parameters and order
    width = config["width"]
    params = [
        (rng.normal(0, 0.12, (64, width)).astype(np.float32), np.zeros(width, np.float32)),
        (rng.normal(0, width**-0.5, (width, 10)).astype(np.float32), np.zeros(10, np.float32)),
    ]
    first_epoch = 0
    checkpoint = get_checkpoint()
    if checkpoint is not None:
        first_epoch, params = pickle.loads((Path(checkpoint.path) / "state.pkl").read_bytes())
    params = jax.device_put(params, same)

    for epoch in range(first_epoch, config["epochs"]):
        order = rng.permutation(len(train_x))[: len(train_x) // 64 * 64].reshape(-1, size, 64 // size)
        for rows in order[:, rank]:  # each process brings its own part of the batch
            batch = [jax.make_array_from_process_local_data(spread, part[rows]) for part in (train_x, train_y)]
            params = step_of(params, *batch, config["lr"])
        params = jax.block_until_ready(params)
        own = jax.tree.map(lambda p: np.asarray(p.addressable_data(0)), params)
        (w1, b1), (w2, b2) = own
        predicted = (np.maximum(valid_x @ w1 + b1, 0) @ w2 + b2).argmax(1)
        accuracy = float((predicted == valid_y).mean())
        with tempfile.TemporaryDirectory() as directory:
            stored = None
            if get_context().get_world_rank() == 0:
                (Path(directory) / "state.pkl").write_bytes(pickle.dumps((epoch + 1, own)))
                stored = Checkpoint(directory)
            report({"accuracy": accuracy, "epoch": epoch + 1}, checkpoint=stored)  # rank 0's metrics count


def main():
    sweep.init(num_cpus=4)  # two groups of two processes at a time
    analysis = sweep.run(
        JaxTrainer(train, train_loop_config={"epochs": 9}, scaling_config=ScalingConfig(num_workers=2)),
        config={
            "train_loop_config": {"lr": sweep.loguniform(1e-2, 1.0), "width": sweep.choice([32, 128])},
        },
        num_samples=4,
        metric="accuracy",
        mode="max",
        scheduler="asha",
        seed=1,
    )
    best = analysis.best_trial
    print(f"best accuracy {best.last_result['accuracy']:.4f} with {best.config['train_loop_config']}")


if __name__ == "__main__":
    main()
