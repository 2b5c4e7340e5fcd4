"""The loop: handle, commit, act; in that order, and what raises where."""

from __future__ import annotations

import pytest
from sweep_run import Nobody, given_configs, new_sweep

from searchers.base import NOT_NOW
from sweep.core.messages import (
    Ask,
    Asked,
    Discard,
    Exit,
    Exited,
    ExitKind,
    Hook,
    NodesChanged,
    PlanChanged,
    Reported,
    ResizeTrial,
    Start,
    Suggested,
    Verdict,
)
from sweep.core.resources import Bundle, Node, Resources
from sweep.core.trial import Status
from sweep.engines.simulator import Point, Simulator
from sweep.errors import MetricError, SearchError, SweepStalled
from sweep.launch.drive import drive
from sweep.schedulers.base import Scheduler
from sweep.schedulers.fifo import FIFOScheduler

NODES = (Node("n", 2),)


def three(config, done):
    for step in range(done + 1, 4):
        yield Point(1.0, {"m": config["x"] * step}, has_checkpoint=True)


class Watched(Simulator):
    """Notes what it is told to do, beside the commits."""

    def __init__(self, log):
        super().__init__(three, NODES)
        self.log = log

    def execute(self, command):
        self.log.append(type(command).__name__)
        super().execute(command)


class Logged(Nobody):
    def __init__(self, log):
        super().__init__()
        self.log = log

    def commit(self, events, commands, changes, now):
        super().commit(events, commands, changes, now)
        self.log.append("commit " + " ".join(type(event).__name__ for event in events))


def run(searcher, curve=three, *, engine=None, scheduler=None, request_of=None, judge=None, record=None, **plan):
    """Drive a sweep; returns it and its record, which an error bears, too."""
    sweep = new_sweep(scheduler or FIFOScheduler(), **{"num_trials": 2, "ask_ahead": 4, **plan})
    engine = engine or Simulator(curve, NODES)
    record = record or Nobody()
    request_of = request_of or (lambda config: Resources())
    try:
        drive(sweep, engine, searcher, record, record, request_of=request_of, judge=judge)
    except Exception as error:
        error.sweep, error.record = sweep, record
        raise
    return sweep, record


def test_every_batch_is_committed_before_anything_is_done_about_it():
    log = []
    run(given_configs([{"x": 1}]), num_trials=1, engine=Watched(log), record=Logged(log))
    reports = ["commit Reported", "Continue"] * 3
    assert log == [
        *("commit PlanChanged NodesChanged", "commit Suggested", "Start", "commit Started"),
        *(*reports, "commit Exited Released"),
    ]


def test_nothing_is_done_when_the_commit_fails():
    class Full(Nobody):
        def commit(self, events, commands, changes, now):
            if any(isinstance(event, Suggested) for event in events):
                raise OSError("disk full")

    log = []
    with pytest.raises(OSError, match="disk full"):
        run(given_configs([{"x": 1}]), num_trials=1, engine=Watched(log), record=Full())
    assert log == []


def test_the_commits_hold_every_event_with_the_commands_that_it_caused():
    sweep, record = run(given_configs([{"x": 1}, {"x": 2}]))
    events = [event for batch, _, _, _ in record.commits for event in batch]
    assert isinstance(events[0], PlanChanged)
    assert events[1] == NodesChanged(NODES)
    assert len(events) == sweep.seq
    for batch, commands, _, _ in record.commits:
        assert len(batch) == len(commands)
    commanded = [command for _, commands, _, _ in record.commits for some in commands for command in some]
    assert [command.trial.attempt for command in commanded if isinstance(command, Start)] == [1, 1]
    times = [now for _, _, _, now in record.commits]
    assert times == sorted(times)


