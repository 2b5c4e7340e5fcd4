"""The mirror sends what is new without anybody waiting, tries again, and a lost machine's sweep goes on elsewhere."""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import sweep
from sweep.callbacks import mirror
from sweep.callbacks.mirror import MirrorCallback
from sweep.record import filesystems
from sweep.record.reader import ExperimentReader
from sweep.record.remote import open_storage_for_reading, pull
from sweep.record.storage import parse_storage
from sweep.record.upload import OtherDriver, UploadStopped

LIMIT_S = 20  # for what happens at once


class Uploads:
    """Stands in for the uploader: each pass takes its outcome from the test, and waits for it."""

    def __init__(self, remote, root, *, log_files, is_over, do_nodes_send):
        self.is_over = is_over
        self.passes: queue.Queue[tuple[list[str] | None, bool]] = queue.Queue()
        self.outcomes: queue.Queue[Exception | None] = queue.Queue()
        self.num_files = 0
        self.unsent = 0
        self.record_s = 0.0
        self.problems: dict[str, str] = {}

    def sync(self, trial_ids=None, *, with_artifacts=False):
        self.passes.put((None if trial_ids is None else sorted(trial_ids), with_artifacts))
        outcome = self.outcomes.get(timeout=LIMIT_S)
        if outcome is not None:
            raise outcome

    def num_unsent_checkpoints(self):
        return self.unsent

    def next_pass(self, outcome=None):
        """Let the pass that is under way, or the next, end like this; returns what it was asked for."""
        found = self.passes.get(timeout=LIMIT_S)
        self.outcomes.put(outcome)
        return found


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    monkeypatch.setattr(filesystems, "_homes", {})
    for name in ("_GAP_S", "_RECORD_SHARE", "_FIRST_BACKOFF_S"):
        monkeypatch.setattr(mirror, name, 0)


@pytest.fixture
def begin(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "Uploader", Uploads)
    begun = []

    def begin(**how):
        notices: list[str] = []
        how = {"notice": notices.append} | how
        callback = MirrorCallback(parse_storage("memory://b"), tmp_path / "made", **how)
        callback.setup(experiment_dir=str(tmp_path / "made"), plan=None, num_trials=1)
        begun.append(callback)
        return callback, callback._uploader, notices

    yield begin
    for callback in begun:
        callback._stop()
        callback._uploader.outcomes.put(None)
        callback._thread.join(LIMIT_S)
        assert not callback._thread.is_alive()


def trial(name):
    return SimpleNamespace(id=name)


def end_of(callback, uploads, *outcomes):
    """Finish, with these outcomes of the passes that are left."""
    for outcome in outcomes:
        uploads.outcomes.put(outcome)
    return callback.finish()


def test_what_happens_during_a_slow_pass_is_sent_together_in_the_next(begin):
    callback, uploads, notices = begin()
    uploads.passes.get(timeout=LIMIT_S)  # the first is under way, and the hooks return nevertheless
    callback.on_trial_save(trial("a"))
    callback.on_trial_save(trial("a"))
    callback.on_trial_complete(trial("b"))
    uploads.outcomes.put(None)
    assert uploads.next_pass() == (["a", "b"], False)
    callback.on_trial_error(trial("c"))
    assert uploads.next_pass() == (["c"], False)
    assert end_of(callback, uploads, None)
    assert uploads.passes.get_nowait() == (None, False)
    assert notices == []
    assert callback.finish()


@pytest.mark.parametrize(
    ("how", "on_save", "on_end"),
    [
        ({"sync_artifacts": False, "sync_artifacts_on_checkpoint": True}, False, False),
        ({"sync_artifacts": True, "sync_artifacts_on_checkpoint": True}, True, True),
        ({"sync_artifacts": True, "sync_artifacts_on_checkpoint": False}, False, True),
    ],
)
def test_artifacts_go_with_checkpoints_ends_and_whole_passes_as_asked(begin, how, on_save, on_end):
    callback, uploads, _ = begin(**how)
    assert uploads.next_pass() == (None, how["sync_artifacts"])
    callback.on_trial_save(trial("a"))
    assert uploads.next_pass() == (["a"], on_save)
    callback.on_trial_complete(trial("a"))
    assert uploads.next_pass() == (["a"], on_end)


