"""No-op trials, each in a process of its own, without log files.

Arguments: a directory, trials of the run that is timed as a whole, trials of the one that is timed while it is steady,
and modules that the processes have imported beforehand.
"""

import json
import os
import sys
import time

os.environ["SWEEP_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"

import sweep

directory, whole, steady, preload = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]


def train(config):
    sweep.report(loss=config["x"], at=time.time())


def run(name, number):
    return sweep.run(
        train,
        config={"x": sweep.uniform(0, 1)},
        num_samples=number,
        metric="loss",
        mode="min",
        verbose=0,
        storage_path=directory,
        name=name,
        nodes=[sweep.Node(cpus=os.cpu_count())],
        preload=preload,
    )


began = time.time()
run("whole", whole)
whole_s = time.time() - began
at = sorted(trial.last_result["at"] for trial in run("steady", steady).trials)
assert len(at) == steady
skipped = steady // 5
print(
    json.dumps({"steady_per_s": (steady - skipped) / (at[-1] - at[skipped - 1]), "whole_per_s": whole / whole_s}),
)
