"""`SearchCV`: a scikit-learn estimator that finds the parameters of another one by a sweep."""

from __future__ import annotations

import copy
import pickle
import shutil
import tempfile
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler, check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._validation import _warn_or_raise_about_fit_failures
from sklearn.utils.validation import _check_method_params, check_random_state, indexable

from searchers.base import EXHAUSTED, Config, Searcher, Signal
from searchers.space import choice, loguniform, randint, uniform
from sweep.api import run
from sweep.errors import ConfigError, refuse_unknown
from sweep.results.analysis import ExperimentAnalysis
from sweep.schedulers import ASHAScheduler
from sweep.sklearn.trial import OBJECTIVE, RESOURCE, evaluate, rungs_of, train_for
from sweep.worker.parameters import with_parameters

_FORMER = dict.fromkeys(("param_distributions", "param_grid", "search_spaces"), "It is called space.")
_LISTS = (list, tuple, range, np.ndarray)


class SearchCV(BaseSearchCV):  # type: ignore[misc]
    """Find the best parameters of an estimator by cross-validation, as `RandomizedSearchCV` does, by a sweep.

    A candidate is a trial in a process of its own; all share one copy of the data. A random search over lists and
    distributions of scipy tries what `RandomizedSearchCV` tries. What is not listed here is as there.

    Args:
        space: parameters, each with a domain such as `sweep.loguniform(1e-3, 10)`, a list, or a distribution of scipy.
        n_jobs: how many candidates may run at a time; None: as many as there is room for.
        resources: of a candidate, such as `{"cpu": 2, "gpu": 0.5}`; None: one CPU.
        search_alg: a searcher or its name, such as "tpe"; None: random; "grid": all combinations of lists.
        scheduler: a scheduler or its name. "asha": the best third at a rung goes on. Others are to count `n_resources`,
            what a candidate has got so far. What was stopped has NaN in `cv_results_`.
        fidelity: what a rung is. None: a fold; "partial_fit" (epochs), a parameter such as "n_estimators", "n_samples"
            for training, or a pair of one of these and its maximum, or its values; "auto": whichever there is.
        storage_path, name: where the experiment is kept; None: in a temporary directory, while this object lives. With
            a name, followed by a hash of data and arguments, what was killed goes on when the same is fitted again.
        run_options: further arguments of `sweep.run`, such as `{"time_budget_s": 600}`.
    """

    _run_search: Any = None  # how the base class searches

    @refuse_unknown(_FORMER)
    def __init__(
        self,
        estimator: Any,
        space: Any,
        *,
        n_iter: int = 10,
        scoring: Any = None,
        n_jobs: int | None = None,
        resources: Any = None,
        refit: Any = True,
        cv: Any = None,
        search_alg: Any = None,
        scheduler: Any = None,
        fidelity: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        storage_path: Any = None,
        name: str | None = None,
        run_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.__dict__.update({parameter: value for parameter, value in locals().items() if parameter != "self"})

    @property
    def analysis_(self) -> ExperimentAnalysis:
        """The experiment: tables, figures and pages of all candidates."""
        return ExperimentAnalysis(self.experiment_path_, trust=True)

    def fit(self, X: Any, y: Any = None, **params: Any) -> SearchCV:
        """Search, then fit the best candidate to all the data; `params` are for its `fit`, `groups` for the folds."""
        self._validate_params()
        scorers, metric = self._get_scorers()
        X, y = indexable(X, y)
        routed = self._get_routed_params_for_fit(_check_method_params(X, params=params))
        base, random = clone(self.estimator), check_random_state(self.random_state)
        candidates, config = searched(self.space, self.n_iter, random, self.search_alg)
        splits = list(check_cv(self.cv, y, classifier=is_classifier(base)).split(X, y, **routed.splitter.split))
        rungs = rungs_of(self.fidelity, base, y, splits)
        self.n_splits_, self.n_resources_ = len(splits), list(rungs.values)
        if any(rungs.name in one for one in candidates or [config]):
            raise ConfigError(f"{rungs.name!r} is in the space, and is the fidelity; leave it out of one of them.")
        options = {"scorer": scorers, "fit_params": routed.estimator.fit, "score_params": routed.scorer.score}
        options |= {"return_train_score": self.return_train_score, "error_score": self.error_score}
        seed = None if self.random_state is None else int(random.randint(2**31 - 1))
        what = {"data": (base, X, y, splits), "rungs": rungs, "metric": metric, "options": options}
        analysis = self._sweep(what, {"config": config, "seed": seed, "num_samples": self.n_iter}, candidates)
        results, first = self._results(analysis)
        self.multimetric_ = isinstance(first, dict)
        if callable(self.scoring) and self.multimetric_:
            self._check_refit_for_multimetric(first)
            metric = self.refit
        if self.refit or not self.multimetric_:
            self.best_index_ = self._select_best_index(self.refit, metric, results)
            self.best_params_ = results["params"][self.best_index_]
            if not callable(self.refit):
                self.best_score_ = results[f"mean_test_{metric}"][self.best_index_]
        if self.refit:
            full = {rungs.name: rungs.values[-1]} if rungs.name in base.get_params() else {}
            best = clone(base).set_params(**clone({**self.best_params_, **full}, safe=False))
            fit = best.fit if rungs.name != "partial_fit" else partial(train_for, rungs.values[-1], rungs.classes, best)
            began = time.time()
            self.best_estimator_ = fit(*((X,) if y is None else (X, y)), **routed.estimator.fit)
            self.refit_time_ = time.time() - began
            if hasattr(best, "feature_names_in_"):
                self.feature_names_in_ = best.feature_names_in_
        self.scorer_, self.cv_results_ = getattr(scorers, "_scorers", scorers), results
        return self

    def _sweep(self, what: Mapping[str, Any], options: dict[str, Any], candidates: Any) -> ExperimentAnalysis:
        options |= {"metric": OBJECTIVE, "mode": "max", "storage_path": self.storage_path, "preload": ["sweep.sklearn"]}
        (base, *data), values = what["data"], what["rungs"].values
        if self.name is not None:
            own = (base, what["options"], values, options, candidates, self.search_alg, self.scheduler)
            try:
                pickle.dumps(own)  # joblib's own pickler takes more, and less surely, once dill is imported
                digest = joblib.hash((own, data))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ConfigError(f"name={self.name!r} needs arguments that can be pickled: {error.args[0]}") from None
            options |= {"name": f"{self.name}-{digest[:8]}", "resume": "AUTO"}
        elif self.storage_path is None:
            options["storage_path"] = tempfile.mkdtemp(prefix="sweep-")
            weakref.finalize(self, shutil.rmtree, options["storage_path"], ignore_errors=True)
        options["search_alg"], options["scheduler"] = copy.deepcopy((self.search_alg, self.scheduler))
        if candidates is not None:
            options |= {"num_samples": len(candidates), "search_alg": Candidates(candidates)}
        if self.scheduler == "asha":
            options["scheduler"] = ASHAScheduler(RESOURCE, grace_period=values[0], max_t=values[-1], reduction_factor=3)
        options["max_concurrent_trials"] = None if self.n_jobs in (None, -1) else joblib.effective_n_jobs(self.n_jobs)
        options |= {"fail_fast": "raise" if self.error_score == "raise" else False, "raise_on_failed_trial": False}
        options |= {"resources_per_trial": self.resources, "verbose": bool(self.verbose), "max_identical_failures": -1}
        return run(with_parameters(evaluate, **what), **{**options, **(self.run_options or {})})

    def _results(self, analysis: ExperimentAnalysis) -> tuple[dict[str, Any], Any]:
        """Return `cv_results_`, and what the first fold has scored that was fitted."""
        self.experiment_path_ = analysis.experiment_path
        trials = [trial for trial in analysis.trials if trial.error or RESOURCE in trial.last_result]
        if not trials:
            raise ValueError(f"no candidate was tried: {analysis!r}. Raise n_iter, or the time that there is.")
        reached, outs = [trial.last_result.get(RESOURCE, 0) for trial in trials], list[dict[str, Any]]()
        for trial in trials:
            found = trial.last_result if trial.last_result.get(RESOURCE) == max(reached) else {}  # else it was stopped
            none = {"fit_error": trial.error and str(trial.error), "fit_time": np.nan, "score_time": np.nan}
            outs += [found.get(f"fold{fold}", none).copy() for fold in range(self.n_splits_)]
        _warn_or_raise_about_fit_failures(outs, self.error_score)
        first = next(out["test_scores"] for out in outs if out["fit_error"] is None and "test_scores" in out)
        for out in outs:
            missing = np.nan if out["fit_error"] is None else self.error_score
            for part in ("test_scores", "train_scores"):
                if part not in out or isinstance(out[part], dict) != isinstance(first, dict):
                    out[part] = dict.fromkeys(first, missing) if isinstance(first, dict) else missing
        more = {RESOURCE: reached} if self.scheduler else None
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # what was stopped has NaN, as it should
            return self._format_results([trial.config for trial in trials], self.n_splits_, outs, more), first


class Candidates(Searcher):
    """Suggest the configs of a list, one after another."""

    is_adaptive = False

    def __init__(self, configs: Sequence[Config]) -> None:
        super().__init__()
        self._left = iter(configs)

    def suggest(self, trial_id: str) -> Config | Signal:
        return next(self._left, EXHAUSTED)


def searched(space: Any, n_iter: int, random_state: Any, search_alg: Any) -> tuple[list[Config] | None, Config]:
    """Return what `RandomizedSearchCV`, or `GridSearchCV`, tries; otherwise None, and the space in domains."""
    parts = list(space) if isinstance(space, (list, tuple)) else [space]
    if not all(isinstance(part, Mapping) for part in parts):
        raise ConfigError(f"space is {space!r}; expected a dict such as {{'C': sweep.loguniform(1e-3, 10)}}.")
    is_theirs = all(isinstance(value, _LISTS) or hasattr(value, "rvs") for part in parts for value in part.values())
    if is_theirs and search_alg in (None, "random", "grid"):
        grid = ParameterGrid(space) if search_alg == "grid" else None
        return list(grid or ParameterSampler(space, n_iter, random_state=random_state)), {}
    if len(parts) != 1:
        raise ConfigError("space is a list, which takes random or grid search over lists and distributions of scipy.")
    return None, {name: _as_domain(name, value) for name, value in parts[0].items()}


def _as_domain(name: str, value: Any) -> Any:
    if not hasattr(value, "rvs"):
        return choice(list(value)) if isinstance(value, _LISTS) else value
    kind = getattr(getattr(value, "dist", None), "name", None)
    if kind in ("uniform", "loguniform", "reciprocal"):
        return (uniform if kind == "uniform" else loguniform)(*value.support())
    if kind == "randint":
        return randint(int(value.support()[0]), int(value.support()[1]) + 1)
    what = "expected a domain of sweep's, a list, or uniform, loguniform or randint of scipy"
    raise ConfigError(f"space[{name!r}] is {value!r}; {what}, unless a random search has only lists and distributions.")
