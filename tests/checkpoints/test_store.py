"""Checkpoints are stored whole or not at all, and damage is named."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import threading
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from killed import MOST, ends_itself

from sweep.checkpoints.store import MANIFEST, Checkpoint, discard, fetch, free_target, persist, verify
from sweep.errors import CheckpointError, ConfigError, ExperimentError
from sweep.storage.filesystems import RemoteDirectory, home_of, remember_home


@pytest.fixture
def source(tmp_path):
    """A directory with files worth keeping."""
    directory = tmp_path / "source"
    (directory / "inner").mkdir(parents=True)
    (directory / "model").write_bytes(b"weights" * 100)
    (directory / "inner" / "state").write_text("3")
    return directory


@pytest.mark.parametrize("is_spent", [False, True])
def test_a_stored_checkpoint_has_all_files_and_passes_its_own_check(tmp_path, source, is_spent):
    persist(source, tmp_path / "t" / "checkpoint_000001", is_source_spent=is_spent)
    verify(tmp_path / "t" / "checkpoint_000001")
    assert (tmp_path / "t" / "checkpoint_000001" / "inner" / "state").read_text() == "3"
    assert os.listdir(tmp_path / "t") == ["checkpoint_000001"]
    assert source.exists() != is_spent


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda d: (d / "model").unlink(), "model is missing"),
        (lambda d: (d / "model").write_bytes(b"weights" * 99), "model has 693 bytes, expected 700"),
        (lambda d: (d / "model").write_bytes(b"Weights" + b"weights" * 99), "the contents of model have changed"),
        (lambda d: (d / MANIFEST).write_text("{"), "manifest cannot be read"),
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


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_writer_killed_anywhere_leaves_a_whole_checkpoint_or_a_stray(tmp_path, source, is_torn):
    found = set()
    for at in range(1, MOST):
        place = tmp_path / str(at)
        place.mkdir()
        is_killed = ends_itself(lambda place=place: persist(source, place / "checkpoint_000001"), place, at, is_torn)
        for name in os.listdir(place):
            found.add(name[:4])
            if name == "checkpoint_000001":
                verify(place / name)
        if not is_killed:
            break
    assert found == {"chec", "tmp-"}
    assert 4 < at < MOST - 1


def test_discard_removes_a_checkpoint_and_one_that_is_gone_is_fine(tmp_path, source):
    persist(source, tmp_path / "t" / "checkpoint_000001")
    discard(tmp_path / "t" / "checkpoint_000001")
    discard(tmp_path / "t" / "checkpoint_000001")
    assert os.listdir(tmp_path / "t") == []


def test_a_target_that_exists_gets_the_attempts_number_appended(tmp_path):
    for expected in ("checkpoint_000001", "checkpoint_000001.2", "checkpoint_000001.2.2"):
        assert free_target(tmp_path, "checkpoint_000001", 2) == str(tmp_path / expected)
        os.mkdir(tmp_path / expected)


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


# --- on other machines ---


@pytest.fixture
def bucket(monkeypatch):
    """An empty object store."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return fsspec.filesystem("memory")


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where temporary directories are made."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def put(bucket, source, path):
    stored = source.parent / "stored" / "checkpoint_000001"
    if not stored.exists():
        persist(source, stored)
    bucket.put(f"{stored}/", path, recursive=True)


def test_a_remote_checkpoint_is_downloaded_for_a_block_and_users_share_the_download(bucket, source, scratch):
    put(bucket, source, "/b/run/t/checkpoint_000001")
    checkpoint = Checkpoint("memory://b/run/t/checkpoint_000001")
    assert (checkpoint.path, type(checkpoint.filesystem)) == ("/b/run/t/checkpoint_000001", MemoryFileSystem)
    assert repr(checkpoint) == "Checkpoint('memory://b/run/t/checkpoint_000001')"
    inside = []
    with checkpoint.as_directory() as directory:
        assert Path(directory, "inner", "state").read_text() == "3"
        assert not Path(directory, MANIFEST).exists()

        def other():
            with Checkpoint("b/run/t/checkpoint_000001", filesystem=bucket).as_directory() as same:
                inside.append(same)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert inside == [directory]
        assert Path(directory, "model").exists()
    assert os.listdir(scratch) == []
    with checkpoint.as_directory() as directory:
        assert Path(directory, "model").read_bytes() == b"weights" * 100
    copy = checkpoint.to_directory()
    assert sorted(os.listdir(copy)) == ["inner", "model"]


