"""The problem of Tune's PBT example with all members as lanes, and with some in kept processes.

Arguments: a directory, members, iterations, members in processes. The best learning rate rises with the accuracy up to
half of the way, and falls again. What is counted begins with the call, and so has the import of jax in workers, and
compiling.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp

import sweep

directory = sys.argv[1]
members, iterations, few = map(int, sys.argv[2:5])
LR = sweep.uniform(0.0001, 0.02)


class Climb(sweep.VectorTrainable):
    num_lanes = members

    def init(self):
        return {"accuracy": jnp.zeros(())}

    def step(self, accuracy, lr, key):
        best = jnp.clip(0.01 - 0.01 * jnp.abs(accuracy - 100) / 100, 0.001, 0.01)
        error = jnp.maximum(lr, best) / jnp.minimum(lr, best)
        drawn = jax.random.normal(key, (2,))
        change = jnp.where(error < 3, 1 / error, jnp.where(lr > best, 3 - error, 0.0))
        accuracy = jnp.maximum(0.0, accuracy + change * jax.scipy.stats.norm.cdf(drawn[0]) + 2 * drawn[1])
        return accuracy, {"mean_accuracy": accuracy, "cur_lr": lr, "optimal_lr": best, "q_err": error}


def per_s(number, **how):
    began = time.time()
    analysis = sweep.run(
        Climb,
        config={"lr": LR},
        num_samples=number,
        metric="mean_accuracy",
        mode="max",
        scheduler=sweep.PopulationBasedTraining(perturbation_interval=5, hyperparam_mutations={"lr": LR}),
        stop={"training_iteration": iterations},
        checkpoint_config=sweep.CheckpointConfig(checkpoint_frequency=5, num_to_keep=4),
        storage_path=directory,
        verbose=0,
        **how,
    )
    spent_s = time.time() - began
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [iterations] * number
    return number * iterations / spent_s


lanes = per_s(members)
print(json.dumps({"per_s": lanes, "ratio": lanes / per_s(few, engine="local", reuse_actors=True)}))
