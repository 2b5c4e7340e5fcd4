"""LightGBM with Tune's callback, checkpoints of the booster included."""

import os

import lightgbm as lgb
from ray import tune
from ray.tune.integration.lightgbm import TuneReportCheckpointCallback
from ray.tune.schedulers import ASHAScheduler
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split


def train_breast_cancer(config):
    data, target = load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(data, target, test_size=0.25, random_state=0)
    lgb.train(
        config,
        lgb.Dataset(train_x, label=train_y),
        num_boost_round=4,
        valid_sets=[lgb.Dataset(test_x, label=test_y)],
        valid_names=["eval"],
        callbacks=[
            TuneReportCheckpointCallback(
                {"error": "eval-binary_error", "logloss": "eval-binary_logloss"}, filename="m.txt"
            )
        ],
    )


results = tune.Tuner(
    train_breast_cancer,
    param_space={
        "objective": "binary",
        "metric": ["binary_error", "binary_logloss"],
        "verbose": -1,
        "num_threads": 1,
        "num_leaves": tune.randint(5, 10),
        "learning_rate": tune.loguniform(1e-3, 1e-1),
    },
    tune_config=tune.TuneConfig(metric="error", mode="min", num_samples=2, scheduler=ASHAScheduler(max_t=4)),
).fit()
assert not results.errors, results.errors
best = results.get_best_result()
with best.checkpoint.as_directory() as path:
    assert lgb.Booster(model_file=os.path.join(path, "m.txt")).num_trees() >= 1
