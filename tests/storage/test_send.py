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

import sweep
from sweep.core.config import SyncConfig
from sweep.record.reader import ExperimentReader
from sweep.storage import send
from sweep.storage.fetch import open_storage_for_reading
from sweep.storage.location import parse_storage
from sweep.storage.ownership import TakenOver
from sweep.storage.send import Sender

LIMIT_S = 20  # for what happens at once


class Passes:
    """What is sent: each pass takes its outcome from the test, and waits for it."""

    is_record_only = False
    shown = "memory://b/made"

    def __init__(self, root):
        self.kept = str(root)
        self.passes: queue.Queue[tuple[list[str] | None, bool]] = queue.Queue()
        self.outcomes: queue.Queue[Exception | None] = queue.Queue()

    def end(self):
        pass

    def sync(self, trial_ids=None, *, with_artifacts=False):
        self.passes.put((None if trial_ids is None else sorted(trial_ids), with_artifacts))
        outcome = self.outcomes.get(timeout=LIMIT_S)
        if outcome is not None:
            raise outcome

    def next_pass(self, outcome=None):
        """Let the pass that is under way, or the next, end like this; returns what it was asked for."""
        found = self.passes.get(timeout=LIMIT_S)
        self.outcomes.put(outcome)
        return found


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    for name in ("_GAP_S", "_FIRST_BACKOFF_S"):
        monkeypatch.setattr(send, name, 0)


@pytest.fixture
def begin(tmp_path):
    begun = []

    def begin(**how):
        notices: list[str] = []
        notice = how.pop("notice", notices.append)
        sender = Sender(Passes(tmp_path / "made"), SyncConfig(**how), notice=notice)
        sender.start()
        begun.append(sender)
        return sender, sender.mirror, notices

    yield begin
    for sender in begun:
        sender.stop()
        sender.mirror.outcomes.put(None)
        sender._thread.join(LIMIT_S)
        assert not sender._thread.is_alive()


def trial(name):
    return SimpleNamespace(id=name)


def end_of(sender, uploads, outcome):
    """Finish, with this outcome of the pass that is left."""
    uploads.outcomes.put(outcome)
    return sender.finish()


def test_what_happens_during_a_slow_pass_is_sent_together_in_the_next(begin):
    sender, uploads, notices = begin()
    uploads.passes.get(timeout=LIMIT_S)  # the first is under way, and the hooks return nevertheless
    sender.on_trial_save(trial("a"))
    sender.on_trial_save(trial("a"))
    sender.on_trial_complete(trial("b"))
    uploads.outcomes.put(None)
    assert uploads.next_pass() == (["a", "b"], False)
    sender.on_trial_error(trial("c"))
    assert uploads.next_pass() == (["c"], False)
    assert end_of(sender, uploads, None)
    assert uploads.passes.get_nowait() == (None, False)
    assert notices == []
    assert sender.finish()


@pytest.mark.parametrize(
    ("how", "on_save", "on_end"),
    [
        ({"sync_artifacts": False, "sync_artifacts_on_checkpoint": True}, False, False),
        ({"sync_artifacts": True, "sync_artifacts_on_checkpoint": True}, True, True),
        ({"sync_artifacts": True, "sync_artifacts_on_checkpoint": False}, False, True),
    ],
)
def test_artifacts_go_with_checkpoints_ends_and_whole_passes_as_asked(begin, how, on_save, on_end):
    sender, uploads, _ = begin(**how)
    assert uploads.next_pass() == (None, how["sync_artifacts"])
    sender.on_trial_save(trial("a"))
    assert uploads.next_pass() == (["a"], on_save)
    sender.on_trial_complete(trial("a"))
    assert uploads.next_pass() == (["a"], on_end)


def test_everything_is_looked_at_in_every_period(begin):
    _, uploads, _ = begin(sync_period=0.01)
    assert [uploads.next_pass() for _ in range(3)] == [(None, False)] * 3


def test_a_remote_that_fails_is_named_once_and_what_was_new_is_sent_when_it_is_back(begin):
    sender, uploads, notices = begin()
    uploads.next_pass()
    sender.on_trial_save(trial("a"))
    for _ in range(3):
        assert uploads.next_pass(ConnectionError("no route")) == (["a"], False)
    assert uploads.next_pass() == (["a"], False)
    sender.on_trial_save(trial("b"))
    assert uploads.next_pass(ConnectionError("no route")) == (["b"], False)
    assert uploads.next_pass() == (["b"], False)
    assert end_of(sender, uploads, None)
    assert notices == [
        "memory://b/made cannot be written (ConnectionError: no route); it is tried again. The run does not wait for "
        f"it; everything is in {sender.mirror.kept}",
        "memory://b/made can be written again",
    ]