def test_a_remote_checkpoint_has_metadata_and_is_equal_to_itself_after_pickling(bucket, source):
    put(bucket, source, "/b/checkpoint_000001")
    checkpoint = Checkpoint("memory://b/checkpoint_000001")
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"a": 1})
    checkpoint.update_metadata({"b": 2})
    again = pickle.loads(pickle.dumps(checkpoint))
    assert again.get_metadata() == {"a": 1, "b": 2}
    assert again == checkpoint
    assert hash(again) == hash(checkpoint)
    assert again != Checkpoint("/b/checkpoint_000001")
    assert again != Checkpoint("/b/checkpoint_000001", filesystem=DirFileSystem("/elsewhere", bucket))
    with pytest.raises(CheckpointError, match="no checkpoint at memory://b/nowhere"):
        Checkpoint("memory://b/nowhere").set_metadata({})


@pytest.mark.parametrize(
    "given",
    [
        lambda path: Checkpoint(f"file://{path}"),
        lambda path: Checkpoint(path, filesystem=fsspec.filesystem("file")),
        lambda path: Checkpoint(Path(path)),
    ],
)
def test_a_directory_of_this_machine_is_used_in_place_however_it_is_named(source, given):
    checkpoint = given(str(source))
    assert checkpoint == Checkpoint(str(source))
    assert (checkpoint.path, checkpoint.filesystem) == (str(source), None)
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint
    with checkpoint.as_directory() as directory:
        assert directory == str(source)


def test_a_remote_checkpoint_that_is_gone_or_cut_is_refused_and_leaves_no_directory(bucket, source, scratch):
    checkpoint = Checkpoint("memory://b/checkpoint_000001")
    with pytest.raises(CheckpointError, match="no checkpoint at memory://b/checkpoint_000001"):
        checkpoint.to_directory()
    put(bucket, source, "/b/checkpoint_000001")
    bucket.pipe_file("/b/checkpoint_000001/model", b"weights")
    with pytest.raises(CheckpointError, match="model has 7 bytes, expected 700"), checkpoint.as_directory():
        pass
    with pytest.raises(CheckpointError, match="no checkpoint at /nowhere"):
        Checkpoint("/nowhere").to_directory()
    assert os.listdir(scratch) == []


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda c: Checkpoint.from_dict({}), r"Write the dict to a file in a directory and call Checkpoint.from_dir"),
        (lambda c: c.to_dict(), r"Checkpoint.to_dict is gone: .*with checkpoint\.as_directory\(\)"),
        (lambda c: Checkpoint.from_uri("s3://b/c"), r"Write Checkpoint\(uri\)"),
        (lambda c: c.to_uri("s3://b/c"), "Pass storage_path=uri to the run"),
        (lambda c: Checkpoint.from_bytes(b""), "Write the bytes to a file"),
        (lambda c: c.to_bytes(), r"with checkpoint\.as_directory\(\)"),
    ],
)
def test_what_tune_once_had_says_what_to_write_instead(tmp_path, call, advice):
    with pytest.raises(CheckpointError, match=advice):
        call(Checkpoint(tmp_path))


def test_a_checkpoint_is_a_path_and_has_the_names_that_tune_once_had(tmp_path):
    (tmp_path / "model").write_text("m")
    checkpoint = Checkpoint(tmp_path)
    assert os.path.join(checkpoint, "model") == str(tmp_path / "model")
    assert checkpoint.value == checkpoint.dir_or_data == str(tmp_path)
    assert checkpoint.to_air_checkpoint() == checkpoint
    with pytest.raises(CheckpointError, match="lies elsewhere; read it by"):
        os.fspath(Checkpoint("memory://bucket/checkpoint"))
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        os.fspath(Checkpoint(tmp_path / "gone"))


def test_a_protocol_that_lacks_its_package_is_named(monkeypatch):
    def lacking(uri):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lacking)
    with pytest.raises(ConfigError, match=r"cannot be used: Install s3fs to access S3\."):
        Checkpoint("s3://b/c")


