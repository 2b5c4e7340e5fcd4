"""`report` and its companions, in and outside a sweep."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from sweep.checkpoints.store import Checkpoint
from sweep.core.messages import Continue, Reported, Saved, Stop, Waiting
from sweep.core.resources import Resources
from sweep.errors import CheckpointError, UserCodeError
from sweep.worker import disk_wait, wire
from sweep.worker import session as module
from sweep.worker.adapters import run_function
from sweep.worker.session import Session, StopRequested, get_checkpoint, get_context, install, report

KEY = ("abcde_00003", 2)


class Peer:
    """A driver that answers from a list; what was sent is kept."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sent = []
        self.frames = wire.Frames()

    def send(self, data):
        self.sent += self.frames.feed(data)

    def receive(self):
        return self.answers.pop(0)

    def wait(self, seconds):
        return bool(self.answers and isinstance(self.answers[0], Stop))


def job(directory, **changes):
    fields = dict.fromkeys(wire.Job._fields, "")
    fields.update(trial_id=KEY[0], attempt=KEY[1], experiment="e", directory=str(directory), name="train", seed=5)
    fields.update(base_count=0, num_threads=1, resources=Resources(), **changes)
    return wire.Job(**fields)


@pytest.fixture
def open_session(tmp_path):
    """Return `open(*answers)`: a session with a peer, installed for the test."""

    def opened(*answers, **changes):
        peer = Peer(*answers)
        session = Session(job(tmp_path, **changes), peer)
        install(session)
        return session, peer

    yield opened
    install(None)


def test_outside_a_sweep_report_warns_once_and_does_nothing(monkeypatch):
    monkeypatch.setattr(module, "_has_warned", False)
    with pytest.warns(UserWarning, match="outside a sweep"):
        report({"a": 1})
    report(a=1)
    assert get_checkpoint() is None
    assert get_context().get_trial_id() is None


def test_report_takes_a_dict_keywords_or_both(open_session):
    _, peer = open_session(*[Continue(*KEY, n) for n in (1, 2, 3)])
    report({"a": 1})
    report(a=2)
    report({"a": 3}, b=4)
    assert [(message.seq, message.metrics["a"]) for message in peer.sent] == [(1, 1), (2, 2), (3, 3)]
    assert peer.sent[2].metrics["b"] == 4


def test_what_is_filled_in_does_not_replace_what_was_given(open_session):
    _, peer = open_session(Continue(*KEY, 1))
    report({"timestamp": 3, "time_this_iter_s": 9.5})
    values = peer.sent[0].metrics
    assert (values["timestamp"], values["time_this_iter_s"]) == (3, 9.5)
    assert values["pid"] == os.getpid()
    assert values["hostname"]


def test_answers_of_another_attempt_or_to_another_report_are_not_taken(open_session):
    _, peer = open_session(
        Continue("abcde_00002", 2, 1),
        Stop("abcde_00003", 1, 1),
        Continue(*KEY, 0),
        Continue(*KEY, 1),
    )
    report(a=1)
    assert peer.answers == []


def test_a_stop_unwinds_now_and_at_every_later_report(open_session):
    session, peer = open_session(Stop(*KEY, 0))
    with pytest.raises(StopRequested):
        report(a=1)
    with pytest.raises(StopRequested):
        report(a=2)
    assert session.is_stopping
    assert len(peer.sent) == 1


def test_a_child_of_the_trials_process_may_not_report(open_session, monkeypatch):
    open_session()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(UserCodeError, match="only the trial's own process may report"):
        report(a=1)


def test_a_checkpoint_must_be_a_checkpoint(open_session):
    open_session()
    with pytest.raises(UserCodeError, match="expected a Checkpoint"):
        report({"a": 1}, checkpoint="directory")


def test_of_a_report_above_a_mebibyte_the_largest_value_is_left_out(open_session):
    _, peer = open_session(Continue(*KEY, 1))
    report(big=[0.5] * (1 << 18), a=1)
    sent = peer.sent[0].metrics
    assert sent["big"] == "list of 262,144 elements: not stored, a report takes at most 1,048,576 bytes"
    assert sent["a"] == 1


