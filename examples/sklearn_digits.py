"""Tune a scikit-learn classifier on digits by cross-validation. The trainable is a function that returns its score.

python examples/sklearn_digits.py
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import sweep


def evaluate(config):
    images, labels = load_digits(return_X_y=True)
    model = make_pipeline(StandardScaler(), SVC(C=config["C"], gamma=config["gamma"], kernel=config["kernel"]))
    return {"accuracy": cross_val_score(model, images, labels, cv=3, n_jobs=1).mean()}


def main():
    results = sweep.Tuner(
        evaluate,
        param_space={
            "kernel": sweep.grid_search(["rbf", "linear"]),
            "C": sweep.loguniform(1e-2, 1e2),
            "gamma": sweep.loguniform(1e-4, 1e-1),
        },
        tune_config=sweep.TuneConfig(metric="accuracy", mode="max", num_samples=8, seed=0),
    ).fit()
    best = results.get_best_result()
    print(f"best cross-validated accuracy {best.metrics['accuracy']:.4f} with {best.config}")
    print(results.get_dataframe()[["config/kernel", "config/C", "config/gamma", "accuracy"]].to_string())
    return results


if __name__ == "__main__":
    main()
