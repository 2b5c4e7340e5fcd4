"""What a run does beside its commits so that a power cut takes nothing that cannot be had again."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sealed import changed

import sweep
from sweep.errors import ConfigError, ExperimentError, RecordError
from sweep.launch import launcher
from sweep.record import journal
from sweep.record.journal import flush_log


def train(config: dict[str, Any]) -> None:
    for step in range(1, 4):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            sweep.report(loss=config["x"] / step, checkpoint=sweep.Checkpoint(directory))


def run(root: Path, **given: Any) -> sweep.ExperimentAnalysis:
    options: dict[str, Any] = {"config": {"x": sweep.uniform(1, 2)}, "num_samples": 3, "engine": "inline", "seed": 1}
    options |= {"metric": "loss", "mode": "min", "verbose": 0, "storage_path": root, "name": "made"}
    return sweep.run(train, **(options | given), checkpoint_config=sweep.CheckpointConfig(num_to_keep=1))


def checkpoints(root: Path) -> list[str]:
    return sorted(f"{path.parent.name[-1]}/{path.name}" for path in (root / "made").glob("*/*checkpoint_*"))


@pytest.mark.parametrize("durability", ["normal", "full"])
def test_at_the_end_everything_is_flushed_folded_and_deleted(tmp_path: Path, durability: str) -> None:
    run(tmp_path, durability=durability)
    assert checkpoints(tmp_path) == [f"{number}/checkpoint_000003" for number in range(3)]
    assert [path.name for path in (tmp_path / "made").glob("sweep.db*")] == ["sweep.db"]


@pytest.mark.parametrize("level", ["safe", "group", "fast"])
def test_another_level_is_refused(tmp_path: Path, level: str) -> None:
    with pytest.raises(ConfigError, match="durability"):
        run(tmp_path, durability=level)


def test_a_flush_that_fails_ends_the_run_with_one_message_and_it_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, number = journal._flush, 0

    def failing(log: int) -> None:
        nonlocal number
        number += 1
        if number == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(log)

    monkeypatch.setattr(journal, "_flush", failing)
    with pytest.raises(RecordError, match="could not be flushed to its disk"):
        run(tmp_path, num_samples=20)
    assert number == 1
    analysis = run(tmp_path, num_samples=20, resume=True)
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    assert sweep.replay(tmp_path / "made").differences == []


def test_what_a_killed_driver_left_is_flushed_before_anything_is_deleted_because_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    stray = next((tmp_path / "made").glob("*_00001")) / "checkpoint_000009"
    stray.mkdir()

    def failing(database: Path) -> None:
        assert database == tmp_path / "made" / "sweep.db"
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(launcher, "flush_log", failing)
    with pytest.raises(ExperimentError, match=r"could not be flushed .*Input/output error.* nothing was changed"):
        run(tmp_path, resume=True)
    assert stray.exists()
    monkeypatch.setattr(launcher, "flush_log", flush_log)
    run(tmp_path, resume=True)
    assert not stray.exists()


def test_the_directory_of_a_trial_that_a_power_cut_has_taken_from_the_record_is_moved_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path)
    root = tmp_path / "made"
    (lost,) = root.glob("*_00002")
    with changed(root / "sweep.db") as db:
        (seq,) = db.execute("SELECT min(seq) FROM event WHERE trial_id = ?", (lost.name,)).fetchone()
        db.execute("DELETE FROM event WHERE seq >= ?", (seq,))
        db.execute("DELETE FROM trial WHERE trial_id = ?", (lost.name,))
        last = "(SELECT max(seq) FROM result r WHERE r.trial_id = trial.trial_id)"
        change = f"json_object('last_result', {last}, 'best_result', {last})"
        db.execute(f"UPDATE trial SET state = json_patch(state, {change})")
        db.execute("DELETE FROM meta WHERE key = 'are_log_files_complete'")
    (lost / "notes.txt").write_text("mine")
    analysis = run(tmp_path, resume=True, verbose=1)
    aside = root / f"unknown_{lost.name}"
    assert f"the record knows nothing of the trial of {lost.name}" in capsys.readouterr().err
    assert (aside / "notes.txt").read_text() == "mine"
    assert [trial.status for trial in analysis.trials] == ["TERMINATED"] * 3
    rows = [json.loads(line)["training_iteration"] for line in (lost / "result.json").read_text().splitlines()]
    assert rows == [1, 2, 3]
