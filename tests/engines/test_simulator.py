"""The simulator: virtual time, the engine's contract, and the same sweep as in a real run."""

from __future__ import annotations

import pytest
from sweep_run import Nobody, given_configs, new_sweep

from sweep.core.messages import (
    Ask,
    Asked,
    Continue,
    Exit,
    Exited,
    ExitKind,
    Kill,
    Released,
    Reported,
    Save,
    Saved,
    Start,
    Started,
    Stop,
    Tick,
)
from sweep.core.resources import Node, Resources
from sweep.core.trial import CheckpointRef, Status, Trial
from sweep.engines.simulator import Point, Simulator
from sweep.launch.drive import drive
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.fifo import FIFOScheduler

NODES = (Node("n", 2),)
A = "00000_00000"


def steps(config, done):
    for step in range(done + 1, config.get("n", 3) + 1):
        yield Point(1.0, {"m": float(step)}, has_checkpoint=config.get("saves", False))


def trial(number: int = 0, attempt: int = 1, **changes) -> Trial:
    values = {"config": {"n": 3}, "resources": Resources(), "status": Status.STARTING, "attempt": attempt}
    return Trial(f"00000_{number:05d}", **(values | changes))


def until(engine: Simulator, kind: type) -> list:
    """Every event up to the first of a kind."""
    seen: list = []
    while not any(isinstance(event, kind) for event in seen):
        seen += engine.next_events(None)
    return seen


def reported() -> Simulator:
    """Return an engine whose only trial waits for the answer to its first report."""
    engine = Simulator(steps, NODES)
    engine.execute(Start(trial()))
    until(engine, Reported)
    return engine


def test_an_attempt_starts_reports_when_answered_exits_and_is_released():
    engine = Simulator(steps, NODES, start_s=2.0, stop_s=0.5)
    engine.execute(Start(trial()))
    assert engine.next_events(None) == [Started(A, 1)]
    assert engine.now() == 2.0
    for seq in (1, 2, 3):
        (event,) = engine.next_events(None)
        metrics = {"time_this_iter_s": 1.0, "timestamp": 2 + seq, "m": float(seq)}
        assert event == Reported(A, 1, seq, metrics)
        assert engine.now() == 2.0 + seq
        engine.execute(Continue(A, 1, seq))
    assert engine.next_events(None) == [Exited(A, 1, Exit(ExitKind.FINISHED)), Released(A, 1)]
    assert engine.now() == 5.5


def test_nothing_is_reported_before_the_answer():
    engine = reported()
    assert engine.next_events(100.0) == [Tick()]
    assert engine.now() == 100.0


def test_an_attempt_continues_from_its_checkpoint():
    engine = Simulator(steps, NODES)
    engine.execute(Start(trial(attempt=2, checkpoint=CheckpointRef("c2", 2), config={"n": 3, "saves": True})))
    events = until(engine, Reported)
    assert events[-1].metrics["m"] == 3.0
    assert events[-1].checkpoint == f"{A}/checkpoint_000003.2"


def test_a_stop_that_answers_a_report_ends_the_attempt():
    engine = reported()
    engine.execute(Stop(A, 1, 1))
    assert until(engine, Released) == [Exited(A, 1, Exit(ExitKind.STOPPED)), Released(A, 1)]


def test_a_stop_that_asks_for_a_save_delivers_it_before_the_exit():
    engine = reported()
    engine.execute(Stop(A, 1, 1, save=True))
    kinds = [type(event) for event in until(engine, Released)]
    assert kinds == [Saved, Exited, Released]


def test_a_save_is_an_answer_and_the_attempt_goes_on():
    engine = reported()
    engine.execute(Save(A, 1, 1))
    assert until(engine, Reported)[0] == Saved(A, 1, 1, f"{A}/checkpoint_000001.1")


def test_a_stop_before_the_start_lets_the_attempt_come_to_its_next_report():
    engine = Simulator(steps, NODES, start_s=1.0)
    engine.execute(Start(trial()))
    engine.execute(Stop(A, 1))
    assert [type(event) for event in until(engine, Reported)] == [Started, Reported]
    engine.execute(Stop(A, 1, 1))
    assert [type(event) for event in until(engine, Released)] == [Exited, Released]


@pytest.mark.parametrize("when", ["before it started", "while it computes", "while it waits for its answer"])
def test_a_kill_gives_one_exit_and_one_release_and_no_report_after_them(when):
    engine = Simulator(steps, NODES, start_s=1.0)
    engine.execute(Start(trial()))
    if when != "before it started":
        until(engine, Started)
    if when == "while it waits for its answer":
        until(engine, Reported)
    engine.execute(Kill(A, 1, "enough"))
    events = []
    while (found := list(engine.next_events(50.0))) != [Tick()]:
        events += found
    assert events == [Exited(A, 1, Exit(ExitKind.KILLED, "enough")), Released(A, 1)]


