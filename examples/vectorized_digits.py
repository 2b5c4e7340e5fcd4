"""Train a thousand jax MLPs on scikit-learn's digits as lanes of one process: `sweep.VectorTrainable` under ASHA.

python examples/vectorized_digits.py
"""

import jax
import jax.numpy as jnp
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import sweep


def logits_of(params, images):
    """Return the logits of a two-layer network."""
    return jax.nn.relu(images @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


class Digits(sweep.VectorTrainable):
    batch_size = 64
    steps_per_report = 21  # an epoch

    def split(self):
        images, labels = load_digits(return_X_y=True)
        return train_test_split(
            (images / 16).astype("float32"), labels, test_size=0.25, random_state=0, stratify=labels
        )

    def data(self):
        images, _, labels, _ = self.split()
        return {"images": images, "labels": labels}

    def validation(self):
        _, images, _, labels = self.split()
        return {"images": images, "labels": labels}

    def init(self, key, config):
        one, two = jax.random.split(key)
        params = {
            "w1": jax.random.normal(one, (64, 64)) / 8,
            "b1": jnp.zeros(64),
            "w2": jax.random.normal(two, (64, 10)) / 8,
            "b2": jnp.zeros(10),
        }
        return {"params": params, "velocity": jax.tree.map(jnp.zeros_like, params)}

    def step(self, state, config, batch):
        def loss_of(params):
            log_odds = jax.nn.log_softmax(logits_of(params, batch["images"]))
            return -jnp.mean(jnp.take_along_axis(log_odds, batch["labels"][:, None], axis=1))

        loss, gradient = jax.value_and_grad(loss_of)(state["params"])
        velocity = jax.tree.map(lambda v, g: config["momentum"] * v - config["lr"] * g, state["velocity"], gradient)
        return {"params": jax.tree.map(jnp.add, state["params"], velocity), "velocity": velocity}, {"loss": loss}

    def evaluate(self, state, batch):
        return {"accuracy": jnp.mean(logits_of(state["params"], batch["images"]).argmax(axis=1) == batch["labels"])}


def main():
    analysis = sweep.run(
        Digits,
        config={"lr": sweep.loguniform(1e-4, 1.0), "momentum": sweep.uniform(0.0, 0.99)},
        num_samples=1000,
        metric="accuracy",
        mode="max",
        scheduler=sweep.ASHAScheduler(max_t=10, grace_period=1, reduction_factor=3),
        seed=0,
    )
    print(f"best accuracy {analysis.best_result['accuracy']:.4f} with {analysis.best_config}")
    return analysis


if __name__ == "__main__":
    main()
