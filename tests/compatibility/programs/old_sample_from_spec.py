"""Values that hang on other values through spec.config, attribute and item wise, and plain numpy draws."""

import numpy as np
from ray import tune


def objective(config):
    assert config["batch"] == config["lr"] * 1000
    tune.report(loss=config["lr"] + config["optim"]["momentum"])


analysis = tune.run(
    objective,
    config={
        "lr": tune.sample_from(lambda spec: 10 ** (-10 * np.random.rand())),
        "batch": tune.sample_from(lambda spec: spec.config.lr * 1000),
        "optim": {
            "kind": tune.choice(["sgd", "adam"]),
            "momentum": tune.sample_from(lambda spec: 0.9 if spec.config.optim.kind == "sgd" else 0.0),
        },
        "again": tune.sample_from(lambda spec: spec.config["optim"]["kind"].upper()),
        "plain": tune.sample_from(lambda _: np.random.uniform(100)),
    },
    num_samples=6,
    metric="loss",
    mode="min",
)
for trial in analysis.trials:
    config = trial.config
    assert config["optim"]["momentum"] == (0.9 if config["optim"]["kind"] == "sgd" else 0.0)
    assert config["again"] == config["optim"]["kind"].upper()
    assert 1 <= config["plain"] <= 100
assert len({trial.config["lr"] for trial in analysis.trials}) == 6
