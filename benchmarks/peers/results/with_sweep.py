"""Eight trials that report as fast as they can, with log files. Arguments: a directory, reports of each trial.

The time is that from the first report's beginning to the last one's end by the trials' own clocks.
"""

import json
import sys
import time
from pathlib import Path

import sweep
from sweep.record.reader import ExperimentReader

directory, number = Path(sys.argv[1]), int(sys.argv[2])


def train(config):
    began = time.time()
    for step in range(number):
        sweep.report(loss=1 / (step + 1))
    (directory / f"times-{config['reporter']}").write_text(f"{began} {time.time()}")


analysis = sweep.run(
    train,
    config={"reporter": sweep.grid_search(list(range(8)))},
    metric="loss",
    mode="min",
    verbose=0,
    storage_path=directory,
    nodes=[sweep.Node(cpus=8)],
)
times = [[float(word) for word in path.read_text().split()] for path in directory.glob("times-*")]
assert len(times) == 8
kept = sum(1 for _ in ExperimentReader(analysis.experiment_path).results())
assert kept == 8 * number, kept
print(json.dumps({"per_s": kept / (max(end for _, end in times) - min(began for began, _ in times))}))
