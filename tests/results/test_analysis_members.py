"""What `run` returns and what is opened from the directory afterwards say the same, member by member."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest

import sweep as tune
from sweep.figures.plots import Plots
from sweep.results.analysis import ExperimentAnalysis, Result, ResultGrid
from sweep.results.views import TrialView

# Members that want arguments, each with some.
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "get_best_trial": [(), ("acc", "max"), ("loss", "min", "all")],
    "get_best_config": [(), ("acc", "max", "avg")],
    "get_best_checkpoint": [(0,), (1, "acc", "max")],
    "get_best_logdir": [(), ("acc", "max")],
    "get_last_checkpoint": [(), (1,)],
    "get_trial_checkpoints_paths": [(0,), (1, "acc")],
    "get_all_configs": [(), (True,)],
    "dataframe": [(), ("loss", "min")],
    "get_dataframe": [(), ("acc", "max")],
    "ranking": [(), ("acc", "max")],
    "get_pareto_trials": [(["loss", "acc"], ["min", "max"])],
    "get_pareto_results": [(["loss", "acc"], ["min", "max"])],
    "get_best_result": [(), ("acc", "max", "all"), ("loss", "min", "last-5-avg", False)],
}


def train(config: dict[str, Any]) -> None:
    for step in (3, 1, 2):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state").write_text(str(step))
            checkpoint = tune.Checkpoint(directory) if step < 3 else None
            tune.report({"loss": step * config["x"], "acc": step / 10, "net": {"n": 1}}, checkpoint=checkpoint)


@pytest.fixture(scope="module")
def returned(tmp_path_factory: pytest.TempPathFactory) -> ExperimentAnalysis:
    return tune.run(
        train,
        name="members",
        config={"x": tune.grid_search([2.0, 1.0])},
        metric="loss",
        mode="min",
        storage_path=str(tmp_path_factory.mktemp("storage")),
        engine="inline",
        verbose=0,
    )


def said(value: Any) -> Any:
    """Return what a member gave, as something that `==` compares."""
    if isinstance(value, pd.DataFrame):
        return (list(value.columns), value.dtypes.astype(str).tolist(), value.astype(str).to_numpy().tolist())
    if isinstance(value, (TrialView, Result)):
        return (repr(value), [said(getattr(value, name)) for name in members(type(value)) if name != "filesystem"])
    if isinstance(value, Mapping):
        return {key: said(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [said(item) for item in value]
    if isinstance(value, Plots):
        return (repr(value), [getattr(value, name)().to_json() for name in value.suited()])
    if inspect.ismethod(value):
        return value.__name__
    if isinstance(value, optuna.Study):
        return [(trial.params, trial.values, trial.user_attrs) for trial in value.trials]
    return str(value) if type(value).__name__ == "LocalFileSystem" else value


def members(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name != "from_path"]


@pytest.mark.parametrize("name", [*members(ExperimentAnalysis), "__repr__", "_repr_html_"])
def test_a_member_of_an_analysis_is_the_same_from_the_directory(returned: ExperimentAnalysis, name: str) -> None:
    opened = ExperimentAnalysis(os.path.join(returned.experiment_path, "sweep.db"))
    assert_same(returned, opened, name)


@pytest.mark.parametrize("name", [*members(ResultGrid), "__repr__", "__len__"])
def test_a_member_of_a_grid_is_the_same_from_the_directory(returned: ExperimentAnalysis, name: str) -> None:
    assert_same(ResultGrid(returned), ResultGrid(ExperimentAnalysis(returned.experiment_path)), name)


def assert_same(one: Any, other: Any, name: str) -> None:
    if not callable(getattr(one, name)):
        found = said(getattr(one, name))
        assert found is not None
        assert found == said(getattr(other, name))
        return
    for arguments in CALLS.get(name, [()]):
        found = said(getattr(one, name)(*arguments))
        assert found is not None
        assert found == said(getattr(other, name)(*arguments))


def test_a_grid_is_indexed_as_lists_are(returned: ExperimentAnalysis) -> None:
    grid = ResultGrid(returned)
    assert [result.trial_id for result in grid[:]] == [result.trial_id for result in grid]
    assert grid[-1] == grid[1]
    assert grid[1:] == [grid[1]]
    assert grid[::-1] == [grid[1], grid[0]]
    assert grid[5:] == []
    for index in (2, -3):
        with pytest.raises(IndexError):
            grid[index]


def test_trials_are_named_by_whatever_stands_for_one(returned: ExperimentAnalysis) -> None:
    grid, trial = ResultGrid(returned), returned.trials[1]
    wanted = returned.get_best_checkpoint(1, "loss", "min")
    assert wanted is not None
    for one in (trial, grid[1], trial.trial_id, trial.path, "1", "00001"):
        assert returned.get_best_checkpoint(one, "loss", "min") == wanted
    with pytest.raises(ValueError, match="is no trial; expected a trial, a result, an id or a number"):
        returned.get_best_checkpoint({"x": 1}, "loss", "min")


def test_the_members_of_the_old_releases_lead_to_the_new_ones(returned: ExperimentAnalysis) -> None:
    best = returned.best_trial
    assert best is not None
    assert returned.best_logdir == returned.get_best_logdir("loss", "min") == best.path
    assert [*returned.fetch_trial_dataframes()] == [trial.trial_id for trial in returned.trials]
    (first, first_loss), (second, second_loss) = returned.get_trial_checkpoints_paths(best)
    assert (os.path.basename(first), first_loss, os.path.basename(second), second_loss) == (
        "checkpoint_000002",
        1.0,
        "checkpoint_000003",
        2.0,
    )
    assert returned.get_trial_checkpoints_paths(best, "net/n") == [(first, 1), (second, 1)]
    stats = returned.stats()
    assert 0 < stats["start_time"] <= stats["timestamp"]
    assert returned.runner_data()["name"] == "members"
