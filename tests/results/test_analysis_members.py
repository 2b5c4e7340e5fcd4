"""What `run` returns and what is opened from the directory afterwards say the same; what stands for a trial."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

import sweep as tune
from sweep.errors import ConfigError
from sweep.results.analysis import ExperimentAnalysis, ResultGrid


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


def test_what_is_opened_from_the_directory_says_what_run_returned(returned: ExperimentAnalysis) -> None:
    for path in (returned.experiment_path, os.path.join(returned.experiment_path, "sweep.db")):
        opened = ExperimentAnalysis(path)
        assert repr(opened) == repr(returned)
        assert opened._repr_html_() == returned._repr_html_()
        assert list(opened) == list(returned)
        assert opened.best_result == returned.best_result
        assert opened.get_dataframe().equals(returned.get_dataframe())
        assert opened.plot.suited() == returned.plot.suited()


def test_trials_are_named_by_whatever_stands_for_one(returned: ExperimentAnalysis) -> None:
    grid, trial = ResultGrid(returned), returned.trials[1]
    wanted = returned.get_best_checkpoint(1, "loss", "min")
    assert wanted is not None
    for one in (trial, grid[1], trial.trial_id, trial.path, "1", "00001"):
        assert returned.get_best_checkpoint(one, "loss", "min") == wanted
    with pytest.raises(ValueError, match="is no trial; expected a trial, a result, an id or a number"):
        returned.get_best_checkpoint({"x": 1}, "loss", "min")
    for wrong in ("77", "x", trial.trial_id[:-1]):
        with pytest.raises(ConfigError, match="from 0 to 1"):
            returned.get_best_checkpoint(wrong, "loss", "min")


def test_the_members_of_the_old_releases_lead_to_the_new_ones(returned: ExperimentAnalysis) -> None:
    best = returned.best_trial
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
