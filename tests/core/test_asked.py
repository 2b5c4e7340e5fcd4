"""What persons ask of a sweep that runs, as the state machine takes it."""

from __future__ import annotations

import json

from core_world import World, cpus, opened, running, tid

from searchers.base import NOT_NOW
from sweep.core.messages import Ask, Asked, PauseTrial, Suggested, Tick
from sweep.core.trial import Status, Trial, shown_state


def said(world: World, what: Ask, **detail: object) -> list[str]:
    return world.tell(Asked(what, None, json.dumps({"id": "1", **detail})))


def given(world: World, number: int) -> list[str]:
    """Suggest a config that a person gave."""
    return world.tell(Suggested(tid(number), {"x": 1}, cpus(1), {"enqueued": True}))


def test_a_trial_that_is_to_stop_ends_at_its_next_report_and_the_sweep_goes_on():
    world = running(2, num_trials=3, num_cpus=2, ask_ahead=1)
    assert world.ask(Ask.DRAIN, 0) == ["stop 0.1"]
    assert world.sweep.ending is None
    assert "tell complete 0" in world.ended(0)
    assert world[0].reason == "stopped by a person"
    assert shown_state(world[0]) == "stopped early"
    assert world.suggest(2) == ["start 2.1"]


def test_a_paused_sweep_starts_nothing_until_it_is_resumed():
    world = running(2, num_trials=4, num_cpus=2, ask_ahead=4)
    world.suggest(2)
    assert world.ask(Ask.PAUSE) == []
    assert world.report(0, "c") == ["tell result 0", "tell save 0", "stop 0.1#1"]
    world.ended(0)
    assert world.report(1) == ["tell result 1", "continue 1.1#1"]  # it has not saved
    assert world[0].status is Status.PAUSED
    assert world[2].status is Status.PENDING
    assert world[2].reason == "the sweep is paused by a person"
    world.ended(1)
    assert not world.sweep.done
    assert world.failure is None  # and it is no stall
    assert sorted(world.ask(Ask.RESUME)) == ["start 0.2", "start 2.1"]


def test_a_sweep_of_which_everything_is_paused_is_not_done():
    world = running(1)
    world.ask(Ask.PAUSE)
    world.report(0, "c")
    world.ended(0)
    assert not world.sweep.done
    world.ask(Ask.RESUME)
    assert world[0].status is Status.STARTING


def test_a_trial_that_alone_was_paused_lets_the_sweep_end():
    world = running(1)
    world.ask(Ask.PAUSE, 0)
    world.report(0, "c")
    world.ended(0)
    assert world.sweep.done


def test_a_searcher_that_waits_for_what_a_person_has_paused_is_no_stall():
    world = running(1, num_trials=2, ask_ahead=1)
    world.ask(Ask.PAUSE, 0)
    world.report(0, "c")
    world.ended(0)
    for _ in range(100):
        world.now += 2.0
        world.tell(Tick())
        world.answer(1, NOT_NOW)
    assert world.failure is None
    assert not world.sweep.done
    world.ask(Ask.RESUME, 0)
    assert world[0].status is Status.STARTING


def test_a_trial_that_waits_again_and_is_resumed_is_not_paused_when_it_runs():
    first = Trial(tid(0), {"x": 0}, cpus(1), ticket=1)
    second = Trial(tid(1), {"x": 1}, cpus(1), ticket=2, pending=PauseTrial(tid(1), ""), is_by_person=True)
    world = opened(num_trials=2, num_cpus=1, trials=[first, second])
    assert world[1].status is Status.PENDING
    world.ask(Ask.RESUME, 1)
    assert world[1].pending is None


def test_more_trials_are_made_when_a_person_wants_more():
    world = running(1)
    world.ended(0)
    assert world.sweep.done
    assert said(world, Ask.EDIT, plan={"num_trials": 2}) == ["suggest 1"]
    assert world.suggest(1) == ["start 1.1"]


def test_no_more_run_than_a_person_allows_and_the_one_that_waits_says_so():
    world = running(2, num_trials=4, ask_ahead=4)
    said(world, Ask.EDIT, plan={"max_running": 1})
    assert world.suggest(2) == []
    assert world[2].reason == "no more than 1 may run at a time"
    world.ended(0)
    assert world[2].status is Status.PENDING
    assert "start 2.1" in world.ended(1)
    assert world.suggest(3) == []
    assert said(world, Ask.EDIT, plan={"max_running": 2}) == ["start 3.1"]


def test_what_a_person_gives_is_asked_for_at_once_and_starts_before_all_that_wait():
    world = running(1, num_trials=6, num_cpus=1, ask_ahead=5)
    for number in (1, 2, 3, 4):
        world.suggest(number)
    assert said(world, Ask.ENQUEUE, config="{}") == ["suggest 5"]
    given(world, 5)
    assert "start 5.1" in world.ended(0)
    assert world.sweep.plan.num_trials == 7  # one more than was asked for


def test_two_that_a_person_gives_start_in_their_order():
    world = running(1, num_trials=3, num_cpus=1, ask_ahead=3)
    for number in (1, 2):
        given(world, number)
    assert "start 1.1" in world.ended(0)
    assert "start 2.1" in world.ended(1)


def test_what_a_person_gave_is_first_after_a_restart_too():
    waiting = [Trial(tid(0), {"x": 0}, cpus(1), ticket=3), Trial(tid(1), {"x": 1}, cpus(1), ticket=-5)]
    world = opened(num_trials=2, num_cpus=1, trials=waiting)
    assert [line for line in world.tell() if line] == []
    assert world[1].status is Status.STARTING
    assert world[0].status is Status.PENDING


def test_a_sweep_that_is_ending_takes_the_config_and_starts_nothing():
    world = running(1, num_trials=3)
    world.ask(Ask.DRAIN)
    assert said(world, Ask.ENQUEUE, config="{}") == []