def test_the_searcher_hears_everything_before_it_is_asked_again():
    searcher = given_configs([{"x": 1}, {"x": 2}])
    run(searcher, ask_ahead=1, request_of=lambda config: Resources((Bundle(cpu=2),)))
    first = [("asked", "00000"), *(("result", "00000", m) for m in (1, 2, 3)), ("complete", "00000", 3, False)]
    second = [("asked", "00001"), *(("result", "00001", m) for m in (2, 4, 6)), ("complete", "00001", 6, False)]
    assert searcher.heard == first + second


def test_a_trial_in_error_is_told_without_a_result():
    def broken(config, done):
        yield Point(1.0, {"m": 1.0})
        raise ValueError("no")

    searcher = given_configs([{"x": 1}])
    sweep, _ = run(searcher, broken, num_trials=1)
    assert searcher.heard[-1] == ("complete", "00000", None, True)
    assert sweep.trials["00000_00000"].reason == "ValueError: no"


@pytest.mark.parametrize("bad", [ValueError("a bad day"), "no dict", 7, {"x": "its resources function raises"}])
def test_a_searcher_that_answers_nonsense_three_times_is_named_and_a_bad_answer_in_between_forgiven(bad):
    def request_of(config):
        return Resources((Bundle(cpu=float(config["x"])),))

    with pytest.raises(SearchError, match="Given") as error:
        run(given_configs([bad, bad, bad]), request_of=request_of)
    assert "3 times in a row" in str(error.value)
    sweep, record = run(given_configs([bad, {"x": 1}, {"x": 2}]), request_of=request_of)
    assert [trial.status for trial in sweep.trials.values()] == [Status.TERMINATED] * 2
    events = [event for batch, _, _, _ in record.commits for event in batch]
    suggested = [event for event in events if isinstance(event, Suggested) and event.resources is not None]
    assert [event.resources.bundles[0].cpu for event in suggested] == [1.0, 2.0]


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(3), GeneratorExit(), KeyboardInterrupt()])
@pytest.mark.parametrize("hook", ["suggest", "on_trial_result", "on_trial_complete"])
def test_whatever_a_searcher_raises_is_its_failure_but_ctrl_c_is_not(hook, error):
    searcher = given_configs([{"x": 1}])

    def raises(*arguments):
        raise error

    setattr(searcher, hook, raises)
    is_pressed = isinstance(error, KeyboardInterrupt)
    told = type(error).__name__ if hook == "suggest" else "failed when it was told of trial 00000_00000"
    kind, said = (KeyboardInterrupt, None) if is_pressed else (SearchError, f"Given.*{told}")
    with pytest.raises(kind, match=said) as caught:
        run(searcher)
    assert is_pressed or hook == "suggest" or caught.value.__cause__ is error


def test_a_failure_is_raised_after_the_commit_and_after_everybody_was_told():
    with pytest.raises(MetricError) as error:
        run(given_configs([{"x": 1}] * 3), metric="acc", required=("acc",), num_trials=3)
    record = error.value.record
    assert any(isinstance(event, Exited) for event in record.commits[-1][0])
    assert [told.hook for told in record.told if told.hook is Hook.COMPLETE] == [Hook.COMPLETE] * 3


def test_a_searcher_that_never_answers_ends_the_sweep_after_a_minute_of_virtual_time():
    with pytest.raises(SweepStalled, match="not now"):
        run(given_configs([NOT_NOW] * 1000), time_budget_s=1e6)


def test_a_stop_function_judges_each_new_result_once_and_its_verdict_is_in_the_record():
    heard = []

    def judge(trial_id, result):
        heard.append((trial_id[-1], result["m"], result["training_iteration"]))
        return Verdict.STOP if result["m"] >= 2 else Verdict.NONE

    sweep, record = run(given_configs([{"x": 1}, {"x": 2}]), judge=judge)
    assert heard == [("0", 1, 1), ("1", 2, 1), ("0", 2, 2)]
    verdicts = [e.verdict for batch, _, _, _ in record.commits for e in batch if isinstance(e, Reported)]
    assert verdicts.count(Verdict.STOP) == 2
    assert {trial.reason for trial in sweep.trials.values()} == {"by the stop rule"}


