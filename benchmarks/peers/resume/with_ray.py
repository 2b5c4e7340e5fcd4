"""A driver that is killed and started again. Arguments: a directory, steps of each of four trials.

Every step is reported with a small checkpoint. The time ends with the first report of a step that was not noted before.
"""

import json
import logging
import sys

import killed

directory, steps = sys.argv[1], int(sys.argv[2])


def train(config):
    from ray import tune

    begun = tune.get_checkpoint()

    def report(step, place):
        tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(place))

    killed.train(config["trial"], steps, directory, begun.path if begun else None, report)


def drive(is_resumed):
    import ray
    from ray import tune

    ray.init(
        address="local",
        num_cpus=killed.TRIALS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    if is_resumed:
        tuner = tune.Tuner.restore(f"{directory}/killed", train)
    else:
        tuner = tune.Tuner(
            train,
            param_space={"trial": tune.grid_search(list(range(killed.TRIALS)))},
            tune_config=tune.TuneConfig(metric="step", mode="max"),
            run_config=tune.RunConfig(storage_path=directory, name="killed", verbose=0),
        )
    grid = tuner.fit()
    assert not grid.errors
    held = {result.config["trial"]: [int(step) for step in result.metrics_dataframe["step"]] for result in grid}
    ray.shutdown()
    print(json.dumps(held))


if killed.is_measuring():
    killed.measure(__file__, directory, steps)
else:
    drive(sys.argv[3] == "resume")
