"""No-op trials in kept processes, with log files. Arguments: a directory, trials."""

import json
import os
import sys
import time

import sweep

directory, number = sys.argv[1], int(sys.argv[2])


def train(config):
    sweep.report(loss=config["x"], at=time.time())


began = time.time()
analysis = sweep.run(
    train,
    config={"x": sweep.uniform(0, 1)},
    num_samples=number,
    metric="loss",
    mode="min",
    verbose=0,
    storage_path=directory,
    reuse_actors=True,
    nodes=[sweep.Node(cpus=os.cpu_count())],
)
whole_s = time.time() - began
at = sorted(trial.last_result["at"] for trial in analysis.trials)
assert len(at) == number
skipped = number // 5
print(
    json.dumps({"steady_per_s": (number - skipped) / (at[-1] - at[skipped - 1]), "whole_per_s": number / whole_s}),
)