def test_discards_reach_the_store_and_steps_name_what_changed():
    _, record = run(given_configs([{"x": 1}]), num_trials=1, num_to_keep=1)
    assert [ref.path for ref in record.discarded] == [
        "00000_00000/checkpoint_000001.1",
        "00000_00000/checkpoint_000002.1",
    ]
    commanded = [c for _, commands, _, _ in record.commits for some in commands for c in some if isinstance(c, Discard)]
    assert [command.checkpoint for command in commanded] == record.discarded
    assert len(record.steps) == len(record.commits)
    assert record.steps[-1] == ["00000_00000"]


def test_what_is_posted_to_the_engine_reaches_the_sweep():
    engine = Simulator(three, NODES)
    engine.post(Asked(Ask.DRAIN))
    sweep, _ = run(given_configs([{"x": i} for i in range(9)]), engine=engine, num_trials=9, ask_ahead=9)
    assert sweep.ending is Ask.DRAIN
    statuses = [trial.status for trial in sweep.trials.values()]
    assert (statuses.count(Status.TERMINATED), statuses.count(Status.PENDING)) == (2, 7)


def test_a_resized_trial_goes_on_where_it_was():
    class Grow(Scheduler):
        def on_result(self, trial, result, trials):
            return [ResizeTrial(trial.id, Resources((Bundle(cpu=2),)))] if result["training_iteration"] == 1 else ()

    sweep, record = run(given_configs([{"x": 1}]), num_trials=1, scheduler=Grow())
    trial = sweep.trials["00000_00000"]
    assert (trial.status, trial.attempt, trial.count) == (Status.TERMINATED, 2, 3)
    assert trial.resources == Resources((Bundle(cpu=2),))
    reported = [e.metrics["m"] for batch, _, _, _ in record.commits for e in batch if isinstance(e, Reported)]
    assert reported == [1, 2, 3]


def test_a_trial_that_is_lost_runs_again_and_repeats_nothing_that_was_told():
    lost = []

    class Lossy(Simulator):
        def next_events(self, deadline):
            events = list(super().next_events(deadline))
            for event in list(events):
                if isinstance(event, Reported) and event.seq == 3 and not lost:
                    lost.append(event)
                    events.remove(event)
                    self._end(self._running[event.trial_id, event.attempt], Exit(ExitKind.LOST))
            return events or super().next_events(deadline)

    def without_checkpoints(config, done):
        for step in range(1, 5):
            yield Point(1.0, {"m": float(step)})

    searcher = given_configs([{"x": 1}])
    _, record = run(searcher, engine=Lossy(without_checkpoints, NODES), num_trials=1)
    assert [entry[2] for entry in searcher.heard if entry[0] == "result"] == [1.0, 2.0, 3.0, 4.0]
    rows = [result["m"] for _, _, changes, _ in record.commits for result in changes.results.values()]
    assert rows == [1.0, 2.0, 1.0, 2.0, 3.0, 4.0]


def test_the_searcher_hears_of_an_end_once_and_again_when_a_person_had_the_trial_retried():
    class Retrying(Simulator):
        asked = False

        def next_events(self, deadline):
            events = list(super().next_events(deadline))
            if not self.asked and any(isinstance(event, Exited) for event in events):
                self.asked = True
                self.post(Asked(Ask.RETRY, "00000_00000"))
            return events

    def curve(config, done):
        for step in range(1, config["x"] + 1):
            yield Point(1.0, {"m": step})

    searcher = given_configs([{"x": 1}, {"x": 9}])
    sweep, _ = run(searcher, engine=Retrying(curve, NODES))
    assert sweep.trials["00000_00000"].attempt == 2
    assert [entry[1] for entry in searcher.heard if entry[0] == "complete"] == ["00000", "00000", "00001"]
