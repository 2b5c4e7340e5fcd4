"""A process that is killed (-9) in a push or a pull, between any two steps or in the middle of a file, does no harm.

A child process does the work and ends itself, without a word, at the n-th change of a file, here or at the remote place
(a directory behind a file system of fsspec that is no object store). That is done for every n until the work ends by
itself; each time the same machine and another one go on from what is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from killed import MOST, ends_itself
from made_experiment import MadeExperiment
from sealed import changed

from sweep.checkpoints.store import MANIFEST, verify
from sweep.record.db import open_for_reading
from sweep.record.reader import ExperimentReader
from sweep.record.stored import StoredCheckpoints, references
from sweep.storage import filesystems
from sweep.storage.fetch import pull
from sweep.storage.location import Storage, parse_storage
from sweep.storage.mirror import Mirror
from sweep.storage.ownership import TakenOver

TRIAL = "abcde_00000"


@pytest.fixture(autouse=True)
def no_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it gave to the kernel: only speed depends on it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class Place:
    """Machines that share one remote directory; `at` names the machine that works."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch

    def at(self, machine: str) -> Storage:
        self._monkeypatch.setenv("SWEEP_CACHE", str(self.root / machine))
        self._monkeypatch.setattr(filesystems, "_homes", {})
        return parse_storage("exp", DirFileSystem(str(self.root / "remote"), fsspec.filesystem("file")))


def push(storage: Storage) -> None:
    Mirror(storage.remote / "made", storage.local_root / "made").sync(with_artifacts=True)


def save(experiment: MadeExperiment, number: int) -> str:
    (experiment.root / TRIAL).mkdir(exist_ok=True)
    (experiment.root / TRIAL / "result.json").write_text("line\n" * number)
    return experiment.save(TRIAL, number, at=float(number), **{"inner/state": str(number)})


def made_place(root: Path, monkeypatch: pytest.MonkeyPatch, *, is_pushed: bool = False) -> Place:
    """One machine has pushed, another has read that, and the first has gone on: it has something new to push."""
    place = Place(root, monkeypatch)
    storage = place.at("first")
    experiment = MadeExperiment(storage.local_root)
    experiment.trial({"x": 1})
    (experiment.root / "tuner.pkl").write_bytes(b"saved spec")
    old = save(experiment, 1)
    push(storage)
    pull(place.at("reader"), "made", for_reading=True)
    save(experiment, 2)
    experiment.discard(old)
    experiment.close()
    if is_pushed:
        push(place.at("first"))
    return place


def seq_of(storage: Storage) -> int:
    return ExperimentReader(storage.local_root / "made").snapshot().seq


def check_goes_on(storage: Storage) -> None:
    """Everything that is needed to go on is in the local directory, whole."""
    root = storage.local_root / "made"
    with contextlib.closing(open_for_reading(root / "sweep.db")) as db:
        ((latest,),) = references(db).values()
    verify(root / latest)
    number = int(latest[-1])
    assert (root / TRIAL / "result.json").read_text() in {"line\n" * n for n in range(number, 3)}
    assert (root / "tuner.pkl").read_bytes() == b"saved spec"
    if "first" not in root.parts:
        assert (root / "tuner.pkl").stat().st_mode & 0o077 == 0


def check_same(storage: Storage) -> None:
    """The remote directory holds what the local one does, and no more."""
    root, remote = storage.local_root / "made", (storage.remote / "made")
    found = remote.find()
    stored = StoredCheckpoints()
    with contextlib.closing(open_for_reading(root / "sweep.db")) as db:
        stored.follow(db)
    kept = {f"{path}/{name}" for path in stored.kept for name in (MANIFEST, "inner/state", "model")}
    assert found.keys() == {".sweep-record.json", "sweep.db", "tuner.pkl", f"{TRIAL}/result.json", *kept}
    again = root.parent / "again"
    remote.get(["sweep.db"], again)
    assert ExperimentReader(again).snapshot() == ExperimentReader(root).snapshot()
    shutil.rmtree(again)


def go_on(storage: Storage) -> None:
    """Do what a run does that resumes."""
    pull(storage, "made")
    check_goes_on(storage)
    push(storage)
    check_same(storage)


def ways(*quick: Any, slow: Any) -> list[Any]:
    """Every sixth point in one way at once, and every point in both ways among the slow tests."""
    return [(6, *quick), *(pytest.param(1, *way, marks=pytest.mark.slow) for way in (quick, slow))]


@pytest.mark.parametrize(("step", "is_torn", "is_resumed"), ways(True, True, slow=(False, False)))
def test_a_push_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, is_torn: bool, is_resumed: bool
) -> None:
    reached = set()
    for at in range(1, MOST, step):
        place = made_place(tmp_path / str(at), monkeypatch)
        storage = place.at("first")
        before = seq_of(storage)

        def work(storage: Storage = storage) -> None:
            if is_resumed:
                pull(storage, "made")
            push(storage)

        is_killed = ends_itself(work, place.root, at, is_torn)
        shutil.copytree(place.root, tmp_path / "left", symlinks=True)
        # the machine is lost; another one, which has read an earlier state, goes on
        go_on(place.at("reader"))
        reached.add(seq_of(place.at("reader")))
        # it goes on, too, after all: the other one has done nothing new, so that nothing has parted
        go_on(place.at("first"))
        # or the same machine goes on
        shutil.rmtree(place.root)
        (tmp_path / "left").rename(place.root)
        storage = place.at("first")
        assert not pull(storage, "made")
        go_on(storage)
        assert seq_of(storage) == before
        if not is_killed:
            break
    assert 20 < at < MOST - 1
    assert len(reached) == 2  # before the record was there, and after


@pytest.mark.parametrize(("step", "is_torn", "machine"), ways(True, "reader", slow=(False, "new")))
def test_a_pull_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, machine: str, is_torn: bool
) -> None:
    for at in range(1, MOST, step):
        place = made_place(tmp_path / str(at), monkeypatch, is_pushed=True)
        storage = place.at(machine)
        is_killed = ends_itself(lambda storage=storage: pull(storage, "made"), place.root, at, is_torn)
        go_on(storage)
        assert seq_of(storage) == seq_of(place.at("first"))
        if not is_killed:
            break
    assert 20 < at < MOST - 1


def test_a_machine_that_was_not_lost_and_one_that_took_over_have_parted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The push of the first was killed before its record was there, and both have gone on since."""
    place = made_place(tmp_path / "0", monkeypatch)
    assert ends_itself(lambda: push(place.at("first")), place.root, 3, False)
    reader = place.at("reader")
    pull(reader, "made")
    with changed(reader.local_root / "made" / "sweep.db") as db:
        db.execute(
            "INSERT INTO event SELECT seq + 1, trial_id, json_set(data, '$.attempt', 2, '$.wall', 9.5), 0 FROM event"
            " ORDER BY seq DESC LIMIT 1"
        )
    push(reader)
    before = sorted(path.relative_to(place.root) for path in place.root.rglob("*"))
    with pytest.raises(TakenOver):
        push(place.at("first"))
    assert sorted(path.relative_to(place.root) for path in place.root.rglob("*")) == before
    with pytest.warns(UserWarning, match="went on without it: it is not continued, and kept in"):
        pull(place.at("first"), "made")
    go_on(place.at("first"))
