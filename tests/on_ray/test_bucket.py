"""A sweep on a cluster whose nodes share nothing but remote storage."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

import sweep

pytestmark = pytest.mark.ray


def test_checkpoints_travel_through_the_storage(run, left, tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "driver"))
    (tmp_path / "bucket").mkdir()
    environment = {"SWEEP_SHARED_STORAGE": "0", "SWEEP_CACHE": str(tmp_path / "node")}

    def train(config):
        start, checkpoint = 0, sweep.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as directory:
                start = int(Path(directory, "step").read_text())
        print("from", start, flush=True)
        for step in range(start + 1, 5):
            with sweep.checkpoint_dir() as directory:
                Path(directory, "step").write_text(str(step))
            sweep.report(step=step, start=start)
            if step == 2 and not start:
                raise RuntimeError("once")

    analysis = run(
        train,
        init={"runtime_env": {"env_vars": environment}},
        num_samples=8,
        max_failures=1,
        storage_path="b",
        storage_filesystem=DirFileSystem(str(tmp_path / "bucket"), LocalFileSystem()),
        checkpoint_config=sweep.CheckpointConfig(num_to_keep=1),
    )
    assert [(one.last_result["step"], one.last_result["start"]) for one in analysis.trials] == [(4, 2)] * 8
    there = tmp_path / "bucket" / "b" / "made"
    assert sorted(path.name for path in there.glob("*/checkpoint_*")) == ["checkpoint_000004.2"] * 8
    assert not (there / ".sweep-staging").exists()
    for trial in analysis.trials:
        assert "from 2" in Path(analysis.experiment_path, trial.trial_id, "output.log").read_text()
    files = [path.name for path in (tmp_path / "node" / "nodes").rglob("*") if path.is_file()]
    assert files
    assert all(name.endswith(".lock") for name in files)
    for place in (tmp_path / "node" / "nodes").glob("*/made"):
        assert left(place) == []
