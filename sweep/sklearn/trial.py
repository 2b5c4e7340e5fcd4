"""One candidate in its trial: cross-validated, with a report for each fold or rung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection._validation import _fit_and_score
from sklearn.utils import resample

from sweep.errors import ConfigError
from sweep.worker.session import report

OBJECTIVE, RESOURCE = "mean_test_score", "n_resources"


class Rungs(NamedTuple):
    """What a candidate gets more of: epochs (`partial_fit`), `n_samples`, a parameter; "": each fold is a rung."""

    name: str
    values: tuple[int, ...]  # how much at each rung
    begin: Mapping[str, Any] | None = None  # parameters by which a model goes on; None: it is fitted anew
    classes: Any = None  # for `partial_fit` of a classifier


def rungs_of(fidelity: Any, estimator: Any, y: Any, splits: Sequence[Any]) -> Rungs:
    """Return the rungs that `fidelity=` asks for."""
    if fidelity is None:
        return Rungs("", tuple(range(1, len(splits) + 1)))
    name, values = fidelity if isinstance(fidelity, (tuple, list)) and len(fidelity) == 2 else (fidelity, None)
    own, prefix = estimator.get_params(), f"{estimator.steps[-1][0]}__" if hasattr(estimator, "steps") else ""
    is_hist = "HistGradientBoosting" in type(own.get(prefix[:-2], estimator)).__name__
    trees = prefix + ("max_iter" if is_hist else "n_estimators")  # counts those of earlier fits, too
    most = {**own, "n_samples": min(len(train) for train, _ in splits)}
    most |= {"partial_fit": min(own.get("max_iter", 200), 200)} if hasattr(estimator, "partial_fit") else {}
    if name == "auto":
        has_epochs = "partial_fit" in most and "max_iter" in own and not own.get("early_stopping")
        name = "partial_fit" if has_epochs else trees if trees in own else "n_samples"
    classes = np.unique(y) if is_classifier(estimator) else None
    values = most.get(name) if values is None else values
    if isinstance(values, int):
        fewest = 2 * len(splits) * (1 if classes is None else len(classes)) if name == "n_samples" else 1
        values = sorted({max(min(fewest, values), round(values / 3**power)) for power in range(4)})
    steps = tuple(values) if isinstance(values, (list, tuple, range)) else ()
    if name not in most or not steps or list(steps) != sorted({max(1, step) for step in steps}):
        raise ConfigError(
            f"fidelity is {fidelity!r}; expected 'auto', 'n_samples', 'partial_fit' of an estimator that has it, a "
            "parameter, or one of these with its maximum or increasing values: ('n_estimators', [10, 30, 100])."
        )
    warm = {f"{prefix}warm_start": True} if name == trees and f"{prefix}warm_start" in own else None
    return Rungs(name, steps, {} if name == "partial_fit" else warm, classes)


def train_for(epochs: int, classes: Any, model: Any, X: Any, y: Any = None, **given: Any) -> Any:
    """Call `partial_fit` so often; returns the model."""
    for _ in range(epochs):
        model.partial_fit(X, y, **({} if classes is None else {"classes": classes}), **given)
    return model


def evaluate(config: dict[str, Any], *, data: Any, rungs: Rungs, metric: str, options: dict[str, Any]) -> None:
    """Fit and score a candidate on all folds, at each rung; the last report has everything that was found."""
    estimator, X, y, splits = data
    found, models, before = dict[str, Any](), dict[int, Any](), 0
    for value in rungs.values if rungs.name else (0,):
        scores = []
        for fold, (train, test) in enumerate(splits):
            params = {} if fold in models else {**config, **(rungs.begin or {})}
            model = models[fold] if fold in models else clone(estimator)
            models |= {} if rungs.begin is None else {fold: model}
            if rungs.name == "partial_fit":
                model.fit = partial(train_for, value - before, rungs.classes, model)
            elif rungs.name == "n_samples":
                train = resample(train, replace=False, n_samples=min(value, len(train)), random_state=0)
            elif rungs.name:
                params[rungs.name] = value
            fixed = {"train": train, "test": test, "parameters": params, "verbose": 0, "return_times": True}
            out = _fit_and_score(model, X, y, **fixed, **options)
            out["fit_time"] += found.get(f"fold{fold}", {"fit_time": 0.0})["fit_time"]
            found[f"fold{fold}"] = out
            scores.append(out["test_scores"] if isinstance(out["test_scores"], dict) else {"score": out["test_scores"]})
            if not rungs.name or fold == len(splits) - 1:
                means = {f"mean_test_{name}": np.mean([one.get(name, np.nan) for one in scores]) for name in scores[-1]}
                objective = means.get(f"mean_test_{metric}", next(iter(means.values())))
                report({RESOURCE: value or fold + 1, **means, OBJECTIVE: objective, **found})
        before = value
