"""Nodes that do not see the driver's directory: what waits for which file, and what is left of it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from sweep.checkpoints.store import MANIFEST, Checkpoint, persist
from sweep.core import messages
from sweep.core.messages import Exit, ExitKind, Reported
from sweep.core.resources import Resources
from sweep.core.trial import CheckpointRef, Outcome, Trial, evolve
from sweep.engines.cluster.log_relay import LogTails, LogWriter
from sweep.engines.cluster.staging import Staging
from sweep.storage.filesystems import RemoteDirectory
from sweep.storage.nodes import Home, NodeCopy
from sweep.storage.transfers import Transfers
from sweep.worker import wire

KEY = ("a", 1)


def until(condition, what="it"):
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up, f"{what} did not happen"
        time.sleep(0.005)


@pytest.fixture
def line():
    """Return transfers and what was said."""
    said = []
    transfers = Transfers(lambda: None, said.append, "s3://b")
    transfers.said = said
    yield transfers
    transfers.close()


def test_steps_of_one_key_keep_their_order_and_those_of_another_do_not_wait(line):
    done, gate = [], threading.Event()
    line.add("a", lambda: done.append("first"), gate.wait)
    line.add("a", lambda: done.append("second"))
    line.add("b", lambda: done.append("other"))
    assert done == ["other"]
    gate.set()
    until(lambda: (line.settle(), len(done) == 3)[1])
    assert done == ["other", "first", "second"]
    line.add("a", lambda: done.append("at once"))
    assert done[-1] == "at once"


def test_work_that_fails_is_tried_again_and_said_once(line, monkeypatch):
    monkeypatch.setattr("sweep.storage.transfers._FIRST_PAUSE_S", 0.001)
    tries, done = [], []

    def work():
        tries.append(1)
        if len(tries) < 4:
            raise ConnectionError("no route")

    line.add("a", lambda: done.append("then"), work)
    until(lambda: (line.settle(), done)[1])
    assert len(tries) == 4
    assert line.said == [
        "s3://b cannot be reached (ConnectionError: no route); it is tried again, and trials wait for it",
        "s3://b can be reached again",
    ]


def test_what_is_hurried_waits_for_nothing(line):
    done, gate = [], threading.Event()
    line.add("a", lambda: done.append("first"), gate.wait)
    line.add("a", lambda: done.append("second"), gate.wait)
    line.hurry("a")
    line.hurry("unknown")
    assert done == ["first", "second"]
    gate.set()
    line.settle()
    line.add("a", lambda: done.append("third"))
    assert done == ["first", "second", "third"]


# --- output ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def relay(tmp_path):
    """Return the tails of a node, the writer of the driver, and both directories."""
    node, driver = tmp_path / "node", tmp_path / "driver"
    (node / "a").mkdir(parents=True)
    driver.mkdir()
    said = []
    tails, writer = LogTails(node, ("mine.txt",)), LogWriter(driver, 1000, said.append)

    def move(key=KEY):
        for written in tails.news(key):
            writer.write(written)
        return {path.name: path.read_text() for path in (driver / "a").iterdir()}

    return tails, writer, node / "a", driver / "a", move, said


def test_output_is_sent_as_it_grows_and_other_files_are_not(relay):
    _, _, node, _, move, _ = relay
    (node / "output.log").write_text("one\n")
    (node / "mine.txt").write_text("mine\n")
    (node / "model.bin").write_text("large")
    assert move() == {"output.log": "one\n", "mine.txt": "mine\n"}
    with (node / "output.log").open("a") as file:
        file.write("two\n")
    assert move()["output.log"] == "one\ntwo\n"


def test_a_file_that_was_trimmed_is_sent_again_behind_what_earlier_attempts_printed(relay):
    tails, writer, node, driver, move, _ = relay
    (node / "output.log").write_text("first attempt\n")
    move()
    tails.end(KEY)
    writer.end(KEY)
    (node / "output.log").write_text("second, which prints much\n")
    assert move(("a", 2))["output.log"] == "first attempt\nsecond, which prints much\n"
    (node / "output.log").write_text("second: trimmed\n")
    assert move(("a", 2))["output.log"] == "first attempt\nsecond: trimmed\n"
    (driver / "output.log").write_text("x" * 5000)
    (node / "output.log").write_text("third\n")
    after = move(("a", 3))["output.log"]
    assert len(after) < 2000
    assert "bytes were dropped here" in after
    assert after.endswith("third\n")


def test_output_that_cannot_be_written_is_said_once(relay, tmp_path):
    _, writer, _, driver, _, said = relay
    driver.mkdir()
    (driver / "output.log").mkdir()
    for _ in range(2):
        writer.write(wire.Written("a", 1, "output.log", 0, b"x"))
    assert said == [f"what trials on other nodes print cannot be written to {driver / 'output.log'}: Is a directory"]


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bucket").mkdir()
    return Home(RemoteDirectory(DirFileSystem(str(tmp_path / "bucket"), LocalFileSystem()), "b/exp"))


def store(root: Path, path: str, text: str = "x") -> str:
    source = root / f"source-{path.replace('/', '-')}"
    source.mkdir(parents=True)
    (source / "model").write_text(text)
    persist(source, root / path, is_source_spent=True)
    return path


def test_what_trials_are_made_of_comes_through_the_storage(home, tmp_path):
    root = tmp_path / "driver"
    (root / "code" / "modules-1" / "pkg").mkdir(parents=True)
    (root / "code" / "modules-1" / "pkg" / "m.py").write_text("pass")
    (root / "code" / "f.pkl").write_bytes(b"pickle")
    (root / "code" / "other.pkl").write_bytes(b"of another run")
    home.send_code(root, [str(root / "code" / "f.pkl"), "", str(root / "code" / "modules-1")])
    names = ["code/f.pkl", "code/modules-1/pkg/m.py"]
    assert sorted(home.remote.find()) == [f".sweep-staging/{name}" for name in names]
    copy = NodeCopy(home, "one")
    copy.clear()
    copy.bring_code()
    there = sorted(str(path.relative_to(copy.root)) for path in (copy.root / "code").rglob("*") if path.is_file())
    assert there == names
    assert copy.own(root, str(root / "code" / "f.pkl")) == str(copy.root / "code" / "f.pkl")
    assert copy.own(root, "/usr/lib") == "/usr/lib"
    assert copy.own(root, "") == ""
    home.staging.remove_tree()
    assert home.remote.find() == {}


def test_a_directory_of_an_agent_that_was_killed_is_emptied(home):
    copy = NodeCopy(home, "one")
    store(copy.root, "a/checkpoint_000001")
    (copy.root / "code" / "agent-one.lock").touch()
    copy = NodeCopy(home, "one")
    copy.clear()
    assert [path.name for path in copy.root.iterdir() if path.is_dir()] == ["code"]
    assert [path.name for path in copy.root.rglob("*")] == ["code", "agent-one.lock"]


def test_of_a_running_trial_the_latest_checkpoint_stays_and_what_others_were_started_from(home):
    copy = NodeCopy(home, "one")
    for number, path in enumerate(("a/checkpoint_000001", "a/checkpoint_000002", "b/checkpoint_000001")):
        store(copy.root, path)
        os.utime(copy.root / path / MANIFEST, (number, number))
    (copy.root / "a" / "output.log").touch()
    (copy.root / "b" / "output.log").touch()
    gone = copy.set_aside({"a"}, {"b/checkpoint_000001"})
    left = sorted(str(path.relative_to(copy.root)) for path in copy.root.glob("[ab]/*"))
    assert left == ["a/checkpoint_000002", "a/output.log", "b/checkpoint_000001", "b/output.log"]
    assert len(gone) == 1
    copy.set_aside(set(), set())
    assert list(copy.root.glob("[ab]")) == []


def test_a_checkpoint_that_is_damaged_there_is_not_brought_and_a_storage_that_fails_is_an_error(home, monkeypatch):
    copy = NodeCopy(home, "one")
    store(copy.root, "a/checkpoint_000001")
    copy.send("a/checkpoint_000001")
    copy.send("a/checkpoint_000001")  # the same is there
    copy.send("b/checkpoint_000001")  # another node's
    other = NodeCopy(home, "two")
    other.bring("a/checkpoint_000001")
    assert (other.root / "a/checkpoint_000001/model").read_text() == "x"
    home.remote.write("a/checkpoint_000001/model", b"damaged")
    third = NodeCopy(home, "three")
    third.bring("a/checkpoint_000001")
    third.bring("a/checkpoint_000009")
    assert not third.has("a/checkpoint_000001")
    monkeypatch.setattr(RemoteDirectory, "find", lambda *_: (_ for _ in ()).throw(TimeoutError("slow")))
    with pytest.raises(Exception, match="slow"):
        third.bring("a/checkpoint_000001")


def test_only_files_that_are_no_logs_are_artifacts_and_each_is_sent_once_until_it_changes(home):
    copy = NodeCopy(home, "one")
    (copy.root / "a" / "plots").mkdir(parents=True)
    (copy.root / "a" / "plots" / "p.png").write_text("p")
    (copy.root / "a" / "output.log").write_text("log")
    store(copy.root, "a/checkpoint_000001")
    copy.send_artifacts("a", ())
    assert sorted(home.remote.find()) == ["a/plots/p.png"]
    home.remote.remove("a/plots/p.png")
    copy.send_artifacts("a", ())
    assert home.remote.find() == {}
    (copy.root / "a" / "plots" / "p.png").write_text("changed")
    copy.send_artifacts("a", ())
    assert sorted(home.remote.find()) == ["a/plots/p.png"]


# --- what waits for which file ---------------------------------------------------------------------------------------


class Post:
    """An staging with everything that it has handed out."""

    def __init__(self, copy):
        self.copy = copy
        self.log = []
        self.staging = Staging(
            copy,
            (),
            tell=lambda written: self.log.append(written.data.decode()),
            emit=lambda event: self.log.append(type(event).__name__),
            wake=lambda: None,
            say=self.log.append,
        )

    def settle(self, number):
        """Wait until so much was handed out, and return it."""
        until(lambda: (self.staging.settle(), len(self.log) >= number)[1], f"{number} of {self.log}")
        log, self.log = self.log, []
        return log


@pytest.fixture
def post(home):
    made = Post(NodeCopy(home, "one"))
    yield made
    made.staging.close()


def made_trial(path: str = "", attempt: int = 1) -> Trial:
    trial = Trial("a", {}, Resources(), attempt=attempt)
    return evolve(trial, checkpoint=CheckpointRef(path, 1)) if path else trial


def test_a_report_is_handed_out_when_its_checkpoint_is_there_and_the_exit_behind_it(post, home, monkeypatch):
    gate, send = threading.Event(), NodeCopy.send
    monkeypatch.setattr(NodeCopy, "send", lambda copy, path: (gate.wait(), send(copy, path)))
    post.staging.start(made_trial(), lambda: post.log.append("start"))
    store(post.copy.root, "a/checkpoint_000001")
    (post.copy.root / "a" / "output.log").write_text("printed")
    post.staging.take(messages.Started("a", 1))
    post.staging.take(messages.Reported("a", 1, 1, {}, "a/checkpoint_000001"))
    post.staging.take(messages.Exited("a", 1, Exit(ExitKind.FINISHED)))
    post.staging.take(messages.Released("a", 1))
    post.staging.take(messages.NodesChanged(()))
    post.staging.settle()
    assert post.log == ["start", "Started", "NodesChanged"]
    gate.set()
    assert post.settle(7)[3:] == ["Reported", "printed", "Exited", "Released"]
    assert f"a/checkpoint_000001/{MANIFEST}" in home.remote.find()
    assert not (post.copy.root / "a").exists()


def test_a_trial_starts_when_its_checkpoint_is_here_and_one_that_is_to_end_does_not_wait(post, home, monkeypatch):
    other = NodeCopy(home, "two")
    other.send(store(other.root, "b/checkpoint_000001"))
    post.staging.start(made_trial("b/checkpoint_000001"), lambda: post.log.append("start"))
    assert post.settle(2) == ["Waiting", "start"]
    assert post.copy.has("b/checkpoint_000001")
    gate = threading.Event()
    monkeypatch.setattr(NodeCopy, "bring", lambda *_: gate.wait())
    post.staging.start(made_trial("c/checkpoint_000001", attempt=2), lambda: post.log.append("start"))
    assert post.log == ["Waiting"]
    post.staging.hurry(("a", 2))
    assert post.log == ["Waiting", "start"]
    gate.set()


def test_shards_travel_ahead_of_what_names_them(post, home):
    far = Post(NodeCopy(home, "two"))
    shard = far.copy.root / "a" / "tmp-shards-1" / "rank1"
    shard.mkdir(parents=True)
    (shard / "part").write_text("of rank 1")
    said, heard = [], []
    word = wire.Relayed("", 1, Reported("a", 1, 1, {}, str(shard)), 0.0)
    far.staging.say_of(KEY, word, lambda key, word: said.append(word))
    far.staging.say_of(KEY, word._replace(word=wire.Done(1, Outcome("FINISHED"), 0.0)), lambda _, w: said.append(w))
    until(lambda: (far.staging.settle(), len(said) == 2)[1])
    assert said[0].word.checkpoint == "a/tmp-shards-1/rank1"
    assert not shard.exists()
    post.staging.hear(KEY, said[0], lambda key, word: heard.append(word))
    post.staging.hear(KEY, said[1], lambda key, word: heard.append(word))
    until(lambda: (post.staging.settle(), len(heard) == 2)[1])
    place = Path(heard[0].word.checkpoint)
    assert place == post.copy.root / "a" / "tmp-shards-1" / "rank1"
    assert (place / "part").read_text() == "of rank 1"
    assert home.remote.find() == {}
    merge = wire.Relayed("two", 1, wire.Merge(1, (str(place),)), 0.0)
    post.staging.say_of(KEY, merge, lambda key, word: said.append(word))
    until(lambda: (post.staging.settle(), len(said) == 3)[1])
    assert said[2].word.shards == ("a/tmp-shards-1/rank1",)
    far.staging.close()


def test_a_merged_checkpoint_is_sent_before_others_hear_of_it(post, home):
    said = []
    store(post.copy.root, "a/checkpoint_000001")
    word = wire.Relayed("", 1, wire.Merged(1, "a/checkpoint_000001"), 0.0)
    post.staging.say_of(
        KEY, word, lambda key, word: said.append(f"a/checkpoint_000001/{MANIFEST}" in home.remote.find())
    )
    until(lambda: (post.staging.settle(), said)[1])
    assert said == [True]


def test_whoever_misses_a_checkpoint_on_a_node_finds_it_in_the_storage_of_an_object_too(home):
    other = NodeCopy(home, "two")
    other.send(store(other.root, "a/checkpoint_000001"))
    copy = NodeCopy(home, "one")
    copy.bring_code()
    from sweep.storage import filesystems

    filesystems._homes.clear()  # as in another process
    with Checkpoint(copy.root / "a/checkpoint_000001").as_directory() as directory:
        assert Path(directory, "model").read_text() == "x"
    note = copy.root / ".sweep-remote.json"
    assert note.stat().st_mode & 0o077 == 0
