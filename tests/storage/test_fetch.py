"""Remote storage is proven before anything starts, and an experiment comes back from it, never over a newer one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from made_experiment import MadeExperiment
from sealed import seal

from sweep.checkpoints.store import MANIFEST, Checkpoint, verify
from sweep.errors import CheckpointError, ConfigError, ExperimentError
from sweep.record.db import open_for_reading
from sweep.record.layout import ExperimentLayout, copy_root
from sweep.record.lock import DriverLock
from sweep.record.reader import ExperimentReader
from sweep.record.snapshot import copy_record
from sweep.record.stored import references
from sweep.storage.fetch import existing_checkpoints, has_experiment, open_storage_for_reading, pull
from sweep.storage.filesystems import remember_home, storage_of
from sweep.storage.local_copy import is_mirrored
from sweep.storage.location import Storage, check_writable, parse_storage
from sweep.storage.mirror import Mirror
from sweep.storage.ownership import LocalState, Owner


@pytest.fixture
def storage():
    return parse_storage("memory://b/dir")


def made(storage, **meta):
    experiment = MadeExperiment(storage.local_root, **meta)
    experiment.commit()
    return experiment


def uploaded(storage, experiment, **how):
    Mirror(storage.remote / experiment.root.name, experiment.root).sync(**how)


def lose(experiment, directory=None):
    experiment.close()
    shutil.rmtree(directory or experiment.root)


# --- what storage_path means ---


def test_a_local_path_is_what_it_was(tmp_path, monkeypatch):
    assert parse_storage(tmp_path) == Storage(tmp_path)
    assert parse_storage(f"file://{tmp_path}/x") == Storage(tmp_path / "x")
    assert parse_storage(str(tmp_path), fsspec.filesystem("file")) == Storage(tmp_path)
    assert parse_storage() == Storage(Path("sweep_results").absolute())
    assert parse_storage(tmp_path).describe("a") == str(tmp_path / "a")
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path))
    assert parse_storage() == Storage(tmp_path)


def test_a_uri_is_worked_on_in_one_directory_of_the_cache(cache, monkeypatch):
    storage = parse_storage("memory://b/dir/")
    assert (storage.remote.uri, storage.remote.path) == ("memory://b/dir", "/b/dir")
    assert storage.local_root.parent == cache / "remote"
    assert storage.local_root.name.startswith("memory-b-dir-")
    assert storage.local_root == parse_storage("memory://b/dir").local_root == copy_root("memory://b/dir")
    assert storage.local_root != parse_storage("memory://b/dir2").local_root
    assert storage.describe("a") == "memory://b/dir/a"
    assert str(storage.remote / "a") == "memory://b/dir/a"
    monkeypatch.setenv("SWEEP_STORAGE", "memory://b/dir")
    assert parse_storage() == storage
    assert parse_storage("memory://").describe("a") == "memory://a"


def test_a_file_system_of_ones_own_is_told_from_others_by_what_it_is(tmp_path):
    ours, theirs = (DirFileSystem(str(tmp_path / name), fsspec.filesystem("file")) for name in ("ours", "theirs"))
    storage = parse_storage("/exp", ours)
    assert str(storage) == f"file://{tmp_path}/ours/exp"
    assert (storage.remote.uri, storage.remote.path) == ("", "exp")
    assert storage.local_root == parse_storage("exp/", ours).local_root
    assert storage.local_root != parse_storage("exp", theirs).local_root


def test_a_file_system_of_pyarrow_is_known_by_its_kind():
    of_pyarrow = type("S3FileSystem", (), {"type_name": "s3", "__module__": "pyarrow._s3fs"})()
    remote = parse_storage("b/dir", of_pyarrow).remote
    assert (str(remote), remote.uri, remote.is_object_store) == ("s3://b/dir", "", True)


@pytest.mark.parametrize(
    ("path", "filesystem", "says"),
    [
        ("memory://b?endpoint_override=x", None, r"options behind '\?'.*fsspec\.filesystem\('memory', endpoint_url"),
        ("memry://b", None, "Protocol not known: memry"),
        (None, MemoryFileSystem(), "storage_filesystem was given without storage_path"),
        ("b", object(), "expected a file system of fsspec"),
    ],
)
def test_storage_that_cannot_be_meant_is_refused(path, filesystem, says):
    with pytest.raises(ConfigError, match=says):
        parse_storage(path, filesystem)


def test_a_bucket_must_have_a_name_and_the_name_of_a_copy_holds_no_password(monkeypatch):
    assert "secret" not in copy_root("sftp://me:secret@host/dir").name
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda uri: (MemoryFileSystem(), ""))
    with pytest.raises(ConfigError, match="names no bucket; expected s3://bucket/directory"):
        parse_storage("s3://")


def test_storage_is_tried_before_anything_starts(tmp_path, storage, monkeypatch):
    check_writable(parse_storage(tmp_path))
    check_writable(storage)
    assert storage.remote.find() == {}
    check_writable(parse_storage("new/dir", DirFileSystem(str(tmp_path), fsspec.filesystem("file"))))
    assert list((tmp_path / "new" / "dir").iterdir()) == []

    def refuse(*arguments, **how):
        raise PermissionError("Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    with pytest.raises(ExperimentError, match="memory://b/dir cannot be written: PermissionError: Access Denied"):
        check_writable(storage)


def test_what_belongs_to_this_machine_stays_here():
    sent = ("tuner.pkl", "abcde_00000", "codebook.txt")
    kept = ("code", "driver.lock", "sweep.db-wal", ".sweep-mirror.json.123", "..sweep-mirror.json.123")
    names = (*sent, *kept, ".probe-12", "tmp-x")
    assert tuple(name for name in names if is_mirrored(name)) == sent


# --- bringing it back ---


def test_a_lost_experiment_comes_back_with_what_its_trials_need(storage):
    experiment = made(storage)
    done, going, failed = (experiment.trial({"x": x}) for x in range(3))
    for trial_id in (done, going, failed):
        for number in (1, 2):
            experiment.save(trial_id, number)
        (experiment.root / trial_id / "result.json").write_text("{}\n")
        (experiment.root / trial_id / "plot.png").write_text("plot")
    experiment.end(done)
    experiment.end(failed, kind="RAISED")
    experiment.commit()
    (experiment.root / "tuner.pkl").write_bytes(b"saved spec")
    (experiment.root / "driver.lock").write_text("here")
    uploaded(storage, experiment, with_artifacts=True)
    before = ExperimentReader(experiment.root).snapshot()
    lose(experiment, storage.local_root)

    assert has_experiment(storage, "made")
    assert not has_experiment(storage, "other")
    assert pull(storage, "made")
    assert ExperimentReader(experiment.root).snapshot().trials == before.trials
    here = sorted(str(path.relative_to(experiment.root)) for path in experiment.root.rglob("checkpoint_*"))
    assert here == [f"{trial_id}/checkpoint_00000{n}" for trial_id in (going, failed) for n in (1, 2)]
    for path in here:
        verify(experiment.root / path)
    assert (experiment.root / done / "result.json").read_text() == "{}\n"
    assert (experiment.root / done / "plot.png").read_text() == "plot"
    assert (experiment.root / "tuner.pkl").read_bytes() == b"saved spec"
    assert not list(storage.local_root.glob(".incoming*"))
    assert not pull(storage, "made")
    # the rest comes when it is used
    paths = [f"{done}/checkpoint_000002", f"{done}/checkpoint_000009"]
    assert existing_checkpoints(experiment.root, paths) == paths[:1]
    with Checkpoint(experiment.root / done / "checkpoint_000002").as_directory() as directory:
        assert Path(directory, "model").read_text() == f"{done} 2"


def test_a_newer_local_copy_stays_and_an_older_one_is_replaced(tmp_path, storage):
    experiment = made(storage)
    trial_id = experiment.trial({"x": 1})
    experiment.commit()
    uploaded(storage, experiment)
    older = tmp_path / "older"
    copy_record(experiment.root / "sweep.db", older)
    experiment.save(trial_id, 1)
    assert not pull(storage, "made")  # what is here went further
    (experiment.root / ".sweep-mirror.json").unlink()  # also when only the records themselves can tell
    assert not pull(storage, "made")
    assert ExperimentReader(experiment.root).trial(trial_id).count == 1
    uploaded(storage, experiment)
    newer = ExperimentReader(experiment.root).snapshot()
    experiment.db.close()
    shutil.rmtree(experiment.root)
    experiment.root.mkdir()
    with contextlib.closing(sqlite3.connect(older)) as db:  # killed while something was only in the log
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("INSERT INTO meta VALUES ('of', '\"the log\"', 0)")
        seal(db)
        db.commit()
        for place in ("", "-wal"):
            shutil.copy(f"{older}{place}", experiment.root / f"sweep.db{place}")

    assert pull(storage, "made")
    assert ExperimentReader(experiment.root).snapshot().trials == newer.trials
    assert "of" not in ExperimentReader(experiment.root).meta
    verify(experiment.root / trial_id / "checkpoint_000001")
    assert Owner.of(storage.remote / "made").seq == newer.seq


def parted(tmp_path, storage):
    """Another experiment lies at the remote place than here; return the root of what is here, and its state."""
    experiment = made(storage)
    experiment.commit()
    uploaded(storage, experiment)
    ours = tmp_path / "ours"
    experiment.trial({"x": 1}, at=1.0)
    experiment.commit()
    shutil.copytree(experiment.root, ours)
    lose(experiment)

    (storage.remote / "made").remove_tree("")
    elsewhere = made(storage)
    for x in range(3):
        elsewhere.trial({"x": x}, at=2.0)
    elsewhere.commit()
    uploaded(storage, elsewhere)
    lose(elsewhere)
    shutil.copytree(ours, elsewhere.root)
    return elsewhere.root, LocalState.load(elsewhere.root)


def test_copies_that_parted_though_nobody_took_over_are_refused_and_nothing_is_changed(tmp_path, storage):
    root, state = parted(tmp_path, storage)
    LocalState(state.version, state.run, epoch=9).save(root)
    with pytest.raises(ExperimentError, match=r"do not continue each other: they are two experiments") as error:
        pull(storage, "made")
    said = str(error.value)
    assert "memory://b/dir/made (up to event 3, sent by pid " in said
    assert f"{root}/sweep.db (up to event 1)" in said
    assert said.endswith(f"rm -r {root}")
    assert len(ExperimentReader(root).trials()) == 1
    assert not list(storage.local_root.glob(".incoming*"))


def test_a_copy_without_which_another_driver_went_on_is_set_aside(cache, tmp_path, storage):
    root, _ = parted(tmp_path, storage)
    with pytest.warns(UserWarning, match=rf"up to event 1, but a driver \(pid .*kept in {cache}/superseded/made"):
        assert pull(storage, "made")
    assert len(ExperimentReader(root).trials()) == 3
    assert len(ExperimentReader(cache / "superseded" / "made").trials()) == 1


def test_an_experiment_that_a_driver_uses_is_not_replaced(tmp_path, storage):
    experiment = made(storage)
    experiment.commit()
    older = tmp_path / "older"
    shutil.copytree(experiment.root, older)
    experiment.trial({"x": 1})
    experiment.commit()
    uploaded(storage, experiment)
    lose(experiment)
    shutil.copytree(older, experiment.root)
    lock = DriverLock(ExperimentLayout(experiment.root).lock)
    try:
        with pytest.raises(ExperimentError, match="in use by another driver"):
            pull(storage, "made")
    finally:
        lock.release()
    assert ExperimentReader(experiment.root).trials() == ()


def test_a_checkpoint_that_is_damaged_or_whose_upload_was_cut_is_left_out_and_one_out_of_reach_is_an_error(
    storage, monkeypatch
):
    experiment = made(storage)
    trial_id = experiment.trial({"x": 1})
    cut, damaged, whole = (experiment.save(trial_id, number) for number in (1, 2, 3))
    uploaded(storage, experiment)
    remote = storage.remote / "made"
    remote.remove(f"{cut}/{MANIFEST}")
    remote.write(f"{damaged}/model", b"?" * len(f"{trial_id} 2"))
    lose(experiment)
    assert pull(storage, "made")
    assert sorted(path.name for path in (experiment.root / trial_id).iterdir()) == ["checkpoint_000003"]

    shutil.rmtree(experiment.root / whole)
    real = MemoryFileSystem.get_file

    def unreachable(self, path, *arguments, **how):
        if "checkpoint" in path:
            raise TimeoutError("no answer")
        return real(self, path, *arguments, **how)

    monkeypatch.setattr(MemoryFileSystem, "get_file", unreachable)
    with pytest.raises(CheckpointError, match=r"checkpoint_00000\d cannot be read: TimeoutError: no answer"):
        pull(storage, "made")


def test_storage_that_cannot_be_reached_is_named(storage, monkeypatch):
    def unreachable(*arguments, **how):
        raise TimeoutError("no answer")

    monkeypatch.setattr(MemoryFileSystem, "info", unreachable)
    for ask in (pull, has_experiment):  # it may be there
        with pytest.raises(ExperimentError, match="memory://b/dir/made cannot be read: TimeoutError: no answer"):
            ask(storage, "made")


# --- reading ---


def test_an_experiment_is_read_by_its_uri_without_its_checkpoints_and_artifacts(storage):
    experiment = made(storage)
    trial_id = experiment.trial({"x": 1})
    path = experiment.save(trial_id, 1)
    (experiment.root / trial_id / "result.json").write_text("{}\n")
    (experiment.root / trial_id / "plot.png").write_text("plot")
    uploaded(storage, experiment, with_artifacts=True)
    lose(experiment, storage.local_root)

    for text in ("memory://b/dir/made", "memory://b/dir/made/", "memory://b/dir/made/sweep.db"):
        assert open_storage_for_reading(text) == experiment.root
    assert os.listdir(experiment.root / trial_id) == ["result.json"]
    reader = ExperimentReader(experiment.root)
    assert reader.trial(trial_id).count == 1
    assert existing_checkpoints(experiment.root, [path]) == [path]
    with Checkpoint(experiment.root / path).as_directory() as directory:
        assert Path(directory, "model").read_text() == f"{trial_id} 1"
    # continuing there brings what its trials need
    shutil.rmtree(experiment.root / path)
    assert pull(storage, "made")
    verify(experiment.root / path)


@pytest.mark.parametrize("kind", ["the root of a file system", "a file system of one's own"])
def test_any_place_is_read_and_a_local_one_is_itself(tmp_path, kind):
    filesystem = DirFileSystem(str(tmp_path / "remote"), fsspec.filesystem("file")) if "own" in kind else None
    storage = parse_storage("exp" if filesystem else "memory://", filesystem)
    experiment = made(storage)
    uploaded(storage, experiment)
    lose(experiment, storage.local_root)
    assert open_storage_for_reading("exp/made" if filesystem else "memory://made", filesystem) == experiment.root
    assert open_storage_for_reading(experiment.root / "sweep.db") == experiment.root
    assert open_storage_for_reading(f"file://{experiment.root}") == experiment.root


def test_a_local_copy_knows_its_storage_unless_only_an_object_reaches_it(tmp_path, storage):
    experiment = made(storage)
    uploaded(storage, experiment)
    assert storage_of(experiment.root) == ""
    root = parse_storage("memory://")
    only_object = parse_storage("b/dir", MemoryFileSystem())
    for place, uri in ((storage, "memory://b/dir"), (root, "memory://"), (only_object, "")):
        remember_home(tmp_path / "made", (place.remote / "made"))
        assert storage_of(tmp_path / "made") == uri


def test_an_unknown_experiment_is_named_with_the_nearest(storage):
    uploaded(storage, made(storage))
    with pytest.raises(ExperimentError, match=r"no experiment 'mode' in memory://b/dir. Did you mean 'made'"):
        open_storage_for_reading("memory://b/dir/mode")


def test_what_a_trial_continues_from_is_read_from_the_record(storage):
    experiment = made(storage)
    one, two, _three = (experiment.trial({"x": x}) for x in range(3))
    experiment.save(one, 1)
    clone = ["CloneTrial", {"checkpoint": [f"{one}/checkpoint_000001.2", 1, 1, 0.5], "config": {"x": 1}}]
    experiment.set(two, started_from=json.dumps([f"{one}/checkpoint_000001", 1, 1, 0.5]), pending=json.dumps(clone))
    experiment.commit()
    with contextlib.closing(open_for_reading(experiment.root / "sweep.db")) as db:
        assert references(db) == {
            one: {f"{one}/checkpoint_000001"},
            two: {f"{one}/checkpoint_000001", f"{one}/checkpoint_000001.2"},
        }


def test_an_owner_and_a_state_are_read_as_they_were_written_and_damage_means_none(tmp_path):
    owner = Owner("run", 3, 1.5, "host", 7, epoch=2)
    experiment = parse_storage("memory://b").remote / "made"
    owner.write(experiment)
    assert Owner.of(experiment) == owner
    for damaged in (b"", b"{", b"[]", b'{"later": 1}'):
        experiment.write(".sweep-record.json", damaged)
        assert Owner.of(experiment) == Owner()
    state = LocalState("version", "run", 3, {"a": "1 2"}, ["t/checkpoint_000001"])
    state.save(tmp_path)
    assert LocalState.load(tmp_path) == state
    (tmp_path / ".sweep-mirror.json").write_text('{"run": 1')
    assert LocalState.load(tmp_path) == LocalState()
