"""`SearchCV` finds what `RandomizedSearchCV` finds, stops what is bad, and passes scikit-learn's own checks."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is missing: pip install -e '.[sklearn]'")
pytest.importorskip("scipy", reason="scipy is missing")

from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, RandomizedSearchCV, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

import sweep
from sweep.errors import ConfigError
from sweep.sklearn import SearchCV
from sweep.sklearn.trial import rungs_of

X, Y = load_iris(return_X_y=True)
SPACE = {"C": stats.loguniform(1e-3, 10), "gamma": [0.1, 1, "scale"]}


@pytest.fixture(scope="module", autouse=True)
def _two_cpus() -> Any:
    sweep.init(num_cpus=2, num_gpus=0)
    yield
    sweep.shutdown()


def splits(number: int = 3, size: int = 90) -> list[Any]:
    return [(np.arange(size), np.arange(3))] * number


# --- what a rung is ---


@pytest.mark.parametrize(
    ("estimator", "fidelity", "name", "values"),
    [
        (SVC(), None, "", (1, 2, 3)),
        (RandomForestClassifier(27), "auto", "n_estimators", (1, 3, 9, 27)),
        (make_pipeline(PCA(), RandomForestClassifier(3)), "auto", "randomforestclassifier__n_estimators", (1, 3)),
        (HistGradientBoostingRegressor(max_iter=9), "auto", "max_iter", (1, 3, 9)),
        (MLPClassifier(max_iter=100), "auto", "partial_fit", (4, 11, 33, 100)),
        (SGDClassifier(), "auto", "partial_fit", (7, 22, 67, 200)),
        (SGDClassifier(early_stopping=True), "auto", "n_samples", (18, 30, 90)),
        (SVC(), "auto", "n_samples", (18, 30, 90)),
        (SVC(), ("n_samples", [10, 20]), "n_samples", (10, 20)),
        (SVC(), ("max_iter", 10), "max_iter", (1, 3, 10)),
    ],
)
def test_a_rung_is_what_the_estimator_can_be_given_more_of(estimator, fidelity, name, values):
    found = rungs_of(fidelity, estimator, Y, splits())
    assert (found.name, found.values) == (name, values)


@pytest.mark.parametrize(
    "fidelity", ["n_estimators", "max_iter", "partial_fit", ("max_iter", []), ("max_iter", [3, 1]), ("max_iter", 0), 3]
)
def test_what_cannot_be_a_rung_is_refused(fidelity):
    with pytest.raises(ConfigError, match="'n_samples'"):
        rungs_of(fidelity, SVC(), Y, splits())


# --- what is said before anything is started ---


def test_the_names_of_scikit_learns_searches_are_answered():
    with pytest.raises(TypeError, match="called space"):
        SearchCV(SVC(), param_grid={"C": [1]})


@pytest.mark.parametrize(
    ("space", "search_alg", "text"),
    [
        ("C", None, "expected a dict"),
        ([{"C": [1]}, {"C": [2]}], "tpe", "space is a list"),
        ({"C": stats.expon(1)}, "tpe", "expected a domain of sweep's"),
        ({"C": stats.expon(1), "gamma": sweep.uniform(0, 1)}, None, "expected a domain of sweep's"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(space, search_alg, text):
    with pytest.raises(ConfigError, match=text):
        SearchCV(SVC(), space, search_alg=search_alg).fit(X, Y)


def test_the_fidelity_is_not_searched():
    with pytest.raises(ConfigError, match="is the fidelity"):
        SearchCV(RandomForestClassifier(), {"n_estimators": [1, 2]}, n_iter=2, fidelity="auto").fit(X, Y)


# --- beside scikit-learn's own searches ---


@pytest.mark.slow
@pytest.mark.parametrize("scoring", [None, "balanced_accuracy", ["accuracy", "f1_macro"]])
def test_a_random_search_finds_what_that_of_scikit_learn_finds(scoring):
    options = {"scoring": scoring, "refit": "f1_macro" if isinstance(scoring, list) else True, "n_iter": 4}
    options |= {"cv": 3, "random_state": 0, "return_train_score": True}
    theirs = RandomizedSearchCV(SVC(), SPACE, **options).fit(X, Y)
    ours = SearchCV(SVC(), SPACE, **options).fit(X, Y)
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for name in ours.cv_results_:
        if "time" not in name:
            np.testing.assert_array_equal(ours.cv_results_[name], theirs.cv_results_[name])
            assert getattr(ours.cv_results_[name], "dtype", 0) == getattr(theirs.cv_results_[name], "dtype", 0)
    for name in ("best_score_", "best_params_", "best_index_", "multimetric_", "n_splits_", "n_features_in_"):
        assert getattr(ours, name) == getattr(theirs, name), name
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X, Y) == theirs.score(X, Y)


@pytest.mark.slow
def test_a_grid_of_steps_finds_what_that_of_scikit_learn_finds():
    pipeline = Pipeline([("scale", "passthrough"), ("model", SVC())])
    space = [
        {"model": [SVC(), SVC(kernel="linear")], "model__C": [1, 10]},
        {"model": [DecisionTreeClassifier(random_state=0)], "scale": ["passthrough", StandardScaler()]},
    ]
    theirs = GridSearchCV(pipeline, space, cv=3).fit(X, Y)
    ours = SearchCV(pipeline, space, cv=3, search_alg="grid").fit(X, Y)
    assert [str(one) for one in ours.cv_results_["params"]] == [str(one) for one in theirs.cv_results_["params"]]
    np.testing.assert_array_equal(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])
    assert str(ours.best_estimator_) == str(theirs.best_estimator_)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The total space")
def test_groups_and_weights_reach_folds_and_fits():
    space, weights = {"C": [0.01, 2]}, np.random.default_rng(0).random(150)
    grouped = SearchCV(SVC(), space, cv=GroupKFold(5)).fit(X, Y, groups=np.arange(150) % 5)
    assert grouped.n_splits_ == 5
    options = {"n_iter": 2, "cv": 3, "random_state": 0}
    ours = SearchCV(SVC(), space, **options).fit(X, Y, sample_weight=weights)
    assert ours.best_score_ == RandomizedSearchCV(SVC(), space, **options).fit(X, Y, sample_weight=weights).best_score_


@pytest.mark.slow
def test_it_passes_the_checks_of_scikit_learn_as_its_own_search_does():
    known = {"check_supervised_y_2d": "no warning of a shape", "check_requires_y_none": "another error"}
    for estimator, space in ((Ridge(), {"alpha": [0.1, 1.0]}), (LogisticRegression(), {"C": [0.1, 1.0]})):
        options = {"cv": 2, "error_score": "raise", "random_state": 0, "n_iter": 2}
        found = {}
        for kind in (RandomizedSearchCV, SearchCV):
            with warnings.catch_warnings(action="ignore"):
                checks = check_estimator(
                    kind(estimator, space, **options), expected_failed_checks=known, on_fail=None, on_skip=None
                )
            found[kind] = [(check["check_name"], check["status"]) for check in checks]
        assert found[SearchCV] == found[RandomizedSearchCV]
        assert "failed" not in {status for _, status in found[SearchCV]}


# --- rungs ---


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("estimator", "space", "fidelity"),
    [
        (SGDClassifier(random_state=0), {"alpha": [1e-4, 1e-3, 10, 100]}, ("partial_fit", 9)),
        (RandomForestClassifier(27, random_state=0), {"max_depth": [8, 4, 1, 2]}, "auto"),
        (SVC(), {"C": [10, 1, 1e-4, 1e-5]}, "n_samples"),
        (LogisticRegression(max_iter=27), {"C": [1, 0.1, 1e-5, 1e-6]}, "max_iter"),
        (SVC(), {"C": [10, 1, 1e-4, 1e-5]}, None),
    ],
)
def test_what_is_bad_at_a_rung_is_stopped(estimator, space, fidelity):
    digits, labels = load_digits(return_X_y=True)
    options = {"cv": 3, "search_alg": "grid", "scheduler": "asha", "n_jobs": 1, "random_state": 0}
    found = SearchCV(estimator, space, fidelity=fidelity, **options).fit(digits / 16, labels)
    reached = found.cv_results_["n_resources"]
    assert reached[0] == found.n_resources_[-1] == max(reached) > min(reached)
    np.testing.assert_array_equal(np.isnan(found.cv_results_["mean_test_score"]), reached < max(reached))
    assert found.cv_results_["rank_test_score"][found.best_index_] == 1
    assert found.score(digits / 16, labels) > 0.9
    assert "fit" not in vars(found.best_estimator_)


@pytest.mark.slow
def test_a_forest_that_grows_is_scored_as_one_that_is_fitted_at_once():
    forest = RandomForestClassifier(27, random_state=0)
    found = SearchCV(forest, {"max_depth": [4]}, n_iter=1, cv=3, fidelity="auto").fit(X, Y)
    assert found.best_score_ == cross_val_score(clone(forest).set_params(max_depth=4), X, Y, cv=3).mean()
    assert not found.best_estimator_.warm_start


# --- failures, places, processes ---


@pytest.mark.slow
def test_failed_fits_count_as_those_of_scikit_learn_do():
    with pytest.warns(match="5 fits failed out of a total of 10"):
        found = SearchCV(SVC(), {"C": [1, -2]}, search_alg="grid", error_score=-1).fit(X, Y)
    assert found.cv_results_["mean_test_score"][1] == -1
    with pytest.raises(ValueError, match="All the 10 fits failed"):
        SearchCV(SVC(), {"C": [-1, -2]}, search_alg="grid").fit(X, Y)
    with pytest.raises(ValueError, match="'C' parameter of SVC") as raised:
        SearchCV(SVC(), {"C": [-1, -2]}, search_alg="grid", error_score="raise").fit(X, Y)
    assert type(raised.value).__name__ == "InvalidParameterError"


@pytest.mark.slow
def test_a_fitted_search_travels_and_leaves_nothing_behind():
    found = SearchCV(SVC(), {"C": [1, 2]}, n_iter=2).fit(X, Y)
    assert [trial.config["C"] for trial in found.analysis_.trials] == [one["C"] for one in found.cv_results_["params"]]
    copy, place = pickle.loads(pickle.dumps(found)), Path(found.experiment_path_)
    assert place.exists()
    del found
    assert not place.exists()
    assert copy.score(X, Y) > 0.9


@pytest.mark.slow
def test_the_same_search_goes_on_and_another_begins_anew(tmp_path):
    search = SearchCV(SVC(), SPACE, n_iter=2, random_state=0, name="iris", storage_path=tmp_path)
    first = search.fit(X, Y).analysis_
    again = search.fit(X, Y).analysis_
    assert again.experiment_path == first.experiment_path
    assert [trial.attempt for trial in again.trials] == [1, 1]
    assert search.fit(X, Y[::-1]).experiment_path_ != first.experiment_path


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time\n"
        "from sklearn.datasets import load_iris\n"
        "from sklearn.svm import SVC\n"
        "from sweep.sklearn import SearchCV\n"
        "class Slow(SVC):\n"
        "    def fit(self, X, y):\n"
        "        open('fits', 'a').write('.')\n"
        "        time.sleep(0.2)\n"
        "        return super().fit(X, y)\n"
        "search = SearchCV(Slow(), {'C': [1, 2, 3, 4]}, n_iter=4, cv=2, random_state=0, name='killed', n_jobs=1)\n"
        "search.fit(*load_iris(return_X_y=True))\n"
    )
    fits = tmp_path / "fits"
    begun = subprocess.Popen([sys.executable, script], cwd=tmp_path)
    try:
        while not fits.exists() or len(fits.read_text()) < 3:
            assert begun.poll() is None
            time.sleep(0.01)
    finally:
        begun.kill()
        begun.wait()
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True, timeout=100, capture_output=True)
    (experiment,) = (tmp_path / "sweep_results").iterdir()
    attempts = [trial.attempt for trial in sweep.ExperimentAnalysis(experiment).trials]
    assert attempts[0] == 1
    assert sorted(attempts)[-1] == 2
    assert len(fits.read_text()) <= 4 * 2 + 1 + 2  # all folds, the last fit, and those of the trial that was cut off


def test_what_has_a_name_can_be_pickled():
    with pytest.raises(ConfigError, match="can be pickled"):
        SearchCV(SVC(), {"C": [1, 2]}, n_iter=2, scoring=lambda *_: 1.0, name="x").fit(X, Y)


@pytest.mark.slow
def test_an_adaptive_search_takes_domains_lists_and_distributions():
    space = {"C": stats.loguniform(1e-3, 1e3), "kernel": ["rbf", "linear"], "gamma": sweep.loguniform(1e-4, 1)}
    found = SearchCV(SVC(), space, search_alg="tpe", n_iter=6, cv=3, random_state=0).fit(X, Y)
    assert found.best_params_.keys() == space.keys()
    assert found.cv_results_["param_C"].dtype == float


@pytest.mark.slow
def test_searches_run_inside_a_cross_validation_of_scikit_learn_also_in_parallel():
    search = SearchCV(SVC(), {"C": [1, 2]}, n_iter=2, cv=3, random_state=0)
    alone = cross_val_score(search, X, Y, cv=3)
    np.testing.assert_array_equal(cross_val_score(search, X, Y, cv=3, n_jobs=2), alone)


@pytest.mark.slow
def test_a_script_without_a_guard_searches_classes_of_its_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from sklearn.datasets import load_iris\n"
        "from sklearn.svm import SVC\n"
        "from sweep.sklearn import SearchCV\n"
        "class Own(SVC):\n    pass\n"
        "def scoring(model, X, y):\n    return {'a': model.score(X, y), 'b': 1.0}\n"
        "found = SearchCV(Own(), {'C': [1, 2, 3]}, n_iter=3, scoring=scoring, refit='a')\n"
        "found.fit(*load_iris(return_X_y=True))\n"
        "print(len(found.cv_results_['mean_test_b']), found.multimetric_)\n"
    )
    ended = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (ended.stdout, ended.stderr) == ("3 True\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