def test_everything_is_looked_at_in_every_period(begin):
    _, uploads, _ = begin(sync_period_s=0.01)
    assert [uploads.next_pass() for _ in range(3)] == [(None, False)] * 3


def test_a_remote_that_fails_is_named_once_and_what_was_new_is_sent_when_it_is_back(begin):
    callback, uploads, notices = begin()
    uploads.next_pass()
    callback.on_trial_save(trial("a"))
    for _ in range(3):
        assert uploads.next_pass(ConnectionError("no route")) == (["a"], False)
    assert uploads.next_pass() == (["a"], False)
    callback.on_trial_save(trial("b"))
    assert uploads.next_pass(ConnectionError("no route")) == (["b"], False)
    assert uploads.next_pass() == (["b"], False)
    assert end_of(callback, uploads, None)
    assert notices == [
        "memory://b/made cannot be written (ConnectionError: no route); it is tried again. The run does not wait for "
        f"it; everything is in {callback.root}",
        "memory://b/made can be written again",
    ]


def test_pauses_between_tries_grow_to_a_minute(begin, monkeypatch):
    monkeypatch.setattr(mirror, "_FIRST_BACKOFF_S", 2.0)
    monkeypatch.setattr(mirror.time, "monotonic", lambda: 100.0)
    callback = MirrorCallback(parse_storage("memory://b"), "made")
    pauses = []
    for _ in range(7):
        callback._failed(ConnectionError(), {})
        pauses.append(callback._not_before - 100.0)
    assert pauses == [2, 4, 8, 16, 32, 60, 60]


def test_the_pause_between_passes_follows_the_cost_of_the_record_up_to_the_period(monkeypatch):
    monkeypatch.setattr(mirror, "Uploader", Uploads)
    monkeypatch.setattr(mirror, "_GAP_S", 10.0)
    monkeypatch.setattr(mirror, "_RECORD_SHARE", 3)
    monkeypatch.setattr(mirror.time, "monotonic", lambda: 100.0)
    callback = MirrorCallback(parse_storage("memory://b"), "made")
    pauses = []
    for callback._uploader.record_s in (0.1, 20.0, 900.0):
        callback._uploader.outcomes.put(None)
        assert callback._try_pass({}, is_full=True)
        pauses.append(callback._not_before - 100.0)
    assert pauses == [10, 60, 300]
    assert callback._next_full == 400.0


def test_the_end_tries_at_once_whatever_it_was_waiting_for(begin, monkeypatch):
    monkeypatch.setattr(mirror, "_FIRST_BACKOFF_S", 600.0)
    monkeypatch.setattr(mirror, "_LAST_BACKOFF_S", 600.0)
    has_failed = threading.Event()
    callback, uploads, _ = begin(notice=lambda text: has_failed.set())
    uploads.next_pass(ConnectionError("no route"))
    assert has_failed.wait(LIMIT_S)
    assert end_of(callback, uploads, None)


def test_the_end_says_what_could_not_be_copied_and_where_it_is(begin, monkeypatch):
    callback, uploads, notices = begin(sync_timeout_s=30)
    uploads.next_pass()
    uploads.unsent, uploads.num_files = 2, 1
    monkeypatch.setattr(mirror, "_FIRST_BACKOFF_S", 31.0)  # the next try would come too late, so none is waited for
    assert not end_of(callback, uploads, PermissionError("denied"))
    assert notices[1:] == [
        "memory://b/made is not complete: 2 checkpoints and 1 file could not be copied within sync_timeout=30 s (last "
        f"error: PermissionError: denied). Everything is in {callback.root}; the same call with resume=True copies the "
        "rest"
    ]


def test_the_end_waits_no_longer_than_told_for_a_pass_that_hangs(begin):
    callback, uploads, notices = begin(sync_timeout_s=0.01)
    uploads.passes.get(timeout=LIMIT_S)
    assert not callback.finish()
    assert uploads.is_over()
    assert [text.partition(" could")[0] for text in notices] == ["memory://b/made is not complete: the last changes"]
    uploads.outcomes.put(UploadStopped())


