"""Tests of the package's public names and of building searchers by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import searchers
from searchers import (
    SEARCHERS,
    BasicVariantGenerator,
    GridSearch,
    OptunaSearch,
    Searcher,
    SearchError,
    UnknownNameError,
    create_searcher,
)


def test_every_public_name_exists():
    assert all(hasattr(searchers, name) for name in searchers.__all__)
    assert sorted(set(searchers.__all__)) == sorted(searchers.__all__)


def test_importing_it_loads_nothing_heavy():
    code = (
        "import sys, searchers; s = searchers.OptunaSearch(sampler='cmaes'); "
        "print(sorted({'optuna', 'torch', 'scipy', 'pandas', 'sweep', 'cmaes'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", SEARCHERS)
def test_every_name_builds_its_searcher(name):
    assert isinstance(create_searcher(name), Searcher)
    assert isinstance(create_searcher(name.upper()), Searcher)


def test_names_mean_what_they_mean_in_tune():
    assert isinstance(create_searcher("random", max_concurrent=2), BasicVariantGenerator)
    assert isinstance(create_searcher("variant_generator"), BasicVariantGenerator)
    assert isinstance(create_searcher("optuna", metric="loss", mode="min", seed=3), OptunaSearch)
    assert isinstance(create_searcher("grid", seed=3), GridSearch)


def test_shortcuts_choose_the_sampler():
    search = create_searcher("qmc", seed=3, space={"x": searchers.uniform(0, 1)}, metric="loss", mode="min")
    assert type(search.study.sampler).__name__ == "QMCSampler"


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        ("optna", {}, UnknownNameError, "no searcher is called 'optna'. Did you mean 'optuna'"),
        (None, {}, UnknownNameError, "no searcher is called None"),
        ("Ax", {}, UnknownNameError, "called 'Ax'. That library has no adapter here; the nearest is 'gp'"),
        ("zoopt", {}, UnknownNameError, "the nearest is 'cmaes'. Known: bayesopt, bohb, cmaes, gp, grid"),
        ("optuna", {"sedd": 1}, SearchError, "'optuna' has no parameter 'sedd'. Did you mean 'seed'"),
        ("tpe", {"sampler": "gp"}, SearchError, "'tpe' has no parameter 'sampler'. The name says it already."),
        ("random", {"seed": -1}, SearchError, "has no parameter 'seed'"),
        ("grid", {"seed": -1}, SearchError, "seed is -1"),
    ],
)
def test_unknown_names_and_arguments_are_refused(name, arguments, error, message):
    with pytest.raises(error, match=message):
        create_searcher(name, **arguments)
