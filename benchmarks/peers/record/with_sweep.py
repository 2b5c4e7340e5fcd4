"""What a report of one number adds to the record, in bytes. Arguments: a directory, reports of each of eight trials.

Two sweeps that differ in nothing but the number of reports: the difference of their files is that of the reports.
"""

import json
import sys
from pathlib import Path

import sweep

directory, number = sys.argv[1], int(sys.argv[2])


def train(config):
    for step in range(config["number"]):
        sweep.report(loss=1 / (step + 1))


sizes = []
for name, reports in (("few", number // 10), ("many", number)):
    analysis = sweep.run(
        train,
        config={"number": reports},
        num_samples=8,
        metric="loss",
        mode="min",
        verbose=0,
        storage_path=directory,
        name=name,
        nodes=[sweep.Node(cpus=8)],
    )
    assert all(trial.last_result["training_iteration"] == reports for trial in analysis.trials)
    sizes.append(sum(path.stat().st_size for path in Path(analysis.experiment_path).glob("sweep.db*")))
print(json.dumps({"bytes": (sizes[1] - sizes[0]) / (8 * (number - number // 10))}))
