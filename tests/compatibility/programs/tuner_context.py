"""Everything a trial can ask its context."""

import os

from ray import train, tune


def objective(config):
    context = train.get_context()
    assert tune.get_context().get_trial_id() == context.get_trial_id()
    train.report(
        {
            "id": context.get_trial_id(),
            "name": context.get_trial_name(),
            "dir": context.get_trial_dir(),
            "experiment": context.get_experiment_name(),
            "cpu": context.get_trial_resources().required_resources["CPU"],
            "world": context.get_world_size(),
            "rank": context.get_world_rank(),
        }
    )


results = tune.Tuner(
    tune.with_resources(objective, {"cpu": 2}),
    param_space={"a": tune.grid_search([1, 2])},
    run_config=train.RunConfig(name="ctx", storage_path=os.path.abspath("out")),
).fit()
assert not results.errors, results.errors
for r in results:
    assert r.metrics["id"] == r.metrics["trial_id"]
    assert r.metrics["name"].startswith("objective_") and r.metrics["id"] in r.metrics["name"]
    assert os.path.isdir(r.metrics["dir"])
    assert r.metrics["experiment"] == "ctx" and r.metrics["cpu"] == 2
    assert r.metrics["world"] == 1 and r.metrics["rank"] == 0
assert tune.get_checkpoint if hasattr(tune, "get_checkpoint") else True
