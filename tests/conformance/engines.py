"""The contract of engines as tests; a subclass of `EngineContract` says how to make an engine and how to drive it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from sweep.core.messages import (
    Ask,
    Asked,
    Continue,
    Event,
    Exited,
    ExitKind,
    Kill,
    Released,
    Reported,
    Save,
    Start,
    Started,
    Stop,
    Tick,
)
from sweep.core.resources import Bundle, Node, Placement, Resources
from sweep.core.resources import BundlePlacement as At
from sweep.core.trial import Trial, evolve
from sweep.engines.base import Engine, EngineContext, EngineFactory
from sweep.worker.trainable import prepare

T = TypeVar("T")

NODE = Node(id="local", cpus=8.0)
CPU = Resources((Bundle(cpu=1.0),))
TIME_LIMIT_S = 60.0  # only for a broken engine: nothing here waits for time


@dataclass(frozen=True)
class Behaviour:
    """What the trials of a test do: report `loss` = 1, 2 ... so many times, then return or raise."""

    num_reports: int = 1
    does_raise: bool = False

    def as_function(self) -> Callable[[dict[str, Any]], None]:
        """Return it as a trainable function, without references to the test's module."""
        num_reports, does_raise = self.num_reports, self.does_raise

        def behave(config: dict[str, Any]) -> None:
            from sweep.worker.session import report

            for step in range(1, num_reports + 1):
                report({"loss": float(step)})
            if does_raise:
                raise ValueError("as it was told to")

        return behave


def trial(number: int = 0, attempt: int = 1, **changes: Any) -> Trial:
    """Return a trial that was granted one CPU."""
    base = Trial(
        id=f"abcde_{number:05d}",
        config={"x": number},
        resources=CPU,
        attempt=attempt,
        placement=Placement((At("local"),)),
    )
    return evolve(base, **changes)


def context(directory: Any, trainable: Any, **fields: Any) -> EngineContext:
    """Return what a run would give to its engine, on one node of eight CPUs."""
    return EngineContext(directory=directory, trainable=prepare(trainable), **{"nodes": [NODE], **fields})


def collect(
    engine: Engine,
    until: Callable[[list[Event]], bool],
    *,
    answer: Callable[[Reported], Any] | None = lambda r: Continue(r.trial_id, r.attempt, r.seq),
) -> list[Event]:
    """Take events until `until` says that they are enough; reports are answered by `answer`."""
    seen: list[Event] = []
    deadline = engine.now() + TIME_LIMIT_S
    while not until(seen):
        for event in engine.next_events(deadline):
            assert not isinstance(event, Tick) or engine.now() < deadline, f"nothing more came after {seen}"
            seen.append(event)
            if isinstance(event, Reported) and answer is not None:
                command = answer(event)
                if command is not None:
                    engine.execute(command)
    return seen


def has_released(number: int) -> Callable[[list[Event]], bool]:
    """Return a test for: so many attempts are over."""
    return lambda seen: sum(isinstance(event, Released) for event in seen) >= number


def has_reported(number: int) -> Callable[[list[Event]], bool]:
    """Return a test for: so many reports have come."""
    return lambda seen: sum(isinstance(event, Reported) for event in seen) >= number


def play_out(engine: Engine, number: int = 0, **how: Any) -> list[Event]:
    """Start a trial and return what is told until it is over; `how` goes to `collect`."""
    engine.execute(Start(trial(number)))
    return collect(engine, has_released(1), **how)


def stop_at(report: Reported) -> Stop:
    """Answer a report with a stop."""
    return Stop(report.trial_id, report.attempt, report.seq)


def shapes(events: list[Event]) -> list[Any]:
    """Return events as short tuples, without those that only inform."""
    short: list[Any] = []
    for event in events:
        match event:
            case Started(trial_id, attempt):
                short.append(("started", trial_id, attempt))
            case Reported(trial_id, attempt, seq):
                short.append(("reported", trial_id, attempt, seq))
            case Exited(trial_id, attempt, exit):
                short.append(("exited", trial_id, attempt, exit.kind))
            case Released(trial_id, attempt):
                short.append(("released", trial_id, attempt))
    return short


