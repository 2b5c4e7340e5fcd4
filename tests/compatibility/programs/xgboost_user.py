"""XGBoost with Tune's callback: report and checkpoint after every boosting round."""

import os

import numpy as np
import xgboost as xgb
from ray import tune
from ray.tune.integration.xgboost import TuneReportCheckpointCallback
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split


def train_breast_cancer(config):
    data, labels = load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(data, labels, test_size=0.25, random_state=0)
    train_set = xgb.DMatrix(train_x, label=train_y)
    test_set = xgb.DMatrix(test_x, label=test_y)
    xgb.train(
        config,
        train_set,
        num_boost_round=4,
        evals=[(test_set, "eval")],
        verbose_eval=False,
        callbacks=[TuneReportCheckpointCallback({"logloss": "eval-logloss"}, filename="model.json", frequency=1)],
    )


results = tune.Tuner(
    tune.with_resources(train_breast_cancer, {"cpu": 1}),
    param_space={
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "error"],
        "max_depth": tune.randint(1, 4),
        "eta": tune.loguniform(1e-2, 1),
        "nthread": 1,
    },
    tune_config=tune.TuneConfig(metric="logloss", mode="min", num_samples=2),
).fit()
assert not results.errors, results.errors
best = results.get_best_result()
assert best.metrics["training_iteration"] >= 4
with best.checkpoint.as_directory() as path:
    booster = xgb.Booster()
    booster.load_model(os.path.join(path, "model.json"))
assert np.isfinite(best.metrics["logloss"])
