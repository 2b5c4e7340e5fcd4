"""Tune a jax MLP on scikit-learn's digits: a class trainable that is saved on demand and stopped early by ASHA.

python examples/jax_digits.py
"""

import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import sweep


def loss_of(params, images, labels):
    """Return the mean cross-entropy of a two-layer network."""
    (w1, b1), (w2, b2) = params
    logits = jax.nn.relu(images @ w1 + b1) @ w2 + b2
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels])


@jax.jit
def epoch_of(params, velocity, batches_x, batches_y, lr, momentum):
    """Return parameters and velocity after one pass over the batches of images and labels."""

    def update(state, batch):
        params, velocity = state
        gradient = jax.grad(loss_of)(params, *batch)
        velocity = jax.tree.map(lambda v, g: momentum * v - lr * g, velocity, gradient)
        return (jax.tree.map(lambda p, v: p + v, params, velocity), velocity), None

    return jax.lax.scan(update, (params, velocity), (batches_x, batches_y))[0]


class Digits(sweep.Trainable):
    def setup(self, config):
        images, labels = load_digits(return_X_y=True)
        parts = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
        self.train_x, self.valid_x, self.train_y, self.valid_y = map(np.asarray, parts)
        one, two = jax.random.split(jax.random.key(0))
        width = config["width"]
        self.params = [
            (jax.random.normal(one, (64, width)) / 8.0, jnp.zeros(width)),
            (jax.random.normal(two, (width, 10)) / np.sqrt(width), jnp.zeros(10)),
        ]
        self.velocity = jax.tree.map(jnp.zeros_like, self.params)
        self.rng = np.random.default_rng(0)

    def step(self):
        order = self.rng.permutation(len(self.train_x))[: len(self.train_x) // 32 * 32].reshape(-1, 32)
        self.params, self.velocity = epoch_of(
            self.params,
            self.velocity,
            self.train_x[order],
            self.train_y[order],
            self.config["lr"],
            self.config["momentum"],
        )
        (w1, b1), (w2, b2) = self.params
        predicted = jnp.argmax(jax.nn.relu(self.valid_x @ w1 + b1) @ w2 + b2, axis=1)
        return {"accuracy": float((predicted == self.valid_y).mean())}

    def save_checkpoint(self, checkpoint_dir):
        state = jax.tree.map(np.asarray, (self.params, self.velocity))
        Path(checkpoint_dir, "state.pkl").write_bytes(pickle.dumps(state))

    def load_checkpoint(self, checkpoint_dir):
        self.params, self.velocity = pickle.loads(Path(checkpoint_dir, "state.pkl").read_bytes())


def main():
    analysis = sweep.run(
        Digits,
        config={
            "lr": sweep.loguniform(1e-3, 1.0),
            "momentum": sweep.uniform(0.0, 0.95),
            "width": sweep.choice([32, 64, 128]),
        },
        num_samples=12,
        metric="accuracy",
        mode="max",
        scheduler=sweep.ASHAScheduler(max_t=12, reduction_factor=3),
        stop={"training_iteration": 12},
        seed=0,
    )
    print(f"best accuracy {analysis.best_result['accuracy']:.4f} with {analysis.best_config}")
    return analysis


if __name__ == "__main__":
    main()
