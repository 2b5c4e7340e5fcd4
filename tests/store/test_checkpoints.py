"""Checkpoints are stored whole or not at all, and damage is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.errors import CheckpointError
from sweep.store.checkpoints import MANIFEST, Checkpoint, discard, free_target, persist, sweep_strays, verify


@pytest.fixture
def source(tmp_path):
    """A directory with files worth keeping."""
    directory = tmp_path / "source"
    (directory / "inner").mkdir(parents=True)
    (directory / "model").write_bytes(b"weights" * 100)
    (directory / "inner" / "state").write_text("3")
    return directory


def test_a_stored_checkpoint_has_all_files_and_passes_its_own_check(tmp_path, source):
    persist(source, tmp_path / "t" / "checkpoint_000001")
    verify(tmp_path / "t" / "checkpoint_000001")
    assert (tmp_path / "t" / "checkpoint_000001" / "inner" / "state").read_text() == "3"
    assert os.listdir(tmp_path / "t") == ["checkpoint_000001"]
    assert (source / "model").exists()


def test_a_spent_source_is_moved(tmp_path, source):
    persist(source, tmp_path / "checkpoint_000001", is_source_spent=True)
    verify(tmp_path / "checkpoint_000001")
    assert not source.exists()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda d: (d / "model").unlink(), "model is missing"),
        (lambda d: (d / "model").write_bytes(b"weights" * 99), "model has 693 bytes, expected 700"),
        (lambda d: (d / "model").write_bytes(b"Weights" + b"weights" * 99), "the contents of model have changed"),
        (lambda d: (d / "more").touch(), "more was added"),
        (lambda d: (d / MANIFEST).write_text("{"), "manifest cannot be read"),
        (lambda d: (d / MANIFEST).unlink(), "has no manifest"),
    ],
)
def test_damage_is_named(tmp_path, source, damage, says):
    target = tmp_path / "checkpoint_000001"
    persist(source, target)
    damage(target)
    with pytest.raises(CheckpointError, match=says):
        verify(target)


def test_a_missing_checkpoint_a_missing_source_and_an_existing_target_are_refused(tmp_path, source):
    with pytest.raises(CheckpointError, match="is missing"):
        verify(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="there is nothing"):
        persist(tmp_path / "nowhere", tmp_path / "target")
    with pytest.raises(CheckpointError, match="there is a file"):
        persist(source / "model", tmp_path / "target")
    persist(source, tmp_path / "target")
    with pytest.raises(CheckpointError, match="never changed"):
        persist(source, tmp_path / "target")


@pytest.mark.parametrize("call", ["fsync", "rename", "copytree", "_write_synced"])
def test_a_writer_killed_anywhere_leaves_a_whole_checkpoint_or_a_stray(tmp_path, source, call):
    # Dies at each call of that name in turn, until one run gets to its end.
    script = (
        "import os, shutil, sys\nfrom sweep.store import checkpoints\n"
        "name = sys.argv[3]\n"
        "home = {'fsync': os, 'rename': os, 'copytree': shutil}.get(name, checkpoints)\n"
        "real, calls = getattr(home, name), []\n"
        "def counted(*args, **kwargs):\n"
        "    calls.append(1)\n"
        "    if len(calls) == die_at and when == 'before': os._exit(9)\n"
        "    value = real(*args, **kwargs)\n"
        "    if len(calls) == die_at: os._exit(9)\n"
        "    return value\n"
        "for die_at in range(1, 50):\n"
        "    for when in ('before', 'after'):\n"
        "        pid = os.fork()\n"
        "        if pid == 0:\n"
        "            setattr(home, name, counted)\n"
        "            checkpoints.persist(sys.argv[1], f'{sys.argv[2]}/{die_at}{when}/checkpoint_000001')\n"
        "            os._exit(0)\n"
        "        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0: print(die_at); sys.exit()\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", script, source, out, call],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    places = sorted(out.iterdir())
    assert len(places) >= 2
    for place in places:
        for name in os.listdir(place):
            if name.startswith("checkpoint_"):
                verify(place / name)
            else:
                assert name.startswith("tmp-")
        sweep_strays(place)
        assert os.listdir(place) in ([], ["checkpoint_000001"])


def test_strays_and_unreferenced_checkpoints_are_swept_and_the_others_stay(tmp_path):
    for name in ("tmp-checkpoint_000003-1-0", "checkpoint_000001", "checkpoint_000002", "checkpoint_000002.2", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "tmp-notes.txt").touch()
    assert sweep_strays(tmp_path) == ["tmp-checkpoint_000003-1-0"]
    assert sweep_strays(tmp_path, keep=["abcde_00000/checkpoint_000002.2"]) == [
        "checkpoint_000001",
        "checkpoint_000002",
    ]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint_000002.2", "mine", "tmp-notes.txt"]
    assert sweep_strays(tmp_path / "nowhere") == []


def test_discard_removes_a_checkpoint_and_one_that_is_gone_is_fine(tmp_path, source):
    persist(source, tmp_path / "t" / "checkpoint_000001")
    discard(tmp_path / "t" / "checkpoint_000001")
    discard(tmp_path / "t" / "checkpoint_000001")
    assert os.listdir(tmp_path / "t") == []


def test_a_target_that_exists_gets_the_attempts_number_appended(tmp_path):
    names = []
    for _ in range(3):
        path = free_target(tmp_path, "checkpoint_000001", 2)
        os.mkdir(path)
        names.append(os.path.basename(path))
    assert names == ["checkpoint_000001", "checkpoint_000001.2", "checkpoint_000001.2.2"]


def test_a_checkpoint_is_copied_out_read_in_place_and_carries_metadata(tmp_path, source):
    persist(source, tmp_path / "checkpoint_000001")
    checkpoint = Checkpoint.from_directory(tmp_path / "checkpoint_000001")
    checkpoint.set_metadata({"a": 1})
    checkpoint.update_metadata({"b": 2})
    assert checkpoint.get_metadata() == {"a": 1, "b": 2}
    verify(checkpoint.path)
    copy = checkpoint.to_directory(tmp_path / "copy")
    assert (Path(copy) / "inner" / "state").read_text() == "3"
    assert not (Path(copy) / MANIFEST).exists()
    with checkpoint.as_directory() as directory:
        assert directory == checkpoint.path
    assert checkpoint == Checkpoint(str(tmp_path / "checkpoint_000001"))
    with pytest.raises(CheckpointError, match="must be JSON"):
        checkpoint.set_metadata({"a": object()})


def test_a_checkpoint_that_is_gone_or_was_made_from_something_else_says_what_to_do(tmp_path):
    with pytest.raises(CheckpointError, match="num_to_keep"):
        Checkpoint(tmp_path / "nowhere").to_directory()
    with pytest.raises(CheckpointError, match="expected the path of a directory"):
        Checkpoint({"state": 1})
