"""Trials that change their config, and a param_space that is used twice."""

from ray import train, tune

space = {"lr": tune.choice([0.1, 0.2]), "model": {"width": 8, "layers": [1, 2]}, "epochs": 2}


def objective(config):
    lr = config.pop("lr")
    config["model"]["width"] *= 2
    config["model"]["layers"].append(3)
    config["extra"] = object()
    for _ in range(config["epochs"]):
        train.report({"lr": lr, "width": config["model"]["width"]})


for _ in range(2):
    results = tune.Tuner(objective, param_space=space, tune_config=tune.TuneConfig(num_samples=2)).fit()
    assert not results.errors, results.errors
    assert all(r.metrics["width"] == 16 for r in results)
    assert all(r.config["model"] == {"width": 8, "layers": [1, 2]} and "lr" in r.config for r in results)
assert space["model"] == {"width": 8, "layers": [1, 2]}
