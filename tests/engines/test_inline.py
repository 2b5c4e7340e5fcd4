"""The inline engine: code runs on the calling thread, and Ctrl-C and errors get through."""

from __future__ import annotations

import io
import os
import pdb
import threading
from dataclasses import replace

import pytest
from conformance.engines import collect, context, has_reported, play_out, trial

from sweep.core.messages import ExitKind, Kill, Reported, Start
from sweep.engines.inline import InlineEngine
from sweep.errors import SweepError
from sweep.worker.session import report


def make(directory, function, **options):
    """Return an inline engine."""
    return InlineEngine(context(directory, function, **options))


def test_user_code_runs_on_the_calling_thread_and_the_loop_on_another(tmp_path):
    def train(config):
        return {"thread": threading.get_ident(), "trial": os.environ["SWEEP_TRIAL"]}

    engine = make(tmp_path, train)

    events, loops_thread = engine.run_loop(lambda: (play_out(engine), threading.get_ident()))
    (told,) = [event for event in events if isinstance(event, Reported)]
    assert told.metrics["thread"] == threading.get_ident() != loops_thread
    assert told.metrics["trial"] == "abcde_00000"
    assert "SWEEP_TRIAL" not in os.environ


def test_a_debugger_works_in_user_code(tmp_path):
    output = io.StringIO()

    def train(config):
        value = 41
        debugger = pdb.Pdb(stdin=io.StringIO("p value + 1\ncontinue\n"), stdout=output, nosigint=True, readrc=False)
        debugger.set_trace()
        return {"value": value}

    engine = InlineEngine(context(tmp_path, lambda config: 1))
    engine._code.trainable = train  # a stream cannot be shipped; here it need not

    events = engine.run_loop(lambda: play_out(engine))
    assert events[-2].exit.kind is ExitKind.FINISHED
    assert "42" in output.getvalue()


def test_an_error_of_the_loop_is_raised_by_run(tmp_path):
    engine = make(tmp_path, lambda config: 1)

    def loop():
        raise LookupError("in the loop")

    with pytest.raises(LookupError, match="in the loop"):
        engine.run_loop(loop)


def test_ctrl_c_in_user_code_reaches_the_loop_and_the_caller(tmp_path):
    def train(config):
        raise KeyboardInterrupt

    engine = make(tmp_path, train)
    heard = []

    def loop():
        try:
            play_out(engine)
        except KeyboardInterrupt:
            heard.append(True)
            raise

    with pytest.raises(KeyboardInterrupt):
        engine.run_loop(loop)
    assert heard == [True]


def test_a_loop_that_ends_while_trials_run_ends_them_at_their_next_report(tmp_path):
    def train(config):
        while True:
            report({"a": 1})

    engine = make(tmp_path, train)

    def loop():
        engine.execute(Start(trial()))
        return collect(engine, has_reported(1), answer=None)

    assert len(engine.run_loop(loop)) == 2


def test_a_kill_takes_effect_at_the_next_report(tmp_path):
    def train(config):
        report({"a": 1})
        report({"a": 2})

    engine = make(tmp_path, train)

    def kill(told):
        return Kill(told.trial_id, told.attempt, "enough")

    events = engine.run_loop(lambda: play_out(engine, answer=kill))
    assert (events[-2].exit.kind, events[-2].exit.error) == (ExitKind.KILLED, "enough")


def test_an_inline_sweep_inside_an_inline_trial_is_refused(tmp_path):
    def train(config):
        make(tmp_path / "inner", lambda config: 1).run_loop(lambda: None)

    engine = make(tmp_path, train)

    ended = engine.run_loop(lambda: play_out(engine))[-2].exit
    assert ended.class_name == SweepError.__name__


def test_a_trial_gets_the_variables_of_the_run_and_those_of_its_trainable(tmp_path):
    given = context(tmp_path, lambda config: {"seen": os.environ["OF_RUN"] + os.environ["OF_BOTH"] + os.environ["OWN"]})
    own = replace(given.trainable, env={"OWN": "c", "OF_BOTH": "-"})
    engine = InlineEngine(replace(given, trainable=own, env={"OF_RUN": "a", "OF_BOTH": "b"}))

    (told,) = [event for event in engine.run_loop(lambda: play_out(engine)) if isinstance(event, Reported)]
    assert told.metrics["seen"] == "abc"
