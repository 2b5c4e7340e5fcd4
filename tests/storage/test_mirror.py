"""The remote copy can be continued at any moment, gets only what has changed, and belongs to one driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from made_experiment import MadeExperiment
from sealed import changed

from sweep.checkpoints.store import MANIFEST, Checkpoint, persist, send, verify
from sweep.core.messages import Reported
from sweep.errors import RecordError
from sweep.record.codec import encode_event
from sweep.storage.fetch import pull
from sweep.storage.filesystems import RemoteDirectory
from sweep.storage.location import parse_storage
from sweep.storage.mirror import Mirror
from sweep.storage.ownership import LocalState, Owner, TakenOver

WRITES = ("put_file", "pipe_file", "rm_file", "mv")


class Changes:
    """What was written to the object store, in order; raises or stops at one of the writes when told to."""

    def __init__(self, monkeypatch):
        self.made: list[tuple[str, str]] = []
        self.fail_at: int | None = None
        self.is_before = True
        for name in WRITES:
            monkeypatch.setattr(MemoryFileSystem, name, self._watched(name, getattr(MemoryFileSystem, name)))

    def _watched(self, name, real):
        def watched(filesystem, *arguments, **how):
            path = arguments[1] if name in ("put_file", "mv") else arguments[0]
            self.made.append((name, str(path).removeprefix("/b/made/")))
            is_due = len(self.made) == self.fail_at
            if is_due and self.is_before:
                raise ConnectionError("gone")
            real(filesystem, *arguments, **how)
            if is_due:
                raise ConnectionError("gone")

        return watched

    def take(self):
        made, self.made = self.made, []
        return made


@pytest.fixture
def changes(cache, monkeypatch):
    return Changes(monkeypatch)


@pytest.fixture
def storage():
    return parse_storage("memory://b")


@pytest.fixture
def experiment(storage):
    made = MadeExperiment(storage.local_root)
    made.trial({"x": 1})
    made.commit()
    return made


@pytest.fixture
def remote(storage):
    return storage.remote / "made"


@pytest.fixture
def uploader(storage, experiment):
    return uploader_of(storage, experiment)


TRIAL = "abcde_00000"


def save(experiment, number):
    return experiment.save(TRIAL, number, **{"inner/state": str(number)})


def files_of(path):
    """Return the files of a checkpoint that `save` made, in the order of their names."""
    return [f"{path}/{name}" for name in (MANIFEST, "inner/state", "model")]


def uploads_of(path):
    """Return the writes that send a checkpoint: its manifest comes last."""
    return [("put_file", f"{path}/inner/state"), ("put_file", f"{path}/model"), ("pipe_file", f"{path}/{MANIFEST}")]


def write_owner(remote, **owner):
    """Another driver has the experiment now."""
    Owner("another", 5, 0.0, "far", 42, **owner).write(remote)


def uploader_of(storage, experiment, **how):
    return Mirror(storage.remote / "made", experiment.root, **how)


def test_a_record_is_sent_when_what_it_says_was_flushed_and_what_it_gives_up_is_deleted_after_that(
    experiment, changes, uploader
):
    first = save(experiment, 1)
    uploader.await_flush = lambda: changes.made.append(("flushed", ""))
    uploader.sync()
    sent = changes.take()
    first_of_record = next(number for number, (_, path) in enumerate(sent) if "sweep.db" in path)
    assert sent.index(("flushed", "")) == first_of_record - 1
    experiment.discard(first)
    experiment.commit()
    uploader.await_flush = failing = Failing()
    with pytest.raises(RecordError):
        uploader.sync()
    assert failing.times == 1
    assert [kind for kind, path in changes.take() if "sweep.db" in path or first in path] == []


class Failing:
    times = 0

    def __call__(self):
        self.times += 1
        raise RecordError("could not be flushed")


def test_everything_is_there_after_a_pass_and_the_next_sends_only_what_has_changed(storage, experiment, changes):
    (experiment.root / "tuner.pkl").write_bytes(b"saved spec")
    (experiment.root / "code").mkdir()
    (experiment.root / "code" / "payload.pkl").write_bytes(b"code")
    path = save(experiment, 1)
    for name in ("result.json", "output.log", "mine.txt", "plot.png", "tmp-half.csv"):
        (experiment.root / TRIAL / name).write_text(name)
    os.symlink(TRIAL, experiment.root / "a-name")
    uploader = uploader_of(storage, experiment, log_files=["mine.txt"])
    uploader.sync()
    assert changes.take() == [
        ("pipe_file", ".sweep-record.json"),
        *uploads_of(path),
        ("put_file", f"{TRIAL}/mine.txt"),
        ("put_file", f"{TRIAL}/output.log"),
        ("put_file", f"{TRIAL}/result.json"),
        ("put_file", "tuner.pkl"),
        ("put_file", "sweep.db"),
        ("pipe_file", ".sweep-record.json"),
    ]
    uploader.sync()
    assert changes.take() == []
    with open(experiment.root / TRIAL / "result.json", "a") as file:
        file.write("more")
    uploader.sync(["nobody"])
    assert changes.take() == []
    uploader.sync([TRIAL])
    assert changes.take() == [("put_file", f"{TRIAL}/result.json")]
    uploader.sync([TRIAL], with_artifacts=True)
    assert changes.take() == [("put_file", f"{TRIAL}/plot.png")]
    experiment.meta["note"] = 1
    experiment.commit()
    uploader.sync([])
    assert changes.take() == [("put_file", "sweep.db"), ("pipe_file", ".sweep-record.json")]


def test_artifacts_are_those_of_the_trial_and_no_checkpoints_or_half_written_ones(experiment, changes, uploader):
    save(experiment, 1)
    for name in ("plots/a.png", "plots/tmp-b.png", "tmp-save-1/model", "checkpoint_mine/notes"):
        place = experiment.root / TRIAL / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("x")
    uploader.sync(with_artifacts=True)
    files = [name for how, name in changes.take() if "checkpoint_000001" not in name]
    assert files == [
        ".sweep-record.json",
        f"{TRIAL}/checkpoint_mine/notes",
        f"{TRIAL}/plots/a.png",
        "sweep.db",
        ".sweep-record.json",
    ]


def test_a_driver_that_begins_again_sends_nothing_that_is_there(storage, experiment, changes):
    save(experiment, 1)
    (experiment.root / TRIAL / "result.json").write_text("{}")
    uploader_of(storage, experiment).sync()
    changes.take()
    uploader_of(storage, experiment).sync()
    assert [name for how, name in changes.take()] == [".sweep-record.json", "sweep.db", ".sweep-record.json"]
    os.unlink(experiment.root / ".sweep-mirror.json")
    assert not pull(storage, "made")
    uploader_of(storage, experiment).sync()
    made = [".sweep-record.json", f"{TRIAL}/result.json", "sweep.db", ".sweep-record.json"]
    assert [name for how, name in changes.take()] == made


def test_a_checkpoint_deleted_here_is_deleted_there_after_the_record_that_does_not_need_it(
    experiment, changes, uploader, remote
):
    old = save(experiment, 1)
    uploader.sync()
    new = save(experiment, 2)
    experiment.discard(old)
    changes.take()
    uploader.sync([TRIAL])
    made = changes.take()
    assert made[:6] == [
        *uploads_of(new),
        ("put_file", "sweep.db"),
        ("pipe_file", ".sweep-record.json"),
        ("rm_file", f"{old}/{MANIFEST}"),
    ]
    assert sorted(made[6:]) == [("rm_file", f"{old}/inner/state"), ("rm_file", f"{old}/model")]
    there = remote.find()
    assert sorted(name for name in there if "checkpoint" in name) == files_of(new)


def test_a_checkpoint_that_is_given_up_while_it_is_sent_arrives_whole_and_goes_after_that(
    experiment, changes, monkeypatch, uploader, remote
):
    old, new = save(experiment, 1), save(experiment, 2)
    real = RemoteDirectory.put

    def put(remote, pairs):
        experiment.event("Tick", commands=[["Discard", old]])
        experiment.commit()
        uploader.discard(old)
        return real(remote, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(RemoteDirectory, "put", put)
        uploader.sync()
    assert sorted(remote.find(old)) == files_of(old)
    assert (experiment.root / old).is_dir()
    uploader.sync()
    assert [path.name for path in (experiment.root / TRIAL).iterdir()] == ["checkpoint_000002"]
    assert remote.find(old) == {}
    uploader.is_over = lambda: True
    uploader.discard(new)
    assert list((experiment.root / TRIAL).iterdir()) == []


def test_an_upload_that_was_cut_by_another_content_of_that_name_is_begun_anew(experiment, changes, uploader, remote):
    remote.write(f"{TRIAL}/checkpoint_000001/old", b"left")
    path = save(experiment, 1)
    uploader.sync()
    assert sorted(remote.find(path)) == files_of(path)


def test_a_checkpoint_that_a_lost_machine_sent_before_its_record_is_replaced_by_that_of_its_name(
    tmp_path, storage, experiment, changes, monkeypatch, remote
):
    first = save(experiment, 1)
    uploader_of(storage, experiment).sync()
    lost = save(experiment, 2)
    also_lost = save(experiment, 3)
    changes.take()
    changes.fail_at = 8  # the record
    with pytest.raises(ConnectionError):
        uploader_of(storage, experiment).sync()
    changes.fail_at = None
    assert remote.stamp(f"{lost}/{MANIFEST}")
    assert remote.stamp(f"{also_lost}/{MANIFEST}")
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "other"))
    other = parse_storage("memory://b")
    assert pull(other, "made")
    root = other.local_root / "made"
    assert sorted(path.name for path in root.glob("*/checkpoint_*")) == ["checkpoint_000001"]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model").write_text("another")
    persist(tmp_path / "source", root / lost)
    with changed(root / "sweep.db") as db:
        text = encode_event(Reported(TRIAL, 1, 2, {}, lost), 2.0, 2.0, None, {})
        db.execute("INSERT INTO event VALUES (3, ?, ?, 0)", (TRIAL, text))
    Mirror(other.remote / "made", root).sync()
    assert remote.read(f"{lost}/model") == b"another"
    assert not remote.find(also_lost)
    assert remote.stamp(f"{first}/{MANIFEST}")


def test_metadata_set_after_a_checkpoint_was_sent_follows(experiment, changes, uploader):
    path = save(experiment, 1)
    uploader.sync()
    changes.take()
    Checkpoint(experiment.root / path).set_metadata({"a": 1})
    uploader.sync()
    assert changes.take() == [("put_file", f"{path}/.sweep-metadata.json")]
    assert Checkpoint(f"memory://b/made/{path}").get_metadata() == {"a": 1}
    uploader.sync()
    assert changes.take() == []


def test_a_second_driver_is_noticed_and_the_first_sends_nothing_more(storage, experiment, changes, uploader, remote):
    first = uploader_of(storage, experiment)
    first.sync()
    write_owner(remote, epoch=2)
    changes.take()
    with pytest.raises(TakenOver, match=r"another driver \(pid 42 on far\) writes to memory://b/made"):
        first.sync()
    assert changes.take() == []
    pull(storage, "made")
    uploader.sync()


def test_a_driver_that_takes_over_while_checkpoints_are_sent_keeps_its_record(
    experiment, monkeypatch, uploader, remote
):
    uploader.sync()
    before = remote.read("sweep.db")
    save(experiment, 1)
    real = RemoteDirectory.put

    def put(self, pairs):
        write_owner(remote, epoch=2)
        return real(self, pairs)

    monkeypatch.setattr(RemoteDirectory, "put", put)
    with pytest.raises(TakenOver, match="pid 42 on far"):
        uploader.sync()
    assert remote.read("sweep.db") == before


def test_what_a_driver_of_before_writes_late_is_written_over(experiment, changes, uploader, remote):
    (experiment.root / "tuner.pkl").write_bytes(b"saved spec")
    uploader.sync()
    write_owner(remote, epoch=0)
    remote.write("sweep.db", b"older")
    changes.take()
    uploader.sync()
    assert [name for how, name in changes.take()] == [
        ".sweep-record.json",
        "tuner.pkl",
        "sweep.db",
        ".sweep-record.json",
    ]
    assert Owner.of(remote).epoch == 2


def test_an_ownership_whose_writing_failed_halfway_is_not_taken_for_anothers(changes, uploader, remote):
    changes.fail_at, changes.is_before = 1, False
    with pytest.raises(ConnectionError):
        uploader.sync()
    changes.fail_at = None
    uploader.sync()
    assert remote.stamp("sweep.db")


def test_a_remote_directory_that_was_deleted_meanwhile_is_filled_anew(experiment, uploader, remote):
    (experiment.root / "tuner.pkl").write_bytes(b"saved spec")
    path = save(experiment, 1)
    uploader.sync()
    before = remote.find().keys()
    assert f"{path}/{MANIFEST}" in before
    remote.remove_tree("")
    uploader.sync()
    assert remote.find().keys() == before


def test_a_checkpoint_stored_again_under_the_name_of_a_discarded_one_is_sent_again(experiment, uploader, remote):
    path = save(experiment, 1)
    uploader.sync()
    experiment.discard(path)
    source = experiment.root / "tmp-source"
    source.mkdir()
    (source / "model").write_text("another")
    persist(source, experiment.root / path, is_source_spent=True)
    experiment.report(TRIAL, {"loss": 1.0}, checkpoint=path)
    experiment.commit()
    uploader.sync()
    assert sorted(remote.find(path)) == [f"{path}/{MANIFEST}", f"{path}/model"]
    assert remote.read(f"{path}/model") == b"another"


def test_checkpoints_of_another_machine_that_are_not_here_are_left_alone(
    tmp_path, storage, experiment, monkeypatch, remote
):
    path = save(experiment, 1)
    experiment.end(TRIAL)
    experiment.commit()
    uploader_of(storage, experiment).sync()
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "other"))
    other = parse_storage("memory://b")
    assert pull(other, "made")
    root = other.local_root / "made"
    assert not (root / path).exists()
    uploader = Mirror(other.remote / "made", root)
    uploader.sync()
    uploader.sync()
    os.unlink(root / ".sweep-mirror.json")
    assert not pull(other, "made")
    Mirror(other.remote / "made", root).sync()
    assert remote.stamp(f"{path}/{MANIFEST}")
    assert LocalState.load(root).elsewhere == [path]
    Checkpoint(root / path).get_metadata()
    verify(root / path)


def test_a_checkpoint_that_a_node_has_sent_counts_as_sent_and_is_deleted_there_when_it_is_given_up(
    storage, experiment, uploader
):
    path, remote = save(experiment, 1), (storage.remote / "made")
    experiment.start(TRIAL)
    (experiment.root / path).rename(experiment.root / "of-a-node")
    uploader.sync()
    assert LocalState.load(experiment.root).elsewhere == []
    send(experiment.root / "of-a-node", remote / path)
    uploader.sync()
    assert LocalState.load(experiment.root).elsewhere == [path]
    never_seen = f"{TRIAL}/checkpoint_000002"
    send(experiment.root / "of-a-node", remote / never_seen)
    experiment.report(TRIAL, {"loss": 1.0}, checkpoint=never_seen)
    for given_up in (path, never_seen):
        experiment.discard(given_up)
    experiment.set(TRIAL, checkpoint=None)
    experiment.commit()
    uploader.sync()
    assert [name for name in remote.find() if "checkpoint_" in name] == []


def test_a_checkpoint_that_a_node_has_sent_before_the_record_names_it_stays(storage, experiment, uploader):
    kept, remote = save(experiment, 1), (storage.remote / "made")
    experiment.start(TRIAL)
    experiment.commit()
    early, left = f"{TRIAL}/checkpoint_000002", "abcde_00001/checkpoint_000001"
    experiment.trial({"x": 2})
    experiment.commit()
    for path in (early, left):
        send(experiment.root / kept, remote / path)
    uploader.sync()
    assert {name.rpartition("/")[0] for name in remote.find() if MANIFEST in name} == {kept, early}
    experiment.set(TRIAL, status="TERMINATED")
    experiment.report(TRIAL, {"loss": 1.0})
    experiment.commit()
    uploader.sync()
    assert {name.rpartition("/")[0] for name in remote.find() if MANIFEST in name} == {kept}


def test_a_file_that_is_gone_when_its_turn_comes_is_left_out(experiment, monkeypatch, uploader, remote):
    real = MemoryFileSystem.put

    def put(self, sources, targets, **how):
        Path(experiment.root / TRIAL / "65.log").unlink(missing_ok=True)
        return real(self, sources, targets, **how)

    monkeypatch.setattr(MemoryFileSystem, "put", put)
    (experiment.root / TRIAL).mkdir()
    for number in range(70):
        (experiment.root / TRIAL / f"{number:02d}.log").write_text("x")
    uploader.sync()
    there = {name.rpartition("/")[2] for name in remote.find(TRIAL)}
    assert there == {f"{number:02d}.log" for number in range(70) if number != 65}
