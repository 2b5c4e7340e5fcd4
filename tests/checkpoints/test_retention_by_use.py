"""Which checkpoints are on the disk after a run that was told how many to keep."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import pytest

import sweep
from sweep.core.messages import CloneTrial
from sweep.schedulers import FIFOScheduler

NAN = math.nan


def report(step, **metrics):
    """Report with a checkpoint of a directory that is gone afterwards, as users write it."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "step").write_text(str(step))
        sweep.report({"step": step, **metrics}, checkpoint=sweep.Checkpoint.from_directory(directory))


def train(config):
    for step, metrics in enumerate(config["reports"], start=1):
        report(step, **metrics)


def run(tmp_path, reports, **keep):
    return sweep.run(
        train,
        config={"reports": reports},
        name="kept",
        storage_path=tmp_path,
        checkpoint_config=sweep.CheckpointConfig(**keep),
        engine="inline",
        verbose=0,
    ).trials[0]


def steps_on_disk(trial):
    names = sorted(name for name in os.listdir(trial.path) if name.startswith(("checkpoint_", "tmp-")))
    for name in names:
        assert int(Path(trial.path, name, "step").read_text()) == int(name[-6:])
    return [int(name[-6:]) for name in names]


def scored(*values):
    """Reports with these values of `acc`; None: the report has none."""
    return [{} if value is None else {"acc": value} for value in values]


BY_ACC = {"checkpoint_score_attribute": "acc"}


@pytest.mark.parametrize(
    ("reports", "keep", "expected"),
    [
        (scored(0.1, 0.2, 0.3), {}, [1, 2, 3]),
        (scored(0.9, 0.1, 0.8, 0.2), {"num_to_keep": 2}, [3, 4]),
        (scored(0.9, 0.1, 0.8, 0.2), {"num_to_keep": 1}, [4]),
        # the best, and the latest in addition
        (scored(0.9, 0.1, 0.8, 0.2), {"num_to_keep": 2, **BY_ACC}, [1, 3, 4]),
        (scored(0.9, 0.1, 0.8, 0.2), {"num_to_keep": 1, **BY_ACC}, [1, 4]),
        (scored(0.1, 0.2, 0.3), {"num_to_keep": 1, **BY_ACC}, [3]),
        (scored(0.9, 0.1, 0.8, 0.2), {"num_to_keep": 2, **BY_ACC, "checkpoint_score_order": "min"}, [2, 4]),
        # of equals the later
        (scored(0.5, 0.5, 0.5, 0.1), {"num_to_keep": 1, **BY_ACC}, [3, 4]),
        # not a number, and none at all, are worst, whichever way is best
        (scored(NAN, 0.5, NAN, 0.3), {"num_to_keep": 2, **BY_ACC}, [2, 4]),
        (scored(NAN, 0.5, 0.3, NAN), {"num_to_keep": 1, **BY_ACC, "checkpoint_score_order": "min"}, [3, 4]),
        (scored(None, 0.5, None, 0.3), {"num_to_keep": 2, **BY_ACC}, [2, 4]),
        (scored(None, None, None), {"num_to_keep": 2, **BY_ACC}, [2, 3]),
        # a path into nested metrics
        (
            [{"eval": {"acc": value}} for value in (0.3, 0.9, 0.1)],
            {"num_to_keep": 1, "checkpoint_score_attribute": "eval/acc"},
            [2, 3],
        ),
    ],
)
def test_the_best_or_the_latest_are_kept_and_the_very_latest_in_any_case(tmp_path, reports, keep, expected):
    trial = run(tmp_path, reports, **keep)
    assert steps_on_disk(trial) == expected
    assert trial.checkpoint.path.endswith(f"checkpoint_{len(reports):06d}")


def test_the_best_checkpoint_is_found_among_those_that_are_kept(tmp_path):
    run(tmp_path, scored(0.9, 0.1, 0.8, 0.2), num_to_keep=2, checkpoint_score_attribute="acc")
    result = sweep.ResultGrid(sweep.ExperimentAnalysis(tmp_path / "kept"))[0]
    kept = {os.path.basename(checkpoint.path): metrics["acc"] for checkpoint, metrics in result.best_checkpoints}
    assert kept == {"checkpoint_000001": 0.9, "checkpoint_000003": 0.8, "checkpoint_000004": 0.2}
    assert result.get_best_checkpoint("acc", "max").path.endswith("checkpoint_000001")


class CloneOnce(FIFOScheduler):
    """The second trial continues, at its first report, from what the first one has then."""

    is_stateless = False

    def on_result(self, trial, result, trials):
        source = min(trials)
        if trial.id == source or trial.attempt > 1:
            return ()
        return [CloneTrial(trial.id, source, dict(trial.config))]


def take_turns(config):
    """The source goes on only when the clone runs, and that reads its checkpoint only when the source has ended."""
    first, second = (Path(config["pipes"], name) for name in ("clone_runs", "source_ended"))
    if config["role"] == "source":
        report(1)
        Path(config["pipes"], "source_saved").write_text("")
        first.read_text()
        for step in (2, 3, 4):
            report(step)
        second.write_text("ended")
    elif sweep.get_checkpoint() is None:
        Path(config["pipes"], "source_saved").read_text()
        sweep.report({"step": 0})
    else:
        first.write_text("runs")
        second.read_text()
        with sweep.get_checkpoint().as_directory() as directory:
            sweep.report({"cloned_step": int(Path(directory, "step").read_text())})


def test_a_checkpoint_from_which_another_trial_was_cloned_stays_while_that_one_runs(tmp_path):
    for name in ("clone_runs", "source_ended", "source_saved"):
        os.mkfifo(tmp_path / name)
    analysis = sweep.run(
        take_turns,
        config={"role": sweep.grid_search(["source", "clone"]), "pipes": str(tmp_path)},
        name="cloned",
        storage_path=tmp_path,
        scheduler=CloneOnce(),
        checkpoint_config=sweep.CheckpointConfig(num_to_keep=1),
        resources_per_trial={"cpu": 0.5},
        time_budget_s=60,
        verbose=0,
    )
    source, clone = analysis.trials
    assert (source.status, clone.status, clone.attempt) == ("TERMINATED", "TERMINATED", 2)
    assert clone.last_result["cloned_step"] == 1
    assert steps_on_disk(source) == [1, 4]  # the clone has saved nothing since: it is the clone's checkpoint, too
    assert clone.checkpoint.path == f"{source.path}/checkpoint_000001"
