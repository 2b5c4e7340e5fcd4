"""Sleeping trials on eight GPUs that are declared, packed by what each asks for. Arguments: a directory, trials.

The bound is what no packing can beat: the GPU-seconds of all trials over eight GPUs. The time is that of the whole run.
"""

import json
import sys
import time

import sweep

directory, number = sys.argv[1], int(sys.argv[2])
GPUS = 8


def seconds(config):
    return 0.2 + 0.2 * (config["number"] * 7919 % 101) / 100


def train(config):
    time.sleep(seconds(config))
    sweep.report(loss=0.0)


found = {}
for name, sizes in (("half", [0.5]), ("one", [1]), ("two", [2]), ("mixed", [0.5, 1, 2])):

    def gpus(config, sizes=sizes):
        return sizes[config["number"] % len(sizes)]

    configs = [{"number": each} for each in range(number)]
    began = time.time()
    analysis = sweep.run(
        train,
        config={"number": sweep.grid_search(list(range(number)))},
        resources_per_trial=lambda config, gpus=gpus: {"cpu": 1, "gpu": gpus(config)},
        nodes=[sweep.Node(cpus=2 * GPUS, devices=tuple(sweep.Device(str(index)) for index in range(GPUS)))],
        verbose=0,
        storage_path=directory,
        name=name,
    )
    wall_s = time.time() - began
    assert len(analysis.trials) == number
    found[f"{name}_ratio"] = wall_s / (sum(seconds(config) * gpus(config) for config in configs) / GPUS)
print(json.dumps(found))