class EngineContract:
    """Subclass it as `TestX(EngineContract)` and define `factory`.

    Attributes:
        is_immediate_kill: a `Kill` ends a trial that is computing or waiting, not only at its next report.
        has_virtual_time: the engine's clock does not run by itself.
        inventory: what it makes of one node of eight CPUs.
    """

    has_virtual_time = False
    inventory = (NODE,)

    def factory(self, behaviour: Behaviour) -> EngineFactory:
        """Return what makes the engine from the context of a run whose trials behave so."""
        raise NotImplementedError

    def make(self, directory: Any, behaviour: Behaviour, **fields: Any) -> Engine:
        """Return an engine of a run whose trials behave so; `fields` are of its context."""
        return self.factory(behaviour)(context(directory, behaviour.as_function(), **fields))

    @pytest.fixture
    def run(self, tmp_path):
        """Return `run(behaviour, script)`: make an engine, drive the script with it, close it."""

        def runner(behaviour, script, **fields):
            engine = self.make(tmp_path, behaviour, **fields)
            try:
                return engine.run_loop(lambda: script(engine))
            finally:
                engine.close()

        return runner

    def test_a_trial_that_returns_starts_reports_exits_and_is_released_in_this_order(self, run):
        events = run(Behaviour(num_reports=3), play_out)
        assert shapes(events) == [
            ("started", "abcde_00000", 1),
            ("reported", "abcde_00000", 1, 1),
            ("reported", "abcde_00000", 1, 2),
            ("reported", "abcde_00000", 1, 3),
            ("exited", "abcde_00000", 1, ExitKind.FINISHED),
            ("released", "abcde_00000", 1),
        ]
        assert [event.metrics["loss"] for event in events if isinstance(event, Reported)] == [1.0, 2.0, 3.0]

    def test_reports_carry_their_time_and_when_they_were_made(self, run):
        (report,) = [event for event in run(Behaviour(), play_out) if isinstance(event, Reported)]
        assert isinstance(report.metrics["time_this_iter_s"], float)
        assert isinstance(report.metrics["timestamp"], int)

    def test_a_trial_that_raises_gives_a_failed_exit_and_no_exception(self, run):
        events = run(Behaviour(num_reports=1, does_raise=True), play_out)
        (exited,) = [event for event in events if isinstance(event, Exited)]
        assert exited.exit.kind is ExitKind.FAILED
        assert "as it was told to" in exited.exit.error

    def test_a_report_is_not_followed_by_another_before_it_is_answered(self, run):
        def script(engine):
            engine.execute(Start(trial()))
            first = collect(engine, has_reported(1), answer=None)
            more = engine.next_events(engine.now() + 0.05)
            engine.execute(Stop("abcde_00000", 1, 1))
            collect(engine, has_released(1))
            return first, more

        first, more = run(Behaviour(num_reports=5), script)
        assert shapes(first)[-1] == ("reported", "abcde_00000", 1, 1)
        assert list(more) == [Tick()]

    def test_stop_as_the_answer_to_a_report_ends_the_attempt_as_stopped(self, run):
        events = run(Behaviour(num_reports=5), lambda engine: play_out(engine, answer=stop_at))
        assert shapes(events)[1:] == [
            ("reported", "abcde_00000", 1, 1),
            ("exited", "abcde_00000", 1, ExitKind.STOPPED),
            ("released", "abcde_00000", 1),
        ]

    def test_stop_before_started_gives_one_exit_and_one_release(self, run):
        def script(engine):
            engine.execute(Start(trial()))
            engine.execute(Stop("abcde_00000", 1))
            return collect(engine, has_released(1), answer=stop_at)

        seen = [shape for shape in shapes(run(Behaviour(num_reports=50), script)) if shape[0] in ("exited", "released")]
        assert seen == [("exited", "abcde_00000", 1, ExitKind.STOPPED), ("released", "abcde_00000", 1)]

    def test_kill_before_started_gives_one_exit_and_one_release(self, run):
        def script(engine):
            engine.execute(Start(trial()))
            engine.execute(Kill("abcde_00000", 1, "because"))
            return collect(engine, has_released(1), answer=None)

        events = run(Behaviour(num_reports=50), script)
        seen = [shape for shape in shapes(events) if shape[0] in ("exited", "released")]
        assert seen == [("exited", "abcde_00000", 1, ExitKind.KILLED), ("released", "abcde_00000", 1)]
        (exited,) = [event for event in events if isinstance(event, Exited)]
        assert exited.exit.error == "because"

    def test_kill_ends_a_trial_whose_report_waits_for_an_answer(self, run):
        def script(engine):
            engine.execute(Start(trial()))
            collect(engine, has_reported(1), answer=None)
            engine.execute(Kill("abcde_00000", 1))
            engine.execute(Kill("abcde_00000", 1))
            return collect(engine, has_released(1), answer=None)

        assert shapes(run(Behaviour(num_reports=5), script)) == [
            ("exited", "abcde_00000", 1, ExitKind.KILLED),
            ("released", "abcde_00000", 1),
        ]

    def test_commands_to_attempts_that_are_gone_or_never_were_are_ignored(self, run):
        def script(engine):
            engine.execute(Stop("abcde_00007", 1))
            engine.execute(Start(trial()))
            collect(engine, has_released(1))
            for command in (
                Continue("abcde_00000", 1, 1),
                Save("abcde_00000", 1, 1),
                Stop("abcde_00000", 1, 1),
                Kill("abcde_00000", 1),
                Kill("abcde_00000", 2),
            ):
                engine.execute(command)
            return list(engine.next_events(engine.now() + 0.02))

        assert run(Behaviour(), script) == [Tick()]

    def test_a_stale_answer_does_not_release_a_later_report(self, run):
        def script(engine):
            engine.execute(Start(trial()))
            collect(engine, has_reported(1), answer=None)
            engine.execute(Continue("abcde_00000", 1, 1))
            engine.execute(Continue("abcde_00000", 1, 1))
            collect(engine, has_reported(1), answer=None)
            more = list(engine.next_events(engine.now() + 0.05))
            engine.execute(Stop("abcde_00000", 1, 2))
            collect(engine, has_released(1), answer=None)
            return more

        assert run(Behaviour(num_reports=5), script) == [Tick()]

    def test_several_trials_each_get_one_exit_and_one_release(self, run):
        def script(engine):
            for number in range(6):
                engine.execute(Start(trial(number)))
            return collect(engine, has_released(6))

        events = shapes(run(Behaviour(num_reports=2), script))
        for number in range(6):
            mine = [shape[0] for shape in events if shape[1] == f"abcde_{number:05d}"]
            assert mine == ["started", "reported", "reported", "exited", "released"]

    def test_a_second_attempt_of_a_trial_counts_its_reports_from_one_again(self, run):
        def script(engine):
            engine.execute(Start(trial(attempt=1)))
            collect(engine, has_released(1))
            engine.execute(Start(trial(attempt=2)))
            return collect(engine, has_released(1))

        assert shapes(run(Behaviour(), script))[:2] == [
            ("started", "abcde_00000", 2),
            ("reported", "abcde_00000", 2, 1),
        ]

    def test_nothing_but_time_gives_a_tick_and_the_clock_goes_on_from_where_it_was(self, run):
        def script(engine):
            before = engine.now()
            events = list(engine.next_events(before + 0.01))
            return before, events, engine.now()

        before, events, after = run(Behaviour(), script, start_at=1000.0)
        assert events == [Tick()]
        assert before >= 1000.0
        assert after >= before + 0.01

    def test_a_posted_event_wakes_the_waiting_engine(self, run):
        asked = Asked(Ask.DRAIN)

        def script(engine):
            poster = threading.Timer(0.05, lambda: engine.post(asked))
            poster.start()
            try:
                return list(engine.next_events(engine.now() + TIME_LIMIT_S))
            finally:
                poster.join()

        if self.has_virtual_time:
            pytest.skip("an engine with virtual time does not wait")
        assert run(Behaviour(), script) == [asked]

    def test_an_event_posted_before_anybody_waits_is_not_lost(self, run):
        asked = Asked(Ask.DRAIN)

        def script(engine):
            engine.post(asked)
            return list(engine.next_events(engine.now() + TIME_LIMIT_S))

        assert run(Behaviour(), script) == [asked]

    def test_close_may_be_called_twice_and_with_trials_that_run(self, run):
        def script(engine):
            engine.execute(Start(trial(0)))
            engine.execute(Start(trial(1)))
            collect(engine, has_reported(1), answer=None)
            engine.close()
            engine.close()
            engine.execute(Start(trial(2)))
            return True

        assert run(Behaviour(num_reports=5), script)

    def test_the_inventory_is_what_the_engine_was_given(self, run):
        assert tuple(run(Behaviour(), lambda engine: engine.nodes())) == self.inventory

    def test_two_engines_in_one_process_do_not_hear_of_each_other(self, tmp_path):
        first = self.make(tmp_path / "first", Behaviour(num_reports=1))
        second = self.make(tmp_path / "second", Behaviour(num_reports=2))

        try:
            one = shapes(first.run_loop(lambda: play_out(first, 0)))
            two = shapes(second.run_loop(lambda: play_out(second, 1)))
        finally:
            first.close()
            second.close()
        assert {shape[1] for shape in one} == {"abcde_00000"}
        assert {shape[1] for shape in two} == {"abcde_00001"}
        assert len(two) == len(one) + 1