def test_commands_to_attempts_that_are_gone_are_ignored():
    engine = Simulator(steps, NODES)
    engine.execute(Start(trial()))
    engine.execute(Kill(A, 1))
    until(engine, Released)
    for command in (Continue(A, 1, 1), Save(A, 1, 1), Stop(A, 1, 1), Kill(A, 1), Kill(A, 7), Stop("nobody_00001", 1)):
        engine.execute(command)
    assert engine.next_events(9.0) == [Tick()]


def test_a_curve_that_raises_fails_its_own_attempt():
    def broken(config, done):
        yield Point(1.0, {"m": 1.0})
        raise ValueError("lr must be positive")

    engine = Simulator(broken, NODES)
    engine.execute(Start(trial()))
    until(engine, Reported)
    engine.execute(Continue(A, 1, 1))
    exited, released = until(engine, Released)
    assert exited.exit == Exit(ExitKind.FAILED, "ValueError: lr must be positive", class_name="ValueError")
    assert released == Released(A, 1)


def test_a_curve_that_raises_before_its_first_point_fails_its_own_attempt_too():
    def no_generator(config, done):
        return iter([Point(1.0, {"m": config["missing"]})])

    engine = Simulator(no_generator, NODES)
    engine.execute(Start(trial()))  # rule 1 of the contract: never raises for a trial's fault
    exited = next(event for event in until(engine, Released) if isinstance(event, Exited))
    assert exited.exit.kind is ExitKind.FAILED
    assert "KeyError" in exited.exit.error


def test_a_curve_without_points_finishes_at_once():
    engine = Simulator(lambda config, done: iter(()), NODES)
    engine.execute(Start(trial()))
    assert [type(event) for event in until(engine, Released)] == [Started, Exited, Released]


def test_events_of_one_moment_come_together_and_in_order():
    engine = Simulator(steps, NODES)
    engine.execute(Start(trial(0)))
    engine.execute(Start(trial(1)))
    assert [event.trial_id[-1] for event in engine.next_events(None)] == ["0", "1"]
    first = engine.next_events(None)
    assert [(type(event), event.trial_id[-1]) for event in first] == [(Reported, "0"), (Reported, "1")]


def test_what_is_posted_comes_first_and_takes_no_time():
    engine = Simulator(steps, NODES)
    engine.execute(Start(trial()))
    engine.post(Asked(Ask.DRAIN))
    engine.post(Asked(Ask.CANCEL))
    assert engine.next_events(None) == [Asked(Ask.DRAIN), Asked(Ask.CANCEL)]
    assert engine.now() == 0.0


def test_a_deadline_gives_a_tick_and_time_never_goes_back():
    engine = Simulator(steps, NODES, start_at=10.0)
    assert engine.now() == 10.0
    assert engine.next_events(12.0) == [Tick()]
    assert engine.next_events(5.0) == [Tick()]
    assert engine.now() == 12.0


def test_to_wait_for_nothing_is_an_error_and_not_a_hang():
    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        Simulator(steps, NODES).next_events(None)


def test_closing_ends_the_curves_and_may_be_done_twice():
    closed = []

    def curve(config, done):
        try:
            yield Point(1.0, {"m": 1.0})
        finally:
            closed.append(config)

    engine = Simulator(curve, NODES)
    engine.execute(Start(trial()))
    until(engine, Reported)
    engine.close()
    engine.close()
    assert len(closed) == 1
    assert engine.next_events(99.0) == [Tick()]


def test_a_sweep_of_four_trials_on_two_cpus_takes_twice_the_time_of_one():
    sweep = new_sweep(FIFOScheduler(), num_trials=4)
    engine = Simulator(steps, NODES)
    record = Nobody()
    drive(sweep, engine, given_configs([{"n": 5}] * 4), record, record, request_of=lambda config: Resources())
    assert engine.now() == 10.0
    assert [t.status for t in sweep.trials.values()] == [Status.TERMINATED] * 4


def test_asha_in_virtual_time_spends_less_than_fifo_and_finds_the_same_best():
    def curve(config, done):
        for step in range(done + 1, 28):
            yield Point(1.0, {"m": config["x"] * step})

    def run(scheduler):
        scheduler.set_search_properties("m", "max") if isinstance(scheduler, ASHAScheduler) else None
        sweep = new_sweep(scheduler, num_trials=27)
        engine = Simulator(curve, NODES)
        record = Nobody()
        configs = [{"x": (5 * i) % 27} for i in range(27)]
        drive(sweep, engine, given_configs(configs), record, record, request_of=lambda config: Resources())
        best = max(sweep.trials.values(), key=lambda t: t.best_result["m"])
        return engine.now(), best.config["x"]

    fifo_s, fifo_best = run(FIFOScheduler())
    asha_s, asha_best = run(ASHAScheduler(max_t=27, reduction_factor=3))
    assert fifo_best == asha_best == 26
    assert asha_s < fifo_s / 2
