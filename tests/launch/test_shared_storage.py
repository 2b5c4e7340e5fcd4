"""Runs whose storage several machines see: the record is worked on beside it, published in it, and taken over."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import sweep
from sweep.cli.main import sweep as command_line
from sweep.errors import ExperimentError, RecordError
from sweep.record.lock import DriverLock
from sweep.record.reader import ExperimentReader
from sweep.simulation.replay import replay
from sweep.storage import send
from sweep.storage.shared import SharedRecord, home_of, live_record

SCRIPT = """
import os, signal, sys
from sweep.storage import send
from sweep.record.journal import Journal
sys.path.insert(0, sys.argv[1])
from test_shared_storage import run
send._SHARED_GAP_S = 0.001
commit, count = Journal.commit, 0

def dying(self, *arguments):
    global count
    commit(self, *arguments)
    count += 1
    if count == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

Journal.commit = dying
run(sys.argv[2], sys.argv[3])
"""


def train(config: dict[str, Any]) -> None:
    done = 0
    checkpoint = sweep.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            done = json.loads(Path(directory, "done.json").read_text())
    for step in range(done + 1, 6):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "done.json").write_text(json.dumps(step))
            sweep.report(loss=config["x"] / step, checkpoint=sweep.Checkpoint(directory))


def run(root: Path | str, name: str = "made", **given: Any) -> sweep.ExperimentAnalysis:
    options: dict[str, Any] = {"config": {"x": sweep.uniform(1, 2)}, "num_samples": 4, "engine": "inline", "seed": 1}
    options |= {"metric": "loss", "mode": "min", "verbose": 0, "storage_path": root, "name": name}
    keep = sweep.CheckpointConfig(num_to_keep=1)
    return sweep.run(train, **(options | given), checkpoint_config=keep)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEP_SHARED_STORAGE", "1")
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "first"))
    monkeypatch.setattr(send, "_SHARED_GAP_S", 0.001)
    return tmp_path / "storage"


def results_of(analysis: sweep.ExperimentAnalysis) -> list[tuple[Any, ...]]:
    return [(trial.config["x"], trial.status, trial.count, trial.last_result["loss"]) for trial in analysis.trials]


def test_a_run_leaves_one_whole_record_in_the_storage_and_none_in_the_cache(storage: Path, tmp_path: Path) -> None:
    analysis = run(storage)
    assert {trial.status for trial in analysis.trials} == {"TERMINATED"}
    root = storage / "made"
    names = {path.name for path in root.iterdir() if not path.is_dir()}
    assert names == {"sweep.db", "driver.lock", "tuner.pkl", ".sweep-record.json"}
    assert (root / "sweep.db").read_bytes()[18:20] == b"\x01\x01"  # no write-ahead log
    assert list((tmp_path / "first" / "records").iterdir()) == []
    for trial in analysis.trials:
        assert [path.name for path in Path(trial.path).glob("checkpoint_*")] == ["checkpoint_000005"]
    assert replay(root).is_same
    shown = CliRunner().invoke(command_line, ["ls", "--storage", str(storage)])
    assert "ended" in shown.output


@pytest.mark.parametrize(
    "number", [5, *[pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 8, 11, 14, 17, 23, 26)]]
)
def test_a_driver_is_killed_and_its_sweep_goes_on_here_or_elsewhere(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    expected = results_of(run(tmp_path / "other"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(storage), "made", str(number)],
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    root = storage / "made"
    committed = ExperimentReader(root).snapshot().seq
    assert live_record(root) == home_of(root) / "sweep.db"
    shutil.copytree(storage, tmp_path / "left", symlinks=True)

    assert results_of(run(storage, resume=True)) == expected
    assert ExperimentReader(root).snapshot().seq > committed
    assert replay(root).is_same

    shutil.rmtree(storage)
    (tmp_path / "left").rename(storage)
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "second"))
    assert ExperimentReader(root).snapshot().seq <= committed
    assert results_of(run(storage, resume=True)) == expected
    assert replay(root).is_same


def test_what_was_shared_goes_on_with_every_commit_where_it_is_shared_no_more(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "_SHARED_GAP_S", 60.0)  # nothing but the beginning is published
    expected = results_of(run(tmp_path / "other"))

    with monkeypatch.context() as patch:
        patch.setattr(SharedRecord, "end", lambda record: 1 / 0)
        run(storage, num_samples=2, sync_config=sweep.SyncConfig(sync_timeout=0.1))
    root = storage / "made"
    committed = ExperimentReader(root).snapshot().seq
    assert live_record(root) == home_of(root) / "sweep.db"
    monkeypatch.setenv("SWEEP_SHARED_STORAGE", "0")
    assert results_of(run(storage, resume=True)) == expected
    assert ExperimentReader(root).snapshot().seq > committed
    assert replay(root).is_same
    assert not home_of(root).exists()


def test_nothing_is_made_where_the_cache_is_seen_by_other_machines_too(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = [SimpleNamespace(mountpoint=str(tmp_path), fstype="nfs4")]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts)
    monkeypatch.delenv("SWEEP_SHARED_STORAGE")
    with pytest.raises(ExperimentError, match=r"nfs4 at .* log is not safe, .* Set SWEEP_CACHE to a directory"):
        run(storage)
    assert not storage.exists()


def test_a_sweep_whose_local_record_is_deleted_stops(storage: Path) -> None:
    def forgets(config: dict[str, Any]) -> None:
        sweep.report(loss=1.0)
        (home_of(storage / "made") / "sweep.db").unlink()
        sweep.report(loss=0.5)

    with pytest.raises(RecordError, match=r"records/made-.*/sweep\.db was deleted or replaced while its sweep ran"):
        sweep.run(forgets, config={"x": 1.0}, storage_path=storage, name="made", verbose=0, engine="inline")
    DriverLock(storage / "made" / "driver.lock").release()  # it was let go
    (trial,) = run(storage, num_samples=1, resume=True).trials
    assert trial.status == "TERMINATED"
