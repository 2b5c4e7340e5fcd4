"""`report` and its companions, in and outside a sweep."""

from __future__ import annotations

import os

import pytest

from sweep.errors import UserCodeError
from sweep.worker import session as module
from sweep.worker import wire
from sweep.worker.adapters import run_function
from sweep.worker.session import Session, StopRequested, get_checkpoint, get_context, install, report


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


def job(directory, **changes):
    """Return a job of token 7."""
    fields = dict.fromkeys(wire.Job._fields, "")
    fields.update(
        token=7, trial_id="abcde_00003", attempt=2, experiment="e", directory=str(directory), name="train", seed=5
    )
    fields.update(base_count=0, num_threads=1, resources={"bundles": [{"cpu": 1.0}]}, **changes)
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
    _, peer = open_session(*[(wire.CONTINUE, 7, n, False) for n in (1, 2, 3)])
    report({"a": 1})
    report(a=2)
    report({"a": 3}, b=4)
    assert [(message[2], message[3]["a"]) for message in peer.sent] == [(1, 1), (2, 2), (3, 3)]
    assert peer.sent[2][3]["b"] == 4


def test_what_is_filled_in_does_not_replace_what_was_given(open_session):
    _, peer = open_session((wire.CONTINUE, 7, 1, False))
    report({"timestamp": 3, "time_this_iter_s": 9.5})
    values = peer.sent[0][3]
    assert (values["timestamp"], values["time_this_iter_s"]) == (3, 9.5)
    assert values["pid"] == os.getpid()
    assert values["hostname"]


def test_answers_of_another_attempt_or_to_another_report_are_not_taken(open_session):
    _, peer = open_session(
        (wire.CONTINUE, 6, 1, False),
        (wire.STOP, 6, 1, False),
        (wire.CONTINUE, 7, 0, False),
        (wire.CONTINUE, 7, 1, False),
    )
    report(a=1)
    assert peer.answers == []


def test_a_stop_unwinds_now_and_at_every_later_report(open_session):
    session, peer = open_session((wire.STOP, 7, 0, False))
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


def test_a_report_above_a_mebibyte_is_refused_and_the_next_one_has_its_number(open_session):
    _, peer = open_session((wire.CONTINUE, 7, 1, False))
    with pytest.raises(UserCodeError, match="most of them in 'big'"):
        report(big="x" * (1 << 20))
    report(a=1)
    assert [message[2] for message in peer.sent] == [1]


def test_what_a_generator_yields_are_reports_and_it_is_closed_when_stopped(open_session):
    session, peer = open_session((wire.CONTINUE, 7, 1, False), (wire.STOP, 7, 2, False))
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
    assert [message[3].get("a", message[3].get("_metric")) for message in peer.sent] == [1, 2.5]
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
