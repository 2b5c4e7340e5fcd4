"""A driver that is killed and started again. Arguments: a directory, steps of each of four trials.

Every step is reported with a small checkpoint. The time ends with the first report of a step that was not noted before.
"""

import json
import sys

import killed

import sweep

directory, steps = sys.argv[1], int(sys.argv[2])


def train(config):
    begun = sweep.get_checkpoint()

    def report(step, place):
        sweep.report({"step": step}, checkpoint=sweep.Checkpoint(place))

    killed.train(config["trial"], steps, directory, begun.path if begun else None, report)


def drive(is_resumed):
    analysis = sweep.run(
        train,
        config={"trial": sweep.grid_search(list(range(killed.TRIALS)))},
        metric="step",
        mode="max",
        verbose=0,
        storage_path=directory,
        name="killed",
        nodes=[sweep.Node(cpus=killed.TRIALS)],
        resume=is_resumed,
    )
    frames = analysis.trial_dataframes
    print(json.dumps({trial.config["trial"]: frames[trial.trial_id]["step"].tolist() for trial in analysis.trials}))


if killed.is_measuring():
    killed.measure(__file__, directory, steps)
else:
    drive(sys.argv[3] == "resume")
