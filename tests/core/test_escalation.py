"""Requests that grow: a trial whose fit() needs more than it holds goes back once, and the next ask for it at once."""

from __future__ import annotations

import pytest
from core_world import World, cpus, tid

from sweep.core.messages import (
    Ask,
    Exit,
    Exited,
    ExitKind,
    Kill,
    PauseTrial,
    PlanChanged,
    Released,
    ResizeTrial,
    StopTrial,
)
from sweep.core.nesting import escalated_request
from sweep.core.resources import Bundle, Resources
from sweep.core.trial import CheckpointRef, Escalation, Status, Trial, evolve

ONE = Bundle(cpu=1)


def workers(number: int, **more) -> Resources:
    return Resources((Bundle(cpu=1),) * number, **more)


def held(own: Bundle, *others: Bundle, **more) -> Resources:
    return Resources((own, *others), **more)


def needs_more(world: World, number: int, wanted: Resources, error: str = "fit() asks for more") -> list[str]:
    return world.tell(Exited(tid(number), world[number].attempt, Exit(ExitKind.NEEDS_MORE, error, needs=wanted)))


@pytest.mark.parametrize(
    ("trial", "wanted", "is_unasked", "expected"),
    [
        pytest.param((cpus(1), None), workers(2), True, held(Bundle(), ONE, ONE), id="none_asked"),
        pytest.param((cpus(1), None), workers(2), False, held(ONE, ONE, ONE), id="its_own_is_added"),
        pytest.param((held(ONE, ONE), None), workers(3), False, held(ONE, ONE, ONE, ONE), id="its_others_are_used"),
        pytest.param(
            (held(Bundle(), ONE, ONE), Escalation(cpus(1))),
            workers(3),
            True,
            held(Bundle(), *(ONE,) * 3),
            id="again_larger",
        ),
        pytest.param(
            (held(Bundle(), ONE, ONE), Escalation(cpus(1))),
            held(Bundle(gpu=1)),
            True,
            held(Bundle(), Bundle(cpu=1, gpu=1), ONE),
            id="again_another_kind",
        ),
        pytest.param(
            (held(Bundle(), ONE, ONE), Escalation(cpus(1), is_guess=True)),
            workers(1),
            True,
            held(Bundle(), ONE),
            id="a_guess_counts_for_nothing",
        ),
        pytest.param(
            (cpus(1), None),
            workers(2, strategy="STRICT_PACK", distinct_devices=True),
            True,
            held(Bundle(), ONE, ONE, strategy="STRICT_PACK", distinct_devices=True),
            id="how_the_group_is_laid_out",
        ),
        pytest.param(
            (held(ONE, strategy="SPREAD", alone=True), None),
            workers(1),
            False,
            held(ONE, ONE, strategy="SPREAD", alone=True),
            id="how_the_trial_is_laid_out",
        ),
        pytest.param(
            (held(ONE, Bundle(memory=5, custom=(("a", 1.0),))), None),
            held(Bundle(cpu=2, custom=(("a", 0.5), ("b", 2.0)))),
            False,
            held(ONE, Bundle(cpu=2, memory=5, custom=(("a", 1.0), ("b", 2.0)))),
            id="the_larger_of_each_amount",
        ),
    ],
)
def test_a_request_grows_to_what_the_group_needs(trial, wanted, is_unasked, expected):
    resources, grown = trial
    assert escalated_request(Trial(tid(0), {}, resources, escalation=grown), wanted, is_unasked=is_unasked) == expected