def test_a_report_that_is_refused_leaves_the_next_one_its_number(open_session):
    _, peer = open_session(Continue(*KEY, 1))
    with pytest.raises(UserCodeError, match="a report has 1,001 keys"):
        report({str(n): n for n in range(1001)})
    report(a=1)
    assert [message.seq for message in peer.sent] == [1]


def test_a_value_that_is_changed_is_said_once_per_key_and_sweep(open_session, capfd):
    what = "numpy.ndarray of shape (2,) and dtype float64, stored as a list"
    told = f"sweep: {{!r}} was reported as {what}; this is said once.\n"
    for _ in range(2):  # two attempts in one process
        open_session(*(Continue(*KEY, number) for number in (1, 2)))
        for _ in range(2):
            report(a=np.zeros(2), b=np.zeros(2), c=1.0)
    assert capfd.readouterr().err == told.format("a") + told.format("b")


def test_a_value_that_cannot_be_said_is_reported_all_the_same(open_session, monkeypatch):
    _, peer = open_session(Continue(*KEY, 1))
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    report(a=np.zeros(2))
    assert peer.sent[0].metrics["a"] == [0.0, 0.0]


def test_what_a_generator_yields_are_reports_and_it_is_closed_when_stopped(open_session):
    session, peer = open_session(Continue(*KEY, 1), Stop(*KEY, 2))
    closed = []

    def train(config):
        try:
            yield {"a": 1}
            yield 2.5
            yield {"a": 3}
        finally:
            closed.append(True)

    with pytest.raises(StopRequested):
        run_function(session, train, {}, {})
    assert [message.metrics.get("a", message.metrics.get("_metric")) for message in peer.sent] == [1, 2.5]
    assert closed == [True]


def test_the_context_tells_what_a_trial_may_know(open_session, tmp_path):
    open_session()
    context = get_context()
    assert context.get_trial_id() == "abcde_00003"
    assert context.get_trial_name() == "train_abcde_00003"
    assert context.get_trial_dir() == str(tmp_path / "abcde_00003")
    assert context.get_experiment_name() == "e"
    assert context.get_trial_resources().bundles[0].cpu == 1.0
    assert (context.get_attempt(), context.get_seed(), context.get_world_size()) == (2, 5, 1)


# --- a full disk -----------------------------------------------------------------------------------------------------


def full(path=None):
    return OSError(errno.EDQUOT, "Disk quota exceeded", path)


@pytest.fixture
def soon(monkeypatch):
    """Have what waits for room try again at once."""
    monkeypatch.setattr(disk_wait, "_FIRST_S", 0.0)


@pytest.fixture
def refusals(monkeypatch, soon):
    """Return a list: as long as it holds something, nothing can be copied, and half of it stays."""
    left = [1, 1]
    real = shutil.copyfile

    def copy(source, target, **more):
        if left:
            left.pop()
            with open(target, "w") as file:
                file.write("half")
            raise full(target)
        return real(source, target, **more)

    monkeypatch.setattr(shutil, "copyfile", copy)
    return left


def waits(peer):
    return [message.reason.partition(":")[0] for message in peer.sent if isinstance(message, Waiting)]


def test_a_checkpoint_waits_for_room_and_no_half_of_it_stays_meanwhile(open_session, tmp_path, refusals, monkeypatch):
    session, peer = open_session(Continue(*KEY, 1))
    source = tmp_path / "source"
    source.mkdir()
    (source / "model").write_text("all of it")
    left_meanwhile = []
    wait = peer.wait
    monkeypatch.setattr(
        peer, "wait", lambda seconds: left_meanwhile.append(os.listdir(session.trial_dir)) or wait(seconds)
    )
    report(loss=1.0, checkpoint=Checkpoint(source))
    assert waits(peer) == ["waits for disk space", ""]
    assert [type(message) for message in peer.sent] == [Waiting, Waiting, Reported]
    assert left_meanwhile == [[], []]
    stored = get_checkpoint()
    assert (os.path.basename(stored.path), Path(stored.path, "model").read_text()) == ("checkpoint_000001", "all of it")
    assert os.listdir(session.trial_dir) == ["checkpoint_000001"]