def test_the_end_says_what_it_waits_for_when_it_takes_long(begin, monkeypatch):
    monkeypatch.setattr(mirror, "_PATIENCE_S", 0.01)
    said = queue.Queue()
    callback, uploads, _ = begin(notice=said.put)
    threading.Thread(target=callback.finish).start()
    assert said.get(timeout=LIMIT_S) == (
        "copying what is left to memory://b/made; Ctrl-C ends that, and nothing is lost"
    )
    uploads.next_pass()
    uploads.next_pass()
    callback._thread.join(LIMIT_S)
    assert said.empty()


def test_a_second_driver_ends_the_copying_and_is_named_once(begin):
    callback, uploads, notices = begin()
    uploads.next_pass(OtherDriver("another driver writes there"))
    assert not callback.finish()
    assert notices == ["another driver writes there"]


def test_a_checkpoint_that_cannot_be_copied_is_named_once(begin):
    callback, uploads, notices = begin()
    uploads.problems["t/checkpoint_000001"] = "it is damaged"
    uploads.next_pass()
    assert not end_of(callback, uploads, None)
    assert notices == ["not copied to memory://b/made: it is damaged"]


def test_nothing_was_begun_so_nothing_is_to_be_finished(tmp_path):
    assert MirrorCallback(parse_storage("memory://b"), tmp_path / "made").finish()


# --- with a real sweep ---


def train(config):
    checkpoint = sweep.get_checkpoint()
    start = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            start = int(Path(directory, "step").read_text())
    for step in range(start + 1, 5):
        if step == 3 and not os.path.exists(config["go_on"]):
            raise RuntimeError("the machine is lost")
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            sweep.report({"step": step, "start": start}, checkpoint=sweep.Checkpoint(directory))


@pytest.mark.parametrize("kind", ["uri", "filesystem"])
def test_a_sweep_goes_on_from_its_checkpoints_after_its_machine_was_lost(tmp_path, kind):
    if kind == "uri":
        path, filesystem = "memory://bucket/sweeps", None
    else:
        path, filesystem = "sweeps", DirFileSystem(str(tmp_path / "remote"), fsspec.filesystem("file"))
    storage = parse_storage(path, filesystem)
    notices: list[str] = []

    def run(**how):
        callback = MirrorCallback(storage, storage.local_root / "lost", notice=notices.append)
        analysis = sweep.run(
            train,
            name="lost",
            storage_path=storage.local_root,
            config={"go_on": str(tmp_path / "go_on")},
            engine="inline",
            checkpoint_config=sweep.CheckpointConfig(num_to_keep=1),
            callbacks=[callback],
            raise_on_failed_trial=False,
            verbose=0,
            **how,
        )
        assert callback.finish()
        return analysis

    assert run().trials[0].status == "ERROR"
    trial_id = run(resume=True).trials[0].trial_id
    (tmp_path / "go_on").touch()
    shutil.rmtree(tmp_path / "cache")

    assert pull(storage, "lost")
    ended = run(resume="AUTO+ERRORED").trials[0]
    assert ended.status == "TERMINATED"
    assert (ended.last_result["step"], ended.last_result["start"]) == (4, 2)
    assert notices == []
    there = storage.experiment("lost").find()
    assert sorted({name.split("/")[1] for name in there if "checkpoint" in name}) == ["checkpoint_000004"]
    assert {f"{trial_id}/result.json", f"{trial_id}/progress.csv", f"{trial_id}/params.json"} <= there.keys()

    shutil.rmtree(tmp_path / "cache")
    root = open_storage_for_reading(f"{path}/lost", filesystem)
    reader = ExperimentReader(root)
    assert [row.metrics["step"] for row in reader.results(trial_id)] == [1, 2, 3, 4]
    with sweep.Checkpoint(root / trial_id / "checkpoint_000004").as_directory() as directory:
        assert Path(directory, "step").read_text() == "4"
    assert not any(thread.name == "sweep-mirror" for thread in threading.enumerate())