def test_a_fetched_checkpoint_is_whole_and_one_that_has_changed_or_is_half_uploaded_is_refused(
    tmp_path, bucket, source
):
    put(bucket, source, "/b/t/checkpoint_000001")
    remote = RemoteDirectory(bucket, "/b/t/checkpoint_000001")
    target = tmp_path / "here" / "checkpoint_000001"
    fetch(remote, target)
    verify(target)
    fetch(remote, target)
    bucket.pipe_file("/b/t/checkpoint_000001/model", b"Weights" * 100)
    with pytest.raises(CheckpointError, match="contents of model have changed"):
        fetch(remote, tmp_path / "here" / "checkpoint_000002")
    bucket.rm_file(f"/b/t/checkpoint_000001/{MANIFEST}")
    with pytest.raises(CheckpointError, match="its upload did not end"):
        fetch(remote, tmp_path / "here" / "checkpoint_000002")
    assert os.listdir(target.parent) == ["checkpoint_000001"]


def test_names_that_lead_out_of_a_remote_directory_are_not_followed(tmp_path, bucket):
    remote = RemoteDirectory(bucket, "/b")
    with pytest.raises(ExperimentError, match="lies outside"):
        remote.get("../secret", tmp_path / "here" / "secret")


def test_a_missing_checkpoint_of_a_copy_is_fetched_when_it_is_used(tmp_path, bucket, source):
    put(bucket, source, "/b/run/t/checkpoint_000001")
    root = tmp_path / "copy" / "run"
    remember_home(root, RemoteDirectory(bucket, "/b/run", "memory://b/run"))
    place = root / "t" / "checkpoint_000001"
    assert Checkpoint(place).get_metadata() == {}
    verify(place)
    with pytest.raises(CheckpointError, match="no checkpoint at memory://b/run/t/checkpoint_000002"):
        Checkpoint(root / "t" / "checkpoint_000002").to_directory()


@pytest.mark.parametrize(("uri", "is_found"), [("memory://b/run", True), ("", False)])
def test_another_process_knows_the_home_of_a_copy_by_its_uri_only(tmp_path, bucket, monkeypatch, uri, is_found):
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path))
    root = tmp_path / "run"
    remember_home(root, RemoteDirectory(bucket, "/b/run", uri))
    monkeypatch.setattr("sweep.storage.filesystems._homes", {})
    if is_found:
        assert home_of(root) == RemoteDirectory(bucket, "/b/run")
        assert home_of(tmp_path) is None
    else:
        with pytest.raises(CheckpointError, match="it lies in memory://b/run; open the experiment with storage_files"):
            Checkpoint(root / "t" / "checkpoint_000001").to_directory()
    assert oct((root / ".sweep-remote.json").stat().st_mode & 0o777) == "0o600"
    assert json.loads((root / ".sweep-remote.json").read_text()) == {"uri": uri, "shown": "memory://b/run"}


@pytest.mark.parametrize("target", [".", "inner", "inner/deeper"])
def test_a_copy_of_a_checkpoint_into_itself_is_refused(tmp_path, target):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_text("x")
    with pytest.raises(CheckpointError, match="expected a directory outside of it"):
        Checkpoint.from_directory(tmp_path).to_directory(tmp_path / target)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "inner"]
    assert Checkpoint.from_directory(tmp_path / "inner").to_directory(tmp_path / "beside")


@pytest.mark.parametrize("way", ["as_directory", "to_directory"])
def test_a_damaged_checkpoint_is_not_handed_out(tmp_path, source, way):
    def open_it():
        checkpoint = Checkpoint(tmp_path / "checkpoint_000001")
        if way == "to_directory":
            return Path(checkpoint.to_directory(tmp_path / "copy"))
        with checkpoint.as_directory() as directory:
            return Path(directory)

    persist(source, tmp_path / "checkpoint_000001")
    (tmp_path / "checkpoint_000001" / "notes.txt").touch()  # what somebody adds is no damage
    assert (open_it() / "model").is_file()
    (tmp_path / "checkpoint_000001" / "model").write_bytes(bytes(700))
    with pytest.raises(CheckpointError, match="contents of model have changed"):
        open_it()
