"""ASHA over trials of up to 81 epochs of 5 ms. Arguments: a directory, trials, `fresh` or `warm`.

Ideal is what the epochs that were trained take on the CPUs that there are, with nothing between them.
"""

import json
import os
import sys
import time

import sweep

directory, number, is_warm = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "warm"


def train(config):
    for epoch in range(1, 82):
        time.sleep(0.005)
        sweep.report(loss=abs(config["x"] - 0.3) + 1 / epoch)


began = time.time()
analysis = sweep.run(
    train,
    config={"x": sweep.uniform(0, 1)},
    num_samples=number,
    metric="loss",
    mode="min",
    scheduler=sweep.ASHAScheduler(max_t=81, grace_period=1, reduction_factor=3),
    verbose=0,
    storage_path=directory,
    reuse_actors=is_warm,
    nodes=[sweep.Node(cpus=os.cpu_count())],
)
wall_s = time.time() - began
epochs = sum(trial.last_result["training_iteration"] for trial in analysis.trials)
print(json.dumps({"ratio": wall_s / (epochs * 0.005 / os.cpu_count()), "wall_s": wall_s, "epochs": epochs}))
