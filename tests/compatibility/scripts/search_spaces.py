"""Search spaces: every function, nested, conditional, and a grid crossed with samples."""

import numpy as np

import sweep as tune


def objective(config):
    assert -5 <= config["uniform"] < -1
    assert round(config["quniform"] / 0.2) * 0.2 - config["quniform"] < 1e-9
    assert 1e-4 <= config["loguniform"] < 1e-1
    assert round(config["qloguniform"] / 5e-5, 6) == round(config["qloguniform"] / 5e-5)
    assert -9 <= config["randint"] < 15
    assert config["qrandint"] % 3 == 0
    assert 1 <= config["lograndint"] < 10
    assert config["qlograndint"] % 2 == 0
    assert config["choice"] in ("a", "b", "c")
    assert config["func"] == config["uniform"] * 0.01
    assert config["by_spec"] == config["nested"]["units"] * 2
    assert len(config["layers"]) == config["nested"]["depth"]
    assert isinstance(config["plain"], int)
    tune.report({"score": config["nested"]["lr"] + config["randn"], "grid": config["grid"]})


space = {
    "uniform": tune.uniform(-5, -1),
    "quniform": tune.quniform(3.2, 5.4, 0.2),
    "loguniform": tune.loguniform(1e-4, 1e-1),
    "qloguniform": tune.qloguniform(1e-4, 1e-1, 5e-5),
    "randn": tune.randn(10, 2),
    "qrandn": tune.qrandn(10, 2, 0.2),
    "randint": tune.randint(-9, 15),
    "qrandint": tune.qrandint(-21, 12, 3),
    "lograndint": tune.lograndint(1, 10),
    "qlograndint": tune.qlograndint(2, 10, 2),
    "choice": tune.choice(["a", "b", "c"]),
    "func": tune.sample_from(lambda config: config["uniform"] * 0.01),
    "by_spec": tune.sample_from(lambda spec: spec.config.nested.units * 2),
    "plain": tune.sample_from(lambda _: int(np.random.randint(10))),
    "grid": tune.grid_search([32, 64]),
    "nested": {
        "lr": tune.loguniform(1e-3, 1),
        "units": tune.choice([16, 32]),
        "depth": tune.randint(1, 4),
        "optimizer": tune.grid_search(["sgd", "adam"]),
    },
    "layers": tune.sample_from(lambda config: [config["nested"]["units"]] * config["nested"]["depth"]),
}

tuner = tune.Tuner(objective, param_space=space, tune_config=tune.TuneConfig(num_samples=2, metric="score", mode="max"))
results = tuner.fit()
assert len(results) == 8
assert not results.errors
combinations = [(r.config["grid"], r.config["nested"]["optimizer"]) for r in results]
assert sorted(combinations) == sorted([(g, o) for g in (32, 64) for o in ("sgd", "adam")] * 2)
frame = results.get_dataframe()
assert {"config/nested/lr", "config/grid", "score"} <= set(frame.columns)
print("best", results.get_best_result().config["grid"])