def test_a_trial_that_needs_more_waits_in_its_old_place_and_counts_no_failure():
    world = World(num_cpus=2, num_trials=4, ask_ahead=4, is_unasked=True, max_failures=0)
    world.open()
    for number in range(4):
        world.suggest(number)
    world.started(0)
    world.report(0, m=1.0)
    assert needs_more(world, 0, workers(2)) == []  # nobody is told of a failure, and trial 1 holds what it needs
    first = world[0]
    assert (first.status, first.failures, first.losses, first.failure) == (Status.PENDING, 0, 0, "")
    assert first.resources == held(Bundle(), ONE, ONE)
    assert first.escalation == Escalation(cpus(1))
    assert "waits for cpu=2" in first.reason
    for number in (2, 3):  # those that have not begun ask for it at once
        assert world[number].resources == first.resources
        assert world[number].escalation == Escalation(cpus(1), is_guess=True)
    assert world[1].resources == cpus(1)  # it runs: it finds out for itself
    assert world.released(0) == []
    world.started(1)
    world.exited(1, ExitKind.FINISHED)
    assert world.released(1) == ["start 0.2"]


def test_what_was_reported_before_the_fit_is_judged_and_told_once():
    world = World(is_unasked=True)
    world.open()
    world.run(0)
    assert "tell result 0" in world.report(0, m=1.0)
    needs_more(world, 0, workers(2))
    world.released(0)
    world.started(0)
    assert world.report(0, m=1.0) == ["continue 0.2#1"]
    assert world.scheduler.heard.count(("result", 0, 1)) == 1


def test_a_size_that_depends_on_the_config_is_found_for_each_trial():
    world = World(num_cpus=3, num_trials=5, ask_ahead=5, is_unasked=True)
    world.open()
    for number in range(5):
        world.suggest(number)
    for number in range(3):
        world.started(number)
    needs_more(world, 0, workers(2))
    assert world[3].escalation == Escalation(cpus(1), is_guess=True)
    needs_more(world, 1, workers(3))
    assert world[3].resources == cpus(1)
    assert world[3].escalation is None
    assert world[1].resources == held(Bundle(), ONE, ONE, ONE)


def test_a_guess_that_was_wrong_is_corrected_and_never_a_failure():
    world = World(is_unasked=True, num_trials=2, ask_ahead=2)
    world.open()
    world.run(0)
    needs_more(world, 0, workers(2))
    world.suggest(1)
    world.started(1)
    needs_more(world, 1, workers(2))  # what it was guessed to need: then it is no guess any more
    assert world[1].escalation == Escalation(cpus(1))
    assert world[1].failures == 0
    assert world[1].status is not Status.ERROR


def test_who_finds_no_room_in_just_what_it_needs_has_failed():
    world = World(is_unasked=True, max_failures=3)
    world.open()
    world.run(0)
    needs_more(world, 0, workers(2))
    world.released(0)
    world.started(0)
    needs_more(world, 0, workers(2), "fit() finds no room")
    assert (world[0].status, world[0].failure, world[0].reason) == (Status.ERROR, "user", "fit() finds no room")


def test_what_can_never_fit_ends_the_trial_with_the_arithmetic_and_teaches_nobody():
    world = World(num_cpus=2, num_trials=2, ask_ahead=2, is_unasked=True)
    world.open()
    world.run(0)
    world.suggest(1)
    assert needs_more(world, 0, workers(9))[0] == "tell error 0"
    assert world[0].reason.startswith(
        "a trial asks for (nothing) + 9 x (cpu=1) PACK; it needs cpu=9 in all, there are 2"
    )
    assert "Lower num_workers or resources_per_worker" in world[0].reason
    assert world[1].resources == cpus(1)