def test_the_end_tries_at_once_whatever_it_was_waiting_for(begin, monkeypatch):
    for name in ("_GAP_S", "_FIRST_BACKOFF_S", "_LAST_BACKOFF_S"):
        monkeypatch.setattr(send, name, 600.0)
    has_failed = threading.Event()
    sender, uploads, _ = begin(notice=lambda text: has_failed.set())
    uploads.next_pass(ConnectionError("no route"))
    assert has_failed.wait(LIMIT_S)
    assert end_of(sender, uploads, None)


def test_the_end_does_not_keep_the_pause_after_a_pass_that_was_under_way(begin, monkeypatch):
    monkeypatch.setattr(send, "_GAP_S", 600.0)
    sender, uploads, _ = begin()
    uploads.passes.get(timeout=LIMIT_S)
    threading.Timer(0.1, lambda: (uploads.outcomes.put(None), uploads.outcomes.put(None))).start()
    assert sender.finish()


def test_the_end_says_what_could_not_be_copied_and_where_it_is(begin, monkeypatch):
    sender, uploads, notices = begin(sync_timeout=0.2)
    uploads.next_pass()
    monkeypatch.setattr(send, "_FIRST_BACKOFF_S", 31.0)
    assert not end_of(sender, uploads, PermissionError("denied"))
    assert notices[1:] == [
        "memory://b/made is not complete: the last changes could not be copied within sync_timeout=0.2 s (last error: "
        f"PermissionError: denied). Everything is in {uploads.kept}; the same call with resume=True copies the rest"
    ]


def test_the_end_waits_no_longer_than_told_for_a_pass_that_hangs(begin):
    sender, uploads, notices = begin(sync_timeout=0.01)
    uploads.passes.get(timeout=LIMIT_S)
    assert not sender.finish()
    assert uploads.is_over()
    assert [text.partition(" could")[0] for text in notices] == ["memory://b/made is not complete: the last changes"]
    uploads.outcomes.put(None)


def test_the_end_says_what_it_waits_for_when_it_takes_long(begin, monkeypatch):
    monkeypatch.setattr(send, "_PATIENCE_S", 0.01)
    said = queue.Queue()
    sender, uploads, _ = begin(notice=said.put)
    threading.Thread(target=sender.finish).start()
    assert said.get(timeout=LIMIT_S) == (
        "copying what is left to memory://b/made; Ctrl-C ends that, and nothing is lost"
    )
    uploads.next_pass()
    uploads.next_pass()
    sender._thread.join(LIMIT_S)
    assert said.empty()


def test_a_second_driver_ends_the_copying_and_is_named_once(begin):
    sender, uploads, notices = begin()
    uploads.next_pass(TakenOver("another driver writes there"))
    assert not sender.finish()
    assert notices == ["another driver writes there"]


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

    def run(**how):
        return sweep.run(
            train,
            name="lost",
            storage_path=path,
            storage_filesystem=filesystem,
            config={"go_on": str(tmp_path / "go_on")},
            engine="inline",
            checkpoint_config=sweep.CheckpointConfig(num_to_keep=1),
            raise_on_failed_trial=False,
            verbose=0,
            **how,
        )

    assert run().trials[0].status == "ERROR"
    trial_id = run(resume=True).trials[0].trial_id
    (tmp_path / "go_on").touch()
    shutil.rmtree(tmp_path / "cache")

    ended = run(resume="AUTO+ERRORED").trials[0]
    assert ended.status == "TERMINATED"
    assert (ended.last_result["step"], ended.last_result["start"]) == (4, 2)
    there = (storage.remote / "lost").find()
    assert sorted({name.split("/")[1] for name in there if "checkpoint" in name}) == ["checkpoint_000004"]
    assert {f"{trial_id}/result.json", f"{trial_id}/progress.csv", f"{trial_id}/params.json"} <= there.keys()

    shutil.rmtree(tmp_path / "cache")
    root = open_storage_for_reading(f"{path}/lost", filesystem)
    reader = ExperimentReader(root)
    assert [row.metrics["step"] for row in reader.results(trial_id)] == [1, 2, 3, 4]
    with sweep.Checkpoint(root / trial_id / "checkpoint_000004").as_directory() as directory:
        assert Path(directory, "step").read_text() == "4"
    assert not any(thread.name == "sweep-sender" for thread in threading.enumerate())
