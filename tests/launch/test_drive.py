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

    def __init__(self, *args, log, **options):
        super().__init__(*args, **options)
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


def run(searcher, curve=three, *, scheduler=None, request_of=None, judge=None, log=None, **plan):
    log = [] if log is None else log
    sweep = new_sweep(scheduler or FIFOScheduler(), **{"num_trials": 2, "ask_ahead": 4, **plan})
    engine = Watched(curve, NODES, log=log)
    record = Logged(log)
    try:
        drive(
            sweep, engine, searcher, record, record, request_of=request_of or (lambda config: Resources()), judge=judge
        )
    except Exception as error:
        error.sweep, error.record = sweep, record
        raise
    return sweep, record


def test_every_batch_is_committed_before_anything_is_done_about_it():
    log = []
    run(given_configs([{"x": 1}]), num_trials=1, log=log)
    assert log == [
        "commit PlanChanged NodesChanged",
        "commit Suggested",
        "Start",
        "commit Started",
        "commit Reported",
        "Continue",
        "commit Reported",
        "Continue",
        "commit Reported",
        "Continue",
        "commit Exited Released",
    ]


def test_nothing_is_done_when_the_commit_fails():
    class Full(Nobody):
        def commit(self, events, commands, changes, now):
            if any(isinstance(event, Suggested) for event in events):
                raise OSError("disk full")

    log = []
    record = Full()
    with pytest.raises(OSError, match="disk full"):
        drive(
            new_sweep(FIFOScheduler(), num_trials=1),
            Watched(three, NODES, log=log),
            given_configs([{"x": 1}]),
            record,
            record,
            request_of=lambda config: Resources(),
        )
    assert log == []


def test_the_commits_hold_every_event_with_the_commands_that_it_caused():
    sweep, record = run(given_configs([{"x": 1}, {"x": 2}]))
    events = [event for batch, _, _, _ in record.commits for event in batch]
    assert isinstance(events[0], PlanChanged)
    assert events[1] == NodesChanged(NODES)
    assert len(events) == sweep.seq
    for batch, commands, _, _ in record.commits:
        assert len(batch) == len(commands)
    starts = [
        c.trial for _, commands, _, _ in record.commits for some in commands for c in some if isinstance(c, Start)
    ]
    assert [trial.attempt for trial in starts] == [1, 1]
    times = [now for _, _, _, now in record.commits]
    assert times == sorted(times)


def test_the_searcher_hears_everything_before_it_is_asked_again():
    searcher = given_configs([{"x": 1}, {"x": 2}])
    run(searcher, ask_ahead=1, request_of=lambda config: Resources((Bundle(cpu=2),)))
    assert searcher.heard == [
        ("asked", "00000"),
        ("result", "00000", 1),
        ("result", "00000", 2),
        ("result", "00000", 3),
        ("complete", "00000", 3, False),
        ("asked", "00001"),
        ("result", "00001", 2),
        ("result", "00001", 4),
        ("result", "00001", 6),
        ("complete", "00001", 6, False),
    ]


def test_a_trial_in_error_is_told_without_a_result():
    def broken(config, done):
        yield Point(1.0, {"m": 1.0})
        raise ValueError("no")

    searcher = given_configs([{"x": 1}])
    sweep, _ = run(searcher, broken, num_trials=1)
    assert searcher.heard[-1] == ("complete", "00000", None, True)
    assert sweep.trials["00000_00000"].reason == "ValueError: no"


def test_the_resources_are_computed_from_the_config_and_ride_in_the_event():
    _, record = run(given_configs([{"x": 1}, {"x": 2}]), request_of=lambda c: Resources((Bundle(cpu=float(c["x"])),)))
    suggested = [event for batch, _, _, _ in record.commits for event in batch if isinstance(event, Suggested)]
    assert [event.resources.bundles[0].cpu for event in suggested] == [1.0, 2.0]


@pytest.mark.parametrize("bad", [ValueError("a bad day"), "no dict", 7])
def test_a_searcher_that_answers_nonsense_three_times_is_named(bad):
    with pytest.raises(SearchError, match="Given") as error:
        run(given_configs([bad, bad, bad]))
    assert "3 times in a row" in str(error.value)


def test_a_bad_answer_in_between_is_forgiven():
    sweep, _ = run(given_configs([ValueError("no"), {"x": 1}, {"x": 2}]))
    assert [trial.status for trial in sweep.trials.values()] == [Status.TERMINATED] * 2


def test_a_resources_function_that_raises_counts_as_a_bad_answer():
    def request_of(config):
        raise KeyError("gpus")

    with pytest.raises(SearchError, match="KeyError"):
        run(given_configs([{"x": 1}] * 9), request_of=request_of)


def test_a_searcher_that_fails_when_told_is_named_and_its_error_is_the_cause():
    searcher = given_configs([{"x": 1}])
    searcher.on_trial_result = lambda trial_id, result: 1 / 0
    with pytest.raises(SearchError, match="Given failed when it was told of trial 00000_00000") as error:
        run(searcher)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
@pytest.mark.parametrize("hook", ["suggest", "on_trial_complete"])
def test_whatever_a_searcher_raises_is_its_failure(hook, error):
    searcher = given_configs([{"x": 1}])

    def raises(*arguments):
        raise error

    setattr(searcher, hook, raises)
    with pytest.raises(SearchError, match=rf"Given.*{type(error).__name__}") as caught:
        run(searcher)
    assert hook == "suggest" or caught.value.__cause__ is error


@pytest.mark.parametrize("hook", ["suggest", "on_trial_complete"])
def test_ctrl_c_is_no_failure_of_the_searcher_that_it_interrupts(hook):
    searcher = given_configs([{"x": 1}])

    def is_pressed(*arguments):
        raise KeyboardInterrupt

    setattr(searcher, hook, is_pressed)
    with pytest.raises(KeyboardInterrupt):
        run(searcher)


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
    sweep = new_sweep(FIFOScheduler(), num_trials=9)
    engine = Simulator(three, NODES)
    engine.post(Asked(Ask.DRAIN))
    record = Nobody()
    drive(sweep, engine, given_configs([{"x": i} for i in range(9)]), record, record, request_of=lambda c: Resources())
    assert sweep.ending is Ask.DRAIN
    statuses = [trial.status for trial in sweep.trials.values()]
    assert statuses.count(Status.TERMINATED) == 2
    assert statuses.count(Status.PENDING) == 7


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
    sweep = new_sweep(FIFOScheduler(), num_trials=1)
    record = Nobody()
    drive(sweep, Lossy(without_checkpoints, NODES), searcher, record, record, request_of=lambda c: Resources())
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
    record = Nobody()
    sweep = new_sweep(FIFOScheduler(), num_trials=2)
    drive(sweep, Retrying(curve, NODES), searcher, record, record, request_of=lambda config: Resources())
    assert sweep.trials["00000_00000"].attempt == 2
    assert [entry[:2] for entry in searcher.heard if entry[0] == "complete"] == [
        ("complete", "00000"),
        ("complete", "00000"),
        ("complete", "00001"),
    ]
