"""The errors of both packages: one root that catches them all, and what each of them is besides."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

import searchers
import sweep
import sweep as tune
from sweep.errors import ExperimentError, SearchError, SpaceError, SweepError, UnknownNameError
from sweep.record.reader import find_experiment

ROOT = Path(__file__).parents[1]
# They unwind code and are no news to anybody: `except Exception` must not swallow them.
CONTROL_FLOW = {"MoreNeeded", "StopRequested", "DriverCalled", "SweepInterrupted"}


def classes() -> Iterator[tuple[str, list[str]]]:
    """Yield every class of both packages with the names of its bases; nothing is imported."""
    for path in sorted([*(ROOT / "sweep").rglob("*.py"), *(ROOT / "searchers").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, [ast.unparse(base).rpartition(".")[2] for base in node.bases]


def test_every_public_exception_of_both_packages_derives_from_the_one_root():
    bases: dict[str, list[str]] = dict(classes())

    def ancestors(name: str) -> set[str]:
        return {name}.union(*(ancestors(base) for base in bases.get(name, ()) if base != name))

    def is_exception(name: str) -> bool:
        found = (getattr(builtins, base, None) for base in ancestors(name))
        return any(isinstance(kind, type) and issubclass(kind, BaseException) for kind in found)

    exceptions = {name for name in bases if is_exception(name) and not name.startswith("_")}
    assert {"SweepError", "SearchError", "MetricError", "ChannelClosed", "StopRequested", "DriverCalled"} <= exceptions
    assert {name for name in exceptions if "SweepError" not in ancestors(name)} == CONTROL_FLOW


def test_the_root_that_tune_users_catch_catches_what_searchers_raise():
    assert tune.TuneError is sweep.TuneError is SweepError
    assert issubclass(searchers.SearchError, tune.TuneError)
    with pytest.raises(tune.TuneError) as of_a_space:
        sweep.uniform(1, 0)
    assert isinstance(of_a_space.value, SpaceError)
    with pytest.raises(sweep.SweepError) as of_a_name:
        searchers.create_searcher("optna")
    assert isinstance(of_a_name.value, UnknownNameError)
    assert isinstance(of_a_name.value, SearchError)


@pytest.mark.parametrize(
    "look",
    [
        lambda path: sweep.ExperimentAnalysis(path),
        lambda path: sweep.Tuner.restore(str(path), lambda config: None),
        lambda path: find_experiment(path.name, path.parent),
        lambda path: find_experiment(str(path)),
        lambda path: sweep.replay(path),
        lambda path: find_experiment(f"memory://nowhere/{path.name}"),
        lambda path: sweep.ExperimentAnalysis(f"memory://nowhere/{path.name}"),
    ],
)
def test_an_experiment_that_is_not_there_is_a_value_error_too(tmp_path, monkeypatch, look):
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    with pytest.raises(ExperimentError) as error:
        look(tmp_path / "nowhere")
    assert isinstance(error.value, ValueError)