def test_parts_that_cannot_be_in_one_request_end_the_trial():
    world = World(num_trials=1)
    world.open()
    world.run(0)
    slices = Resources((Bundle(tpu=4),), bundles_per_slice=1)
    trial = evolve(world[0], resources=held(ONE, Bundle(), Bundle(tpu=1), Bundle(tpu=1)))
    world.sweep._put(trial)
    needs_more(world, 0, Resources((Bundle(tpu=4), Bundle(tpu=4)), bundles_per_slice=2))
    assert world[0].status is Status.ERROR
    assert "bundles_per_slice is 2" in world[0].reason
    assert slices.bundles_per_slice == 1


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(StopTrial(tid(0), "enough"), Status.TERMINATED, id="stopped"),
        pytest.param(PauseTrial(tid(0)), Status.STARTING, id="to_be_paused_at_its_next_report"),
        pytest.param(ResizeTrial(tid(0), cpus(3)), Status.STARTING, id="to_be_resized"),
    ],
)
def test_what_was_decided_meanwhile(before, expected):
    world = World(num_trials=1, is_unasked=True)
    world.open()
    world.run(0)
    world.sweep._decide([before], 0.0)
    needs_more(world, 0, workers(2))
    world.released(0)
    assert world[0].status is expected
    if expected is Status.STARTING:
        assert world[0].resources == held(Bundle(), ONE, ONE)


def test_a_scheduler_does_not_resize_what_a_fit_has_sized():
    world = World(num_trials=1, is_unasked=True)
    world.open()
    world.run(0)
    needs_more(world, 0, workers(2))
    world.released(0)
    world.started(0)
    world.scheduler.next = [ResizeTrial(tid(0), cpus(1))]
    world.report(0, m=1.0)
    assert world.scheduler.refused == [(tid(0), "ResizeTrial")]
    world.scheduler.next = [ResizeTrial(tid(0), world[0].resources)]  # only to be saved: that is carried out
    world.report(0, "a/c2", m=2.0)
    assert world.scheduler.refused == [(tid(0), "ResizeTrial")]
    assert world[0].status is Status.STOPPING


def test_it_goes_on_from_its_checkpoint():
    world = World(num_trials=1, is_unasked=True)
    world.open()
    world.run(0)
    world.report(0, f"{tid(0)}/checkpoint_000001", m=1.0)
    assert needs_more(world, 0, workers(2)) == ["start 0.2"]
    assert world[0].started_from == CheckpointRef(f"{tid(0)}/checkpoint_000001", 1, 1, 0.0)
    assert world[0].count == 1


def test_a_sweep_that_goes_on_knows_what_its_trials_came_to_need():
    done = Trial(tid(0), {}, held(Bundle(), ONE, ONE), Status.TERMINATED, attempt=2, escalation=Escalation(cpus(1)))
    guess = Trial(
        tid(1), {}, held(Bundle(), *(ONE,) * 3), Status.TERMINATED, attempt=1, escalation=Escalation(cpus(1), True)
    )
    world = World(num_trials=4, ask_ahead=1, is_unasked=True, trials=[done, guess])
    world.open()
    world.suggest(2)
    assert world[2].resources == held(Bundle(), ONE, ONE)  # a guess has taught nothing
    other = evolve(done, id=tid(3), resources=held(Bundle(), ONE))
    world = World(num_trials=4, ask_ahead=1, is_unasked=True, trials=[done, guess, other])
    world.open()
    world.suggest(2)
    assert world[2].resources == cpus(1)


def test_an_interrupted_one_grows_when_it_goes_on():
    world = World(num_trials=1, is_unasked=True)
    world.open()
    world.run(0)
    world.ask(Ask.INTERRUPT)
    needs_more(world, 0, workers(2))
    assert world[0].status is Status.PENDING
    assert world[0].resources == held(Bundle(), ONE, ONE)
    assert not any(isinstance(command, Kill) for command in world.commands)
    world.tell(Released(tid(0), 1))
    assert world.sweep.done
    again = World(num_trials=1, is_unasked=True, trials=list(world.sweep.trials.values()))
    assert again.tell(PlanChanged(again.plan)) == []
    assert again[0].resources == held(Bundle(), ONE, ONE)


def test_a_retry_finds_out_anew():
    world = World(num_cpus=2, num_trials=2, is_unasked=True)
    world.open()
    world.run(0)
    needs_more(world, 0, workers(9))
    world.released(0)
    world.suggest(1)
    assert world.ask(Ask.RETRY, 0) == ["start 0.2"]
    assert world[0].resources == cpus(1)
    assert world[0].escalation is None
