"""The pair most scripts use: ASHA with Optuna, seeded, over nested names."""

from ray import train, tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from sklearn.datasets import load_iris
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split


def train_iris(config):
    x, y = load_iris(return_X_y=True)
    x, vx, y, vy = train_test_split(x, y, random_state=0)
    model = SGDClassifier(alpha=config["sgd"]["alpha"], penalty=config["sgd"]["penalty"], random_state=0)
    for _ in range(8):
        model.partial_fit(x, y, classes=[0, 1, 2])
        train.report({"val/acc": model.score(vx, vy)})


tuner = tune.Tuner(
    train_iris,
    param_space={"sgd": {"alpha": tune.loguniform(1e-6, 1e-1), "penalty": tune.choice(["l1", "l2"])}},
    tune_config=tune.TuneConfig(
        metric="val/acc",
        mode="max",
        num_samples=8,
        max_concurrent_trials=2,
        search_alg=OptunaSearch(seed=1),
        scheduler=ASHAScheduler(max_t=8, grace_period=2, reduction_factor=2),
    ),
)
results = tuner.fit()
assert len(results) == 8
best = results.get_best_result()
assert best.metrics["val/acc"] > 0.5
iterations = [r.metrics["training_iteration"] for r in results]
assert max(iterations) == 8 and min(iterations) >= 2
assert 1e-6 <= best.config["sgd"]["alpha"] <= 1e-1
frame = results.get_dataframe()
assert {"config/sgd/alpha", "config/sgd/penalty", "val/acc"} <= set(frame.columns)
