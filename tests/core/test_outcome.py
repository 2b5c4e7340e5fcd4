"""What becomes of a trial when an attempt has ended, cell by cell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import cpus, tid

from sweep.core.messages import Exit, ExitKind, PauseTrial, ResizeTrial
from sweep.core.outcome import after_exit, budget_spent, fell_back, revived, wants_save, was_put_off
from sweep.core.plan import Plan
from sweep.core.results import Result
from sweep.core.trial import CheckpointRef, Status, Trial, evolve

STOPPING = Trial(tid(0), {}, cpus(1), Status.STOPPING, reason="why it stops")


def test_what_finished_by_itself_keeps_only_the_reason_of_an_end():
    ended = Exit(ExitKind.FINISHED)
    told = {}
    for to in (Status.TERMINATED, Status.PAUSED, Status.PENDING):
        status, trial = after_exit(evolve(STOPPING, next_status=to), ended, Plan(), 0.0)
        told[to] = (status, trial.reason)
    assert told == {
        Status.TERMINATED: (Status.TERMINATED, "why it stops"),
        Status.PAUSED: (Status.TERMINATED, ""),
        Status.PENDING: (Status.TERMINATED, ""),
    }


RUNNING = Trial(tid(0), {}, cpus(1), Status.RUNNING, attempt=1)
REF = CheckpointRef("t/checkpoint_000003", 3, 3, 1.5)


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [(REF, "starts again from t/checkpoint_000003: it is cut"), (None, "starts again from the beginning: it is cut")],
)
def test_a_trial_whose_checkpoint_is_damaged_starts_from_another_and_has_not_failed(checkpoint, expected):
    trial = evolve(RUNNING, checkpoint=checkpoint, started_from=CheckpointRef("t/checkpoint_000004", 4))
    status, after = after_exit(trial, Exit(ExitKind.DAMAGED, "it is cut"), Plan(), 0.0)
    assert (status, after.reason, after.failures, after.losses) == (Status.PENDING, expected, 0, 0)
    assert fell_back(after)


@pytest.mark.parametrize(
    ("kind", "started_from"), [(ExitKind.DAMAGED, None), (ExitKind.FAILED, REF), (ExitKind.FAILED, None)]
)
def test_what_fails_otherwise_has_failed_whatever_it_was_started_from(kind, started_from):
    trial = evolve(RUNNING, started_from=started_from)
    status, after = after_exit(trial, Exit(kind, "raised"), Plan(max_failures=1), 0.0)
    assert (status, after.failures + after.losses) == (Status.PENDING, 1)
    assert not fell_back(after)


def test_how_often_a_trial_was_lost_is_said_from_the_second_time_on():
    told = []
    for losses in range(3):
        plan = Plan(max_losses=losses)
        status, after = after_exit(evolve(RUNNING, losses=losses), Exit(ExitKind.LOST, "the host died"), plan, 0.0)
        told.append((status, after.reason))
    assert told == [
        (Status.ERROR, "lost: the host died"),
        (Status.ERROR, "lost 2 times: the host died"),
        (Status.ERROR, "lost 3 times: the host died"),
    ]


def test_a_trial_that_is_started_again_from_scratch_has_nothing_of_before():
    trial = evolve(RUNNING, checkpoint=REF, count=5, judged_to=7, failures=2, losses=1, last_result=Result({"m": 1}))
    fresh = revived(trial, from_scratch=True)
    assert (fresh.checkpoint, fresh.count, fresh.judged_to, fresh.last_result) == (None, 0, 0, None)
    again = revived(trial, from_scratch=False)
    assert (again.checkpoint, again.count, again.judged_to, again.last_result) == (REF, 5, 7, {"m": 1})
    assert (again.failures, again.losses, again.status) == (fresh.failures, fresh.losses, fresh.status)
    assert (again.failures, again.losses, again.status) == (0, 0, Status.PENDING)


RESIZE = ResizeTrial(tid(0), cpus(2))


@pytest.mark.parametrize(
    ("to", "pending", "expected"),
    [
        (Status.PAUSED, None, True),
        (Status.PAUSED, RESIZE, True),
        (Status.PENDING, RESIZE, True),
        (Status.PENDING, PauseTrial(tid(0)), False),
        (Status.PENDING, None, False),
        (Status.ERROR, None, False),
        (Status.TERMINATED, RESIZE, None),  # as `checkpoint_at_end` says
    ],
)
def test_a_trial_that_goes_on_later_saves_before_it_ends(to, pending, expected):
    trial = evolve(STOPPING, next_status=to, pending=pending)
    for at_end in (False, True):
        plan = Plan(can_save_on_demand=True, checkpoint_at_end=at_end)
        assert wants_save(trial, plan) is (at_end if expected is None else expected)
        assert not wants_save(trial, replace(plan, can_save_on_demand=False))
        assert not wants_save(evolve(trial, is_saved=True), plan)


def test_what_the_budget_put_off_is_begun_when_there_is_time():
    trial = Trial(tid(0), {}, cpus(1), Status.TERMINATED, reason=budget_spent(10))
    assert [was_put_off(trial, Plan(time_budget_s=20.0), now) for now in (19.0, 20.0, 21.0)] == [True, False, False]
    assert was_put_off(trial, Plan(), 1e9)
    assert not was_put_off(evolve(trial, attempt=1), Plan(), 0.0)
    assert not was_put_off(evolve(trial, reason="stopped"), Plan(), 0.0)
    assert not was_put_off(evolve(trial, status=Status.ERROR), Plan(), 0.0)
