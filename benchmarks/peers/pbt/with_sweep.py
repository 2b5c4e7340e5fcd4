"""The problem of Tune's PBT example with all members as lanes. Arguments: a directory, members, iterations.

The best learning rate rises with the accuracy up to half of the way, and falls again. What is counted begins with the
call, and so has the import of jax in the worker, and compiling.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp

import sweep

directory, members, iterations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
LR = sweep.uniform(0.0001, 0.02)


class Climb(sweep.VectorTrainable):
    num_lanes = members

    def init(self):
        return {"accuracy": jnp.zeros(())}

    def step(self, accuracy, lr, key):
        best = jnp.clip(0.01 - 0.01 * jnp.abs(accuracy - 100) / 100, 0.001, 0.01)
        error = jnp.maximum(lr, best) / jnp.minimum(lr, best)
        one, two = jax.random.split(key)
        change = jnp.where(error < 3, 1 / error, jnp.where(lr > best, 3 - error, 0.0))
        accuracy = jnp.maximum(0.0, accuracy + change * jax.random.uniform(one) + 2 * jax.random.normal(two))
        return accuracy, {"mean_accuracy": accuracy, "cur_lr": lr, "optimal_lr": best, "q_err": error}


began = time.time()
analysis = sweep.run(
    Climb,
    config={"lr": LR},
    num_samples=members,
    metric="mean_accuracy",
    mode="max",
    scheduler=sweep.PopulationBasedTraining(perturbation_interval=5, hyperparam_mutations={"lr": LR}),
    stop={"training_iteration": iterations},
    checkpoint_config=sweep.CheckpointConfig(checkpoint_frequency=5, num_to_keep=4),
    storage_path=directory,
    verbose=0,
)
whole_s = time.time() - began
assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [iterations] * members
print(json.dumps({"per_s": members * iterations / whole_s, "whole_s": whole_s}))
