"""Reports with a checkpoint of 1 MB each, all kept. Arguments: a directory, reports of each of four trials."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import sweep

directory, number = Path(sys.argv[1]), int(sys.argv[2])
TRIALS = 4


def train(config):
    weights = os.urandom(1_000_000)
    began = time.time()
    for step in range(number):
        with tempfile.TemporaryDirectory(dir=directory) as place:
            Path(place, "model.bin").write_bytes(weights)
            sweep.report({"loss": 1 / (step + 1)}, checkpoint=sweep.Checkpoint(place))
    (directory / f"times-{config['trial']}").write_text(f"{began} {time.time()}")


analysis = sweep.run(
    train,
    config={"trial": sweep.grid_search(list(range(TRIALS)))},
    metric="loss",
    mode="min",
    verbose=0,
    storage_path=directory,
    name="checkpoints",
    nodes=[sweep.Node(cpus=TRIALS)],
)
times = [[float(word) for word in path.read_text().split()] for path in directory.glob("times-*")]
assert len(times) == TRIALS
kept = len(list(Path(analysis.experiment_path).rglob("model.bin")))
assert kept == TRIALS * number, kept
print(json.dumps({"per_s": kept / (max(end for _, end in times) - min(began for began, _ in times))}))