def test_a_stop_ends_the_wait_for_room_and_nothing_is_reported(open_session, tmp_path, refusals):
    session, peer = open_session(Stop(*KEY, 0))
    refusals += [1] * 1000
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "model").touch()
    with pytest.raises(StopRequested):
        report(loss=1.0, checkpoint=Checkpoint(tmp_path / "source"))
    assert (session.is_stopping, waits(peer)) == (True, ["waits for disk space", ""])
    assert Reported not in map(type, peer.sent)


def test_a_class_is_asked_for_its_state_again_when_there_is_room(open_session, soon):
    session, peer = open_session(Continue(*KEY, 1))
    asked = []

    def save(directory):
        asked.append(os.listdir(session.trial_dir))
        with open(f"{directory}/model", "w") as file:
            file.write("half" if len(asked) < 3 else "all of it")
            if len(asked) < 3:
                raise full()

    session.saver = save
    session.report({"loss": 1.0}, is_saving=True)
    assert [len(names) for names in asked] == [1, 1, 1]  # the directory that it writes into, and nothing of before
    assert waits(peer) == ["waits for disk space", ""]
    assert Path(get_checkpoint().path, "model").read_text() == "all of it"


def test_what_a_library_makes_of_a_full_disk_is_tried_again_and_a_mistake_is_raised(open_session, soon, monkeypatch):
    session, peer = open_session(Continue(*KEY, 1))
    errors = [RuntimeError("unexpected pos 576 vs 534")]

    def save(directory):
        if errors:
            raise errors.pop()

    session.saver = save
    monkeypatch.setattr(disk_wait, "free_bytes", lambda directory: 4096)
    session.report({"loss": 1.0}, is_saving=True)
    assert waits(peer) == ["waits for disk space", ""]
    monkeypatch.setattr(disk_wait, "free_bytes", lambda directory: 1 << 40)
    errors.append(RuntimeError("a mistake"))
    with pytest.raises(RuntimeError, match="a mistake"):
        session.report({"loss": 1.0}, is_saving=True)


def test_a_full_disk_elsewhere_is_a_failure_of_the_code_that_writes_there(open_session, soon):
    session, _ = open_session()

    def save(directory):
        raise full("/elsewhere/cache")

    session.saver = save
    with pytest.raises(OSError, match="quota"):
        session.report({"loss": 1.0}, is_saving=True)


def test_a_trial_that_is_told_to_save_and_end_does_not_wait_for_ever(open_session, soon, monkeypatch):
    session, peer = open_session(Stop(*KEY, 1, True))
    monkeypatch.setattr(module, "_STOP_PATIENCE_S", 0.0)

    def save(directory):
        raise full()

    session.saver = save
    with pytest.raises(StopRequested):
        report(loss=1.0)
    assert waits(peer) == ["waits for disk space", ""]
    assert isinstance(peer.sent[0], Reported)
    assert Saved not in map(type, peer.sent)


def test_the_directory_of_an_experiment_that_was_deleted_is_not_made_anew(open_session, tmp_path):
    session, _ = open_session()
    (tmp_path / "source").mkdir()
    session.job = session.job._replace(directory=str(tmp_path / "deleted"))
    with pytest.raises(CheckpointError, match="directory of the experiment is gone"):
        report(loss=1.0, checkpoint=Checkpoint(tmp_path / "source"))
    assert not (tmp_path / "deleted").exists()


def test_a_print_that_waits_leaves_the_channel_to_a_report(open_session):
    session, peer = open_session(Stop(*KEY, 0))
    waiting = session.wait_to_print()
    with session._lock:  # a report waits for its answer
        waiting._say("not now")
    assert peer.sent == []
    waiting._say("now")
    assert len(peer.sent) == 1
    with pytest.raises(StopRequested):
        waiting._wait(0.0)
