"""Cross-validation that yields after every fold, cut short by ASHA."""

import numpy as np
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold

X, y = load_wine(return_X_y=True)


def cv(config, X, y):
    scores = []
    folds = StratifiedKFold(n_splits=4, shuffle=True, random_state=0)
    for fold, (fit, test) in enumerate(folds.split(X, y)):
        model = RandomForestClassifier(
            n_estimators=config["n_estimators"], max_depth=config["max_depth"], random_state=0
        )
        model.fit(X[fit], y[fit])
        scores.append(model.score(X[test], y[test]))
        yield {"fold": fold, "acc": np.mean(scores), "std": np.std(scores)}


tuner = tune.Tuner(
    tune.with_parameters(cv, X=X, y=y),
    param_space={"n_estimators": tune.randint(1, 8), "max_depth": tune.choice([1, 2, None])},
    tune_config=tune.TuneConfig(
        num_samples=5, metric="acc", mode="max", scheduler=ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2)
    ),
)
grid = tuner.fit()
assert not grid.errors, grid.errors
best = grid.get_best_result()
assert best.metrics["acc"] > 0.6
assert max(r.metrics["training_iteration"] for r in grid) == 4
