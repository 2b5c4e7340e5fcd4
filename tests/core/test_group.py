"""What a training group decides: tables of facts with all the actions of each, and random courses of events."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.core.group import (
    START_ERROR,
    Action,
    Dismiss,
    Dump,
    Explain,
    Forward,
    GroupRules,
    Joined,
    KillAll,
    Late,
    Limits,
    Merge,
    Note,
    Outcome,
    Tell,
)

Fact = Callable[[GroupRules], list[Action]]
Step = tuple[Fact, list[Action]]

FINISHED = Outcome("FINISHED")
STOPPED = Outcome("STOPPED")
EXITED = Outcome("KILLED", "it ended without returning (exit code 0)")  # what the kernel says, whatever was said before
SIGKILLED = Outcome("KILLED", "killed by SIGKILL: somebody killed it from outside")
ABORTED = Outcome("KILLED", "killed by SIGABRT: compiled code gave up")


def failed(text: str, *, class_name: str = "ValueError", traceback: str = "") -> Outcome:
    return Outcome("FAILED", f"{class_name}: {text}", traceback, class_name, b"it")


# --- facts, as values ------------------------------------------------------------------------------------------------


def joined(rank: int, now: float = 0.0) -> Fact:
    return lambda rules: rules.joined(rank, now)


def reported(rank: int, seq: int, shard: str = "", *, now: float = 1.0) -> Fact:
    return lambda rules: rules.reported(rank, seq, shard, now)


def answered(seq: int, *, is_stop: bool = False, now: float = 1.0) -> Fact:
    return lambda rules: rules.answered(seq, is_stop, now)


def merged(seq: int, path: str, now: float = 1.0) -> Fact:
    return lambda rules: rules.merged(seq, path, now)


def said(rank: int, outcome: Outcome = FINISHED, *, at: float = 1.0, now: float = 1.0) -> Fact:
    return lambda rules: rules.said(rank, outcome, at, now)


def gone(rank: int, outcome: Outcome = EXITED, now: float = 1.0) -> Fact:
    return lambda rules: rules.gone(rank, outcome, now)


def tick(now: float) -> Fact:
    return lambda rules: rules.tick(now)


def kill(now: float = 1.0) -> Fact:
    return lambda rules: rules.kill(now)


def check(rules: GroupRules, *steps: Step) -> None:
    """Tell the facts one after another and compare what each of them causes."""
    for number, (fact, expected) in enumerate(steps):
        assert fact(rules) == expected, f"step {number}"


def a_group(size: int, **limits: Any) -> GroupRules:
    """Return the rules of a group whose ranks have all joined at 0."""
    rules = GroupRules(size, Limits(**limits), 0.0)
    for rank in range(size):
        rules.joined(rank, 0.0)
    return rules


def by_rank_0(seq: int) -> list[Step]:
    """Rank 0 makes a report and is answered; no other rank is waiting in it."""
    return [(reported(0, seq), [Forward(seq)]), (answered(seq), [Tell(0, False, seq)])]


def of_rank(rank: int, outcome: Outcome, size: int = 3) -> Outcome:
    """Return how a group ends when that is what a rank did."""
    return outcome._replace(error=f"rank {rank} of {size}: {outcome.error}")


def end_all(rules: GroupRules, size: int) -> Outcome | None:
    """Let every process be gone, as after KillAll, and return how the group ended."""
    for rank in range(size):
        assert rules.gone(rank, SIGKILLED, 1000.0) == []
    return rules.ending


# --- joining ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_group_has_started_when_the_last_rank_has_joined_whichever_that_is(order):
    rules = GroupRules(3, Limits(), 0.0)
    check(rules, (joined(order[0]), []), (joined(order[1]), []), (joined(order[2]), [Joined()]))
    assert rules.is_joined


def test_a_rank_that_joins_twice_starts_nothing_twice():
    check(GroupRules(2, Limits(), 0.0), (joined(0), []), (joined(0), []), (joined(1), [Joined()]), (joined(1), []))


def test_a_report_is_passed_on_only_after_the_group_has_started():
    check(
        GroupRules(2, Limits(), 0.0),
        (joined(0), []),
        (reported(0, 1), []),
        (joined(1, now=2.0), [Joined(), Forward(1)]),
        (answered(1), [Tell(0, False, 1)]),
    )


def test_a_checkpoint_is_merged_only_after_the_group_has_started():
    check(
        GroupRules(3, Limits(), 0.0),
        (joined(0), []),
        (joined(1), []),
        (reported(0, 1, "s0"), []),
        (reported(1, 1, "s1"), []),
        (joined(2), [Joined()]),
        (reported(2, 1), [Merge(0, 1, ("s0", "s1"))]),
    )


def test_a_group_that_is_complete_within_its_limit_has_no_deadline_left():
    rules = GroupRules(1, Limits(start_s=60), 100.0)
    assert rules.deadline == 105.0  # the wait is explained
    check(rules, (joined(0, now=101.0), [Joined()]))
    assert rules.deadline is None


def test_a_group_that_is_not_complete_in_time_fails_with_the_names_of_those_that_are_missing():
    rules = GroupRules(4, Limits(start_s=60), 100.0)
    check(
        rules,
        (joined(1, now=101.0), []),
        (tick(105.0), [Explain("waits for ranks 0, 2, 3 of 4 to join the group")]),
        (joined(2, now=106.0), []),
        (tick(159.9), []),
    )
    assert rules.deadline == 160.0
    check(rules, (tick(160.0), [KillAll()]), (tick(170.0), []))
    assert rules.deadline is None
    assert end_all(rules, 4) == Outcome(
        "FAILED",
        "ranks 0, 3 did not join the group within 60 s; see rank0.log, rank3.log",
        class_name=START_ERROR,
    )


def test_the_explanation_of_a_slow_start_vanishes_when_all_have_joined():
    check(
        GroupRules(2, Limits(), 0.0),
        (joined(0), []),
        (tick(5.0), [Explain("waits for rank 1 of 2 to join the group")]),
        (tick(6.0), []),
        (joined(1, now=7.0), [Joined(), Explain("")]),
    )


def test_many_missing_ranks_are_named_by_the_first_of_them():
    rules = GroupRules(12, Limits(start_s=60), 0.0)
    rules.tick(60.0)
    assert end_all(rules, 12) == Outcome(
        "FAILED",
        "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more did not join the group within 60 s; "
        "see rank0.log, rank1.log, rank2.log, rank3.log ...",
        class_name=START_ERROR,
    )


# --- courses ----------------------------------------------------------------------------------------------------------

# what happens: the size of a group whose ranks have all joined, then facts with all the actions of each
COURSES: dict[str, tuple[Any, ...]] = {
    # reports without checkpoints
    "rank 0 alone may report": (
        3,
        *by_rank_0(1),
        *by_rank_0(2),
    ),
    "every rank gets the answer to rank 0's report of the same number": (
        3,
        (reported(1, 1), []),
        (reported(0, 1), [Forward(1)]),
        (answered(1), [Tell(0, False, 1), Tell(1, False, 1)]),
        (reported(2, 1), [Tell(2, False, 1)]),  # late: the answer is there already
        (reported(1, 2), []),
        (reported(2, 2), []),
        (reported(0, 2), [Forward(2)]),
        (answered(2), [Tell(0, False, 2), Tell(1, False, 2), Tell(2, False, 2)]),
    ),
    "a rank that lags behind catches up without waiting": (
        2,
        *by_rank_0(1),
        *by_rank_0(2),
        (reported(1, 1), [Tell(1, False, 1)]),
        (reported(1, 2), [Tell(1, False, 2)]),
        (reported(1, 3), []),
    ),
    "rank 0's next report waits for nobody": (
        2,
        (reported(0, 1), [Forward(1)]),
        (reported(1, 1), []),
        (answered(1), [Tell(0, False, 1), Tell(1, False, 1)]),
        *by_rank_0(2),
    ),
    "an answer that comes again tells nobody anything": (
        1,
        *by_rank_0(1),
        (answered(1), []),
    ),
    "an answer to an earlier report does not answer this one": (
        2,
        *by_rank_0(1),
        (reported(0, 2), [Forward(2)]),
        (answered(1), []),
        (answered(2), [Tell(0, False, 2)]),
    ),
    # stops
    "a stop before any report is met by each at its first": (
        2,
        (answered(0, is_stop=True), [Tell(0, True, 0), Tell(1, True, 0)]),
        (reported(0, 1), [Tell(0, True, 1)]),
        (reported(1, 1, "s1"), [Tell(1, True, 1)]),
    ),
    "a stop between reports is told to all and the open report of rank 0 is not passed on": (
        3,
        (reported(1, 1), []),
        (answered(0, is_stop=True), [Tell(0, True, 0), Tell(2, True, 0), Tell(1, True, 1)]),
        (reported(0, 1), [Tell(0, True, 1)]),
    ),
    "a stop while rank 0 waits for its answer is told at once and its answer is told to nobody": (
        2,
        (reported(0, 1), [Forward(1)]),
        (answered(0, is_stop=True), [Tell(1, True, 0), Tell(0, True, 1)]),
        (said(0, STOPPED), []),
        (answered(1, is_stop=True), [Tell(1, True, 0)]),
    ),
    "a stop while ranks wait for a checkpoint lets them go without it": (
        3,
        (reported(0, 1, "s0"), []),
        (reported(1, 1, "s1"), []),
        (answered(0, is_stop=True), [Tell(2, True, 0), Tell(0, True, 1), Tell(1, True, 1)]),
    ),
    "a stop while a checkpoint is being merged lets it be finished and passed on": (
        3,
        (reported(1, 1), []),
        (reported(2, 1, "s2"), []),
        (reported(0, 1, "s0"), [Merge(0, 1, ("s0", "s2"))]),
        (answered(0, is_stop=True), [Tell(1, True, 1), Tell(2, True, 1)]),
        (merged(1, "checkpoint_1"), [Forward(1, "checkpoint_1"), Tell(0, True, 1, "checkpoint_1")]),
    ),
    # checkpoints
    "rank 0 waits with its shard for all others": (
        3,
        (reported(0, 1, "s0", now=1.0), []),
        (reported(2, 1, "s2", now=2.0), []),
        (tick(3.0), []),
        (reported(1, 1, now=4.0), [Merge(0, 1, ("s0", "s2"))]),
    ),
    "a rank that is over is not waited for": (
        3,
        (said(2), []),
        (reported(1, 1), []),
        (reported(0, 1, "s0"), [Merge(0, 1, ("s0",))]),
    ),
    "a rank that ends meanwhile is not waited for any more": (
        2,
        (reported(0, 1, "s0"), []),
        (said(1), [Merge(0, 1, ("s0",))]),
    ),
    "what is told of a merge that nobody asked for changes nothing": (
        2,
        (merged(1, "checkpoint_1"), []),
        (reported(1, 1), []),
        (reported(0, 1, "s0"), [Merge(0, 1, ("s0",))]),
        (merged(7, "checkpoint_7"), []),
        (merged(1, "checkpoint_1"), [Forward(1, "checkpoint_1")]),
        (merged(1, "checkpoint_1"), []),
    ),
    "a merge that failed leaves the report without a checkpoint": (
        2,
        (reported(1, 1, "s1"), []),
        (reported(0, 1, "s0"), [Merge(0, 1, ("s0", "s1"))]),
        (merged(1, ""), [Forward(1)]),
        (answered(1), [Tell(0, False, 1), Tell(1, False, 1)]),
    ),
    "a merge of a late checkpoint that failed lets its ranks go on": (
        2,
        *by_rank_0(1),
        (reported(1, 1, "s1"), [Merge(1, 1, ("s1",))]),
        (merged(1, ""), [Tell(1, False, 1)]),
    ),
    "a rank that returns while it should merge keeps nobody waiting": (
        2,
        (reported(1, 1, "s1"), []),
        (reported(0, 1, "s0"), [Merge(0, 1, ("s0", "s1"))]),
        (said(0), [Tell(1, False, 1)]),
        (merged(1, "checkpoint_1"), []),
    ),
    "a late checkpoint for the last report is kept and its rank makes it": (
        3,
        *by_rank_0(1),
        (reported(2, 1, "s2"), []),  # rank 1 may have files for it, too
        (reported(1, 1, "s1"), [Merge(1, 1, ("s1", "s2"))]),
        (merged(1, "late_1"), [Late(1, "late_1"), Tell(1, False, 1, "late_1"), Tell(2, False, 1, "late_1")]),
    ),
    "a late checkpoint is merged only when its report has been answered": (
        2,
        (reported(0, 1), [Forward(1)]),
        (reported(1, 1, "s1"), []),
        (answered(1), [Merge(1, 1, ("s1",))]),
        (merged(1, "late_1"), [Late(1, "late_1"), Tell(0, False, 1, "late_1"), Tell(1, False, 1, "late_1")]),
    ),
    "rank 0's next report waits until a late checkpoint has been told": (
        2,
        *by_rank_0(1),
        (reported(1, 1, "s1"), [Merge(1, 1, ("s1",))]),
        (reported(0, 2), []),
        (merged(1, "late_1"), [Late(1, "late_1"), Tell(1, False, 1, "late_1")]),
        (reported(1, 2), [Forward(2)]),
    ),
    "after a checkpoint that came late every report is waited for": (
        2,
        *by_rank_0(1),
        (reported(1, 1, "s1"), [Merge(1, 1, ("s1",))]),
        (merged(1, "late_1"), [Late(1, "late_1"), Tell(1, False, 1, "late_1")]),
        (reported(0, 2), []),
        (reported(1, 2, "t1"), [Merge(0, 2, ("t1",))]),
        (merged(2, "checkpoint_2"), [Forward(2, "checkpoint_2")]),
        (answered(2), [Tell(0, False, 2, "checkpoint_2"), Tell(1, False, 2, "checkpoint_2")]),
        (reported(1, 3), []),
        (reported(0, 3), [Forward(3)]),
    ),
    "a checkpoint that came too late is dropped with a word": (
        2,
        *by_rank_0(1),
        (reported(0, 2), [Forward(2)]),
        (
            reported(1, 1, "s1"),
            [
                Note(
                    "the checkpoint of rank 1 at report 1 came after rank 0's report 2 and was not kept; those of "
                    "later reports are waited for"
                ),
                Tell(1, False, 1),
            ],
        ),
    ),
    "checkpoints after rank 0 has returned are dropped with a word": (
        2,
        *by_rank_0(1),
        (said(0), []),
        (reported(1, 1), [Tell(1, False, 1)]),
        (
            reported(1, 2, "s1"),
            [
                Note("the checkpoint of rank 1 at report 2 was not kept: rank 0 returned after report 1"),
                Tell(1, False, 2),
            ],
        ),
        (reported(1, 3), [Tell(1, False, 3)]),
    ),
    # explanations
    "the words of a wait for others vanish when they come": (
        2,
        (reported(0, 1, "s0", now=0.0), []),
        (tick(5.0), [Explain("rank 0 waits in report 1, which carries a checkpoint, for rank 1, at report 0 so far")]),
        (reported(1, 1, now=6.0), [Merge(0, 1, ("s0",)), Explain("")]),
    ),
    "a wait with a late checkpoint names those that are really waited for": (
        3,
        *by_rank_0(1),
        (said(0), []),
        (reported(1, 1, "s1", now=10.0), []),
        (tick(15.0), [Explain("rank 1 waits in report 1, which carries a checkpoint, for rank 2, at report 0 so far")]),
        (said(2), [Merge(1, 1, ("s1",)), Explain("")]),
    ),
    "a wait because a checkpoint may come does not pretend that there is one": (
        3,
        *by_rank_0(1),
        (reported(1, 1), [Tell(1, False, 1)]),
        (reported(2, 1, "s2"), [Merge(2, 1, ("s2",))]),
        (merged(1, "late_1"), [Late(1, "late_1"), Tell(2, False, 1, "late_1")]),
        (reported(2, 2, now=2.0), []),
        (reported(0, 2, now=2.0), []),
        (
            tick(7.0),
            [Explain("rank 0 waits in report 2, which may carry a checkpoint, for rank 1, at report 1 so far")],
        ),
    ),
    "the words tell how far those are that are waited for": (
        3,
        *by_rank_0(1),
        (reported(2, 1), [Tell(2, False, 1)]),
        (reported(0, 2, "s0", now=2.0), []),
        (
            tick(7.0),
            [Explain("rank 0 waits in report 2, which carries a checkpoint, for ranks 1, 2, at report 0 to 1 so far")],
        ),
    ),
    "a failure takes the words away": (
        2,
        (reported(1, 1, now=1.0), []),
        (tick(6.0), [Explain("rank 1 waits in report 1 for rank 0, which has made 0")]),
        (said(0, failed("x"), at=7.0, now=7.0), [Explain("")]),
    ),
    "a stop takes the words away": (
        2,
        (reported(1, 1, now=1.0), []),
        (tick(6.0), [Explain("rank 1 waits in report 1 for rank 0, which has made 0")]),
        (answered(0, is_stop=True, now=7.0), [Tell(0, True, 0), Tell(1, True, 1), Explain("")]),
    ),
    # ends
    "a rank that has returned early stops nobody": (
        2,
        (said(1), []),
        *by_rank_0(1),
        (said(0), [Dismiss()]),
    ),
    "ranks that go on reporting after rank 0 has returned are let go on": (
        3,
        (reported(1, 1), []),
        (said(0), [Tell(1, False, 1)]),
        (reported(2, 1), [Tell(2, False, 1)]),
        (said(1), []),
        (said(2), [Dismiss()]),
    ),
    # failures
    "after a failure nobody is told anything and no report is passed on": (
        3,
        (reported(0, 1), [Forward(1)]),
        (said(2, failed("x"), at=1.0), []),
        (answered(1), []),
        (reported(1, 1), []),
    ),
    "a checkpoint whose merging is over before the group ends is still passed on": (
        2,
        (reported(1, 1), []),
        (reported(0, 1, "s0"), [Merge(0, 1, ("s0",))]),
        (said(1, failed("x"), at=1.0), []),
        (merged(1, "checkpoint_1"), [Forward(1, "checkpoint_1")]),
        (answered(1), []),
        (tick(2.0), [KillAll()]),
    ),
}


@pytest.mark.parametrize("course", COURSES)
def test_what_a_group_does_at_each_fact(course):
    size, *steps = COURSES[course]
    check(a_group(size), *steps)


# --- stops -----------------------------------------------------------------------------------------------------------


def test_a_stop_as_an_answer_reaches_every_rank_where_it_is():
    rules = a_group(4)
    check(
        rules,
        (reported(0, 3), [Forward(3)]),
        (reported(1, 3), []),
        (reported(2, 2), []),
        (answered(3, is_stop=True), [Tell(3, True, 0), Tell(0, True, 3), Tell(1, True, 3), Tell(2, True, 2)]),
        (reported(3, 1), [Tell(3, True, 1)]),  # it was on its way when rank 3 was told
        (said(0, STOPPED), []),
        (said(1, STOPPED), []),
        (said(2, STOPPED), []),
        (said(3, STOPPED), [Dismiss()]),
        (gone(3), []),
        (gone(1), []),
        (gone(0), []),
        (gone(2), []),
    )
    assert rules.ending == STOPPED


def test_a_stop_before_the_group_has_started_needs_no_further_start():
    rules = GroupRules(2, Limits(), 0.0)
    check(
        rules,
        (joined(0), []),
        (reported(0, 1), []),
        (answered(0, is_stop=True), [Tell(1, True, 0), Tell(0, True, 1)]),
        (tick(6.0), []),  # nobody needs to know any more what it waited for
        (said(0, STOPPED, now=7.0), []),
        (tick(8.0), [KillAll()]),
    )
    assert end_all(rules, 2) == STOPPED


def test_ranks_that_do_not_obey_are_ended_a_moment_after_one_has():
    rules = a_group(2, stop_s=1.0)
    check(
        rules,
        (reported(0, 1), [Forward(1)]),
        (answered(1, is_stop=True, now=10.0), [Tell(1, True, 0), Tell(0, True, 1)]),
    )
    assert rules.deadline is None  # until one has ended the driver's own limit counts
    check(rules, (said(0, STOPPED, now=12.0), []))
    assert rules.deadline == 13.0
    check(rules, (gone(0, now=12.1), []), (tick(12.9), []), (tick(13.0), [KillAll()]))
    check(rules, (gone(1, SIGKILLED, now=13.1), []))
    assert rules.ending == STOPPED


def test_when_nobody_obeys_nobody_is_killed_from_here():
    rules = a_group(2, hang_s=None)
    check(rules, (answered(0, is_stop=True), [Tell(0, True, 0), Tell(1, True, 0)]), (tick(1000.0), []))
    assert rules.deadline is None


def test_a_group_that_was_told_to_stop_when_all_its_code_had_returned_has_finished():
    rules = a_group(2)
    check(
        rules,
        (said(0), []),
        (answered(0, is_stop=True), [Tell(1, True, 0)]),
        (said(1), [Dismiss()]),
        (gone(0), []),
        (gone(1), []),
    )
    assert rules.ending == FINISHED


@pytest.mark.parametrize(("first", "second"), [(FINISHED, STOPPED), (STOPPED, FINISHED), (STOPPED, STOPPED)])
def test_a_group_of_which_any_rank_was_stopped_has_been_stopped(first, second):
    rules = a_group(2)
    rules.answered(0, True, 1.0)
    check(rules, (said(0, first), []), (said(1, second), [Dismiss()]), (gone(0), []), (gone(1), []))
    assert rules.ending == STOPPED


def test_a_rank_other_than_0_that_raises_while_it_is_stopped_does_not_spoil_the_stop():
    rules = a_group(2)
    check(
        rules,
        (answered(0, is_stop=True), [Tell(0, True, 0), Tell(1, True, 0)]),
        (said(1, failed("peer is gone"), now=2.0), []),
        (said(0, STOPPED, now=2.5), [Dismiss()]),
        (gone(0), []),
        (gone(1), []),
    )
    assert rules.ending == STOPPED


def test_rank_0_that_raises_while_it_is_stopped_is_the_error():
    rules = a_group(2)
    check(
        rules,
        (answered(0, is_stop=True), [Tell(0, True, 0), Tell(1, True, 0)]),
        (said(0, failed("in finally"), now=2.0), []),
        (said(1, STOPPED, now=2.5), [Dismiss()]),
        (gone(0), []),
        (gone(1), []),
    )
    assert rules.ending == of_rank(0, failed("in finally"), 2)


def test_a_rank_that_dies_while_the_group_is_stopped_has_the_others_ended_soon():
    rules = a_group(2, stop_s=1.0)
    rules.answered(0, True, 1.0)
    check(rules, (gone(1, SIGKILLED, now=2.0), []))
    assert rules.deadline == 3.0
    check(rules, (tick(3.0), [KillAll()]), (gone(0, SIGKILLED, now=3.0), []))
    assert rules.ending == of_rank(1, SIGKILLED, 2)


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shards", "merge"),
    [
        (("s0", "s1", "s2"), ("s0", "s1", "s2")),
        (("s0", "", ""), ("s0",)),
        (("", "s1", "s2"), ("s1", "s2")),  # the others have been there before rank 0
        (("", "", "s2"), ("s2",)),
    ],
)
def test_shards_of_whichever_ranks_become_one_checkpoint_before_the_report_is_passed_on(shards, merge):
    check(
        a_group(3),
        (reported(2, 1, shards[2]), []),
        (reported(1, 1, shards[1]), []),
        (reported(0, 1, shards[0]), [Merge(0, 1, merge)]),
        (merged(1, "checkpoint_1"), [Forward(1, "checkpoint_1")]),
        (answered(1), [Tell(rank, False, 1, "checkpoint_1") for rank in range(3)]),
        *by_rank_0(2),
    )


def test_ranks_that_do_not_come_to_a_report_with_a_checkpoint_end_the_group_with_their_names():
    rules = a_group(4, barrier_s=60.0)
    check(
        rules,
        (reported(1, 1, now=10.0), []),
        (reported(0, 1, "s0", now=10.0), []),
    )
    assert rules.deadline == 15.0
    words = "rank 0 waits in report 1, which carries a checkpoint, for ranks 2, 3, at report 0 so far"
    check(rules, (tick(15.0), [Explain(words)]))
    assert rules.deadline == 70.0
    check(rules, (tick(70.0), [KillAll()]))
    assert end_all(rules, 4) == Outcome(
        "FAILED",
        f"after 60 s of waiting: {words}. Every rank must call report() equally often where a checkpoint is reported",
        class_name="ReportTimeout",
    )


def test_the_time_that_ranks_may_wait_begins_anew_with_every_report():
    rules = a_group(2, barrier_s=60.0)
    check(
        rules,
        (reported(0, 1, "s0", now=0.0), []),
        (reported(1, 1, now=50.0), [Merge(0, 1, ("s0",))]),
        (merged(1, "checkpoint_1", now=50.0), [Forward(1, "checkpoint_1")]),
        (answered(1, now=50.0), [Tell(0, False, 1, "checkpoint_1"), Tell(1, False, 1, "checkpoint_1")]),
        (reported(0, 2, "t0", now=51.0), []),
        (tick(56.0), [Explain("rank 0 waits in report 2, which carries a checkpoint, for rank 1, at report 1 so far")]),
        (tick(110.9), []),
        (tick(111.0), [KillAll()]),
    )


def test_nobody_is_late_while_a_rank_waits_for_disk_space_and_a_stop_still_ends_the_group():
    rules = a_group(2, barrier_s=60.0, hang_s=20.0)
    check(
        rules,
        (reported(0, 1, "s0", now=0.0), []),
        (lambda rules: rules.waits_for_space(1, True, 5.0), []),
        (tick(1000.0), []),
    )
    assert rules.deadline is None
    check(rules, (lambda rules: rules.waits_for_space(1, False, 1000.0), []))
    assert rules.deadline == 1005.0
    check(
        rules,
        (reported(1, 1, "s1", now=1001.0), [Merge(0, 1, ("s0", "s1"))]),
        (merged(1, "checkpoint_1", now=1001.0), [Forward(1, "checkpoint_1")]),
        (lambda rules: rules.waits_for_space(1, True, 1001.0), []),
        (answered(1, is_stop=True, now=1001.0), [Tell(0, True, 1, "checkpoint_1"), Tell(1, True, 1, "checkpoint_1")]),
        (said(0, STOPPED, at=1001.0, now=1001.0), []),
        (tick(1002.0), [KillAll()]),
    )


# --- explanations ----------------------------------------------------------------------------------------------------


def test_a_wait_for_rank_0_is_explained_once_and_the_words_vanish_with_it():
    rules = a_group(3)
    check(rules, (reported(1, 1, now=1.0), []), (reported(2, 1, now=2.0), []))
    assert rules.deadline == 6.0
    check(rules, (tick(5.9), []))
    check(rules, (tick(6.0), [Explain("ranks 1, 2 wait in report 1 for rank 0, which has made 0")]))
    assert rules.deadline is None
    check(rules, (tick(50.0), []), (reported(0, 1, now=51.0), [Forward(1), Explain("")]))


def test_waiting_for_the_sweep_is_not_explained():
    rules = a_group(2)
    check(rules, (reported(0, 1), [Forward(1)]), (reported(1, 1), []), (tick(100.0), []))
    assert rules.deadline is None


def test_waiting_for_a_checkpoint_to_be_stored_is_not_explained():
    rules = a_group(1)
    check(rules, (reported(0, 1, "s0"), [Merge(0, 1, ("s0",))]), (tick(100.0), []))
    assert rules.deadline is None


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_group_has_finished_when_all_have_returned_and_are_gone():
    rules = a_group(3)
    check(rules, (said(1), []), (said(0), []), (said(2), [Dismiss()]))
    check(rules, (gone(0), []), (gone(2), []))
    assert rules.ending is None
    check(rules, (gone(1), []))
    assert rules.ending == FINISHED
    assert rules.deadline is None


def test_a_process_that_crashes_after_its_code_has_returned_has_returned():
    rules = a_group(2)
    check(rules, (said(0), []), (said(1), [Dismiss()]), (gone(0, SIGKILLED), []), (gone(1, ABORTED), []))
    assert rules.ending == FINISHED


def test_a_group_that_nobody_needs_is_ended():
    rules = a_group(2, hang_s=1.0)
    check(rules, (reported(0, 1), [Forward(1)]), (kill(), [KillAll()]), (kill(), []))
    assert rules.deadline is None
    assert end_all(rules, 2) == Outcome("KILLED")


def test_after_the_end_was_ordered_nothing_else_is():
    rules = a_group(3, settle_s=0.0)
    check(
        rules,
        (reported(1, 1, "s1"), []),
        (said(2, failed("x"), at=1.0), []),
        (tick(1.0), [KillAll()]),
        (answered(0, is_stop=True), []),
        (answered(1), []),
        (reported(0, 1, "s0"), []),
        (merged(1, "checkpoint_1"), []),
        (joined(1), []),
        (said(1), []),
        (said(0), []),
        (tick(5.0), []),
        (kill(), []),
    )


# --- failures --------------------------------------------------------------------------------------------------------


def test_an_exception_waits_a_moment_for_a_better_one_and_then_ends_the_group():
    rules = a_group(3, settle_s=0.1)
    check(rules, (said(1, failed("bad lr", traceback="Traceback ..."), at=5.0, now=5.01), []))
    assert rules.deadline == pytest.approx(5.11)
    check(rules, (tick(5.1), []), (tick(5.12), [KillAll()]))
    assert end_all(rules, 3) == Outcome(
        "FAILED", "rank 1 of 3: ValueError: bad lr", "Traceback ...", "ValueError", b"it"
    )


def test_later_failures_do_not_put_the_end_off():
    rules = a_group(3, settle_s=0.1)
    rules.said(1, failed("x"), 5.0, 5.0)
    rules.said(2, failed("y"), 5.09, 5.09)
    check(rules, (tick(5.1), [KillAll()]))


def test_a_group_that_is_ending_runs_into_no_other_limit():
    rules = GroupRules(2, Limits(start_s=60.0, settle_s=0.1), 0.0)
    check(rules, (joined(0), []), (said(0, failed("x"), at=59.95, now=59.95), []), (tick(60.0), []))
    check(rules, (tick(60.1), [KillAll()]))
    assert end_all(rules, 2) == of_rank(0, failed("x"), 2)


def test_a_group_of_one_fails_without_waiting():
    rules = a_group(1)
    check(rules, (said(0, failed("x"), at=5.0, now=5.0), [Dismiss()]))
    assert rules.deadline == 5.0
    check(rules, (tick(5.0), [KillAll()]))


FAILURES: dict[str, tuple[list[Fact], Outcome, str]] = {
    "of exceptions the one that was raised first": (
        [said(1, failed("true"), at=1.0, now=1.05), said(0, failed("reset"), at=1.02, now=1.03)],
        of_rank(1, failed("true")),
        "(rank 0 failed after rank 1)",
    ),
    "whichever is heard of first": (
        [said(0, failed("reset"), at=1.02, now=1.03), said(1, failed("true"), at=1.0, now=1.05)],
        of_rank(1, failed("true")),
        "(rank 0 failed after rank 1)",
    ),
    "of several": (
        [said(2, failed("reset"), at=1.02), said(0, failed("reset"), at=1.01), said(1, failed("true"), at=1.0)],
        of_rank(1, failed("true")),
        "(ranks 0, 2 failed after rank 1)",
    ),
    "a death before the exception that it caused": (
        [said(0, failed("reset"), at=1.0, now=1.01), gone(2, SIGKILLED, now=1.02)],
        of_rank(2, SIGKILLED),
        "(rank 0 failed after rank 2)",
    ),
    "a death that is heard of first": (
        [gone(2, SIGKILLED, now=1.02), said(0, failed("reset"), at=1.0, now=1.03)],
        of_rank(2, SIGKILLED),
        "(rank 0 failed after rank 2)",
    ),
    "not an abort which libraries do when a peer is gone": (
        [gone(2, ABORTED, now=1.02), said(0, failed("true"), at=1.05)],
        of_rank(0, failed("true")),
        "(rank 2 failed after rank 0)",
    ),
    "not an abort before another death": (
        [gone(2, ABORTED, now=1.02), gone(0, EXITED, now=1.05)],
        of_rank(0, EXITED),
        "(rank 2 failed after rank 0)",
    ),
    "of aborts the first": (
        [gone(2, ABORTED, now=1.02), gone(0, ABORTED, now=1.05)],
        of_rank(2, ABORTED),
        "(rank 0 failed after rank 2)",
    ),
    "an abort alone": ([gone(1, ABORTED, now=1.02)], of_rank(1, ABORTED), ""),
    "the end of a process that has said why is no second failure": (
        [said(1, failed("true"), at=1.0), gone(1, EXITED, now=1.01)],
        of_rank(1, failed("true")),
        "",
    ),
    "ranks that have returned did not fail": (
        [said(1, FINISHED), said(2, STOPPED), gone(0, SIGKILLED, now=1.01)],
        of_rank(0, SIGKILLED),
        "",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_the_failure_that_came_first_is_the_groups_and_what_it_caused_is_one_line(name):
    facts, first, others = FAILURES[name]
    rules = a_group(3)
    for fact in facts:
        assert set(map(type, fact(rules))) <= {Dismiss}
    assert rules.tick(2.0) == [KillAll()]
    assert end_all(rules, 3) == first._replace(traceback=others)


def test_what_others_did_stands_below_the_traceback():
    rules = a_group(2)
    rules.said(1, failed("true", traceback="Traceback: line 3"), 1.0, 1.0)
    rules.said(0, failed("reset", traceback="Traceback: elsewhere"), 1.1, 1.1)
    rules.tick(1.2)
    assert end_all(rules, 2) == Outcome(
        "FAILED",
        "rank 1 of 2: ValueError: true",
        "Traceback: line 3\n(rank 0 failed after rank 1)",
        "ValueError",
        b"it",
    )


def test_a_failure_of_all_ranks_ends_the_group_when_they_are_gone():
    rules = a_group(2)
    check(
        rules,
        (said(0, failed("first"), at=1.0), []),
        (said(1, failed("second"), at=1.01), [Dismiss()]),
        (gone(0), []),
        (gone(1), []),
    )
    assert rules.ending is not None
    assert rules.ending.error == "rank 0 of 2: ValueError: first"
    assert rules.deadline is None


def test_a_stop_while_a_failure_settles_does_not_hide_it():
    rules = a_group(2, settle_s=0.1)
    check(
        rules,
        (said(1, failed("x"), at=1.0, now=1.0), []),
        (answered(0, is_stop=True, now=1.05), [Tell(0, True, 0)]),
        (tick(1.2), [KillAll()]),
    )
    assert end_all(rules, 2) == of_rank(1, failed("x"), 2)


@pytest.mark.parametrize(
    ("fact", "class_name"),
    [
        (said(1, failed("refused", class_name=START_ERROR), at=1.0), START_ERROR),
        (said(1, failed("no such module", class_name="ImportError"), at=1.0), "ImportError"),
        (gone(1, SIGKILLED), START_ERROR),
    ],
    ids=["that_others_cannot_be_found", "of_the_users_code", "a_death"],
)
def test_a_failure_before_joining_is_a_failed_start_unless_the_users_code_raised(fact, class_name):
    rules = GroupRules(2, Limits(), 0.0)
    check(rules, (joined(0), []), (fact, []), (tick(2.0), [KillAll()]))
    ending = end_all(rules, 2)
    assert ending is not None
    assert ending.class_name == class_name
    assert ending.error.startswith("rank 1 of 2: ")


def test_a_rank_that_has_joined_and_dies_before_others_have_did_so_in_its_own_code():
    rules = GroupRules(2, Limits(), 0.0)
    check(rules, (joined(1), []), (gone(1, SIGKILLED), []), (tick(2.0), [KillAll()]))
    assert end_all(rules, 2) == of_rank(1, SIGKILLED, 2)


def test_of_failures_before_joining_the_first_is_the_groups():
    rules = GroupRules(2, Limits(), 0.0)
    check(
        rules,
        (joined(1), []),
        (said(0, failed("connection closed", class_name=START_ERROR), at=1.1), []),
        (said(1, failed("true"), at=1.0), [Dismiss()]),
        (tick(2.0), [KillAll()]),
    )
    assert end_all(rules, 2) == failed("true")._replace(
        error="rank 1 of 2: ValueError: true", traceback="(rank 0 failed after rank 1)"
    )


# --- hangs -----------------------------------------------------------------------------------------------------------


def test_without_a_limit_nothing_ever_counts_as_hung():
    rules = a_group(2)
    check(rules, (reported(0, 1), [Forward(1)]), (answered(1), [Tell(0, False, 1)]), (tick(1e9), []))
    assert rules.deadline is None


def test_the_limit_counts_from_the_last_step_of_each_rank():
    rules = a_group(2, hang_s=60.0)
    assert rules.deadline == 60.0  # all joined at 0
    check(rules, (reported(0, 1, now=50.0), [Forward(1)]))
    assert rules.deadline is None  # it waits for the sweep; rank 1 never reports, so nothing is expected of it
    check(rules, (tick(1000.0), []), (answered(1, now=1000.0), [Tell(0, False, 1)]))
    assert rules.deadline == 1060.0
    check(rules, (reported(1, 1, now=1010.0), [Tell(1, False, 1)]))
    assert rules.deadline == 1060.0
    check(rules, (said(0), []))
    assert rules.deadline == 1070.0


def test_time_before_all_have_joined_does_not_count():
    rules = GroupRules(2, Limits(hang_s=60.0, start_s=300.0), 0.0)
    check(
        rules,
        (joined(0, now=1.0), []),
        (tick(100.0), [Explain("waits for rank 1 of 2 to join the group")]),
        (joined(1, now=200.0), [Joined(), Explain("")]),
    )
    assert rules.deadline == 260.0


@pytest.mark.parametrize(
    ("states", "who"),
    [
        ({0: "S", 1: "T", 2: "R"}, "rank 1 is stopped (SIGSTOP)"),
        ({0: "S", 1: "T", 2: "T"}, "ranks 1, 2 are stopped (SIGSTOP)"),
        ({0: "S", 1: "S", 2: "R"}, "rank 1 is at report 1"),
        ({}, "rank 1 is at report 1"),
    ],
)
def test_a_hang_is_written_down_by_all_ranks_before_they_are_ended(states, who):
    rules = a_group(3, hang_s=60.0, dump_s=1.0)
    for rank in range(3):
        rules.reported(rank, 1, "", 10.0)
    rules.answered(1, False, 10.0)
    check(
        rules,
        (reported(0, 2, now=40.0), [Forward(2)]),
        (answered(2, now=40.0), [Tell(0, False, 2)]),
        (reported(2, 2, now=41.0), [Tell(2, False, 2)]),
    )
    assert rules.deadline == 70.0
    check(rules, (tick(69.0), []), (tick(70.0), [Dump()]))
    assert rules.seen(states, 70.0) == []
    assert rules.deadline == 71.0
    check(rules, (tick(70.5), []), (reported(1, 2, now=70.6), []), (tick(71.0), [KillAll()]))
    assert end_all(rules, 3) == Outcome(
        "HUNG",
        f"no report within report_timeout_s=60: {who}. The stacks of all ranks are in rank0.log, rank1.log, rank2.log",
        class_name="GroupHung",
    )


def a_far_group(**limits: Any) -> GroupRules:
    """Return the rules of a group of ranks 0 and 1 here and 2 elsewhere, all of which wait in their first report."""
    rules = GroupRules(3, Limits(**limits), 0.0, far={2})
    for rank in range(3):
        rules.joined(rank, 0.0)
        rules.reported(rank, 1, "", 0.0)
    return rules


def test_a_hang_is_known_only_when_far_ranks_have_answered_within_the_time_that_is_given_to_all():
    rules = a_far_group(hang_s=60.0, dump_s=1.0)
    rules.answered(1, False, 0.0)
    check(rules, (tick(60.0), [Dump()]))
    assert rules.seen({0: "S", 1: "S"}, 60.0) == []
    assert rules.deadline is None
    check(rules, (tick(61.0), []))
    assert rules.seen({2: "T"}, 61.0) == []
    check(rules, (tick(61.0), [KillAll()]))
    ending = end_all(rules, 3)
    assert ending is not None
    assert "rank 2 is stopped (SIGSTOP)" in ending.error


def test_words_that_were_held_up_on_their_way_are_no_hang_and_what_waited_meanwhile_goes_on():
    rules = a_far_group(hang_s=60.0, dump_s=1.0)
    rules.answered(1, False, 0.0)
    check(rules, (tick(60.0), [Dump()]), (reported(0, 2, now=60.5), []))
    rules.seen({0: "S", 1: "S"}, 60.0)
    assert rules.seen({2: "S"}, 75.0) == [Forward(2)]
    assert rules.deadline == 135.0


def test_a_far_rank_that_is_gone_is_not_waited_for_to_know_a_hang():
    rules = a_far_group(hang_s=60.0, dump_s=1.0)
    rules.answered(1, False, 0.0)
    check(rules, (tick(60.0), [Dump()]))
    rules.gone(2, SIGKILLED, 60.2)
    assert rules.deadline == pytest.approx(60.3)
    check(rules, (tick(60.4), [KillAll()]))


def test_what_a_far_rank_did_first_is_the_error_though_it_is_told_last():
    rules = a_far_group()
    check(rules, (said(0, failed("a peer is gone"), at=5.002, now=5.01), []), (tick(5.2), [KillAll()]))
    rules.gone(0, SIGKILLED, 5.2)
    rules.gone(1, SIGKILLED, 5.2)
    assert rules.ending is None
    assert rules.said(2, failed("true"), 5.001, 5.3) == []
    rules.gone(2, SIGKILLED, 5.3, was_told=True)
    assert rules.ending is not None
    assert rules.ending.error.startswith("rank 2 of 3: ")
    assert "true" in rules.ending.error


@pytest.mark.parametrize(("was_told", "who"), [(False, 2), (True, 0)])
def test_a_far_rank_that_died_by_itself_is_told_from_one_that_was_ended(was_told, who):
    rules = a_far_group()
    check(rules, (said(0, failed("a peer is gone"), at=5.0, now=5.0), []), (tick(5.2), [KillAll()]))
    rules.gone(0, SIGKILLED, 5.2)
    rules.gone(1, SIGKILLED, 5.2)
    rules.gone(2, SIGKILLED, 5.3, at=4.999, was_told=was_told)
    assert rules.ending is not None
    assert rules.ending.error.startswith(f"rank {who} of 3: ")


def test_all_ranks_that_are_equally_far_behind_are_named():
    rules = a_group(2, hang_s=0.5)
    check(rules, (reported(1, 1), []), (reported(0, 1), [Forward(1)]))
    check(rules, (answered(1), [Tell(0, False, 1), Tell(1, False, 1)]), (tick(1.5), [Dump()]), (tick(2.5), [KillAll()]))
    ending = end_all(rules, 2)
    assert ending is not None
    assert ending.error == (
        "no report within report_timeout_s=0.5: ranks 0, 1 are at report 1. The stacks of all ranks are in rank0.log, "
        "rank1.log"
    )


def test_a_rank_that_reports_while_stacks_are_written_is_named_nevertheless():
    rules = a_group(1, hang_s=60.0)
    check(rules, (tick(60.0), [Dump()]), (reported(0, 1, now=60.5), []), (tick(61.0), [KillAll()]))
    ending = end_all(rules, 1)
    assert ending is not None
    assert ending.error == (
        "no report within report_timeout_s=60: rank 0 is at report 0. The stacks of all ranks are in rank0.log"
    )


def test_a_failure_that_comes_to_light_while_stacks_are_written_is_the_cause():
    rules = a_group(2, hang_s=60.0)
    check(rules, (tick(60.0), [Dump()]), (said(1, failed("x"), at=60.2, now=60.2), []), (tick(60.4), [KillAll()]))
    assert end_all(rules, 2) == of_rank(1, failed("x"), 2)


def test_a_rank_that_was_told_to_stop_and_hangs_is_found_too():
    rules = a_group(1, hang_s=10.0)
    check(
        rules,
        (reported(0, 1), [Forward(1)]),
        (answered(1, is_stop=True, now=5.0), [Tell(0, True, 1)]),
        (tick(15.0), [Dump()]),
        (tick(16.0), [KillAll()]),
    )


# --- random courses of events ----------------------------------------------------------------------------------------


class World:
    """Ranks, a driver and a clock that keep to the protocol and to nothing else; every action is checked as it comes.

    Args:
        is_calm: no rank fails by itself.
    """

    def __init__(self, size: int, limits: Limits, *, is_calm: bool) -> None:
        self.is_calm = is_calm
        self.now = 0.0
        self.limits = limits
        self.rules = GroupRules(size, limits, 0.0)
        self.size = size
        self.joined: set[int] = set()
        self.reports = [0] * size
        self.waiting = [0] * size
        self.shards = [""] * size
        self.told_to_stop: set[int] = set()
        self.over: set[int] = set()
        self.gone: set[int] = set()
        self.forwarded = 0
        self.unanswered = 0
        self.merging: Merge | None = None
        self.has_started = False
        self.is_stopping = False
        self.is_killed = False
        self.is_dismissed = False
        self.is_dumped = False
        self.explained = ""
        self.num_failures = 0

    # what can happen next

    def moves(self) -> list[Callable[[int], None]]:
        """Return everything that may happen now; each takes a number that it may decide by."""
        found: list[Callable[[int], None]] = [self.pass_time, self.pass_time]
        if self.unanswered:
            found += [self.answer, self.answer]
        if self.merging is not None and self.merging.rank not in self.over:
            found += [self.merge, self.merge]
        if len(self.gone) < self.size:
            found += [self.go_on] * 6
        if not self.is_stopping:
            found.append(self.stop)
        return found

    def pass_time(self, by: int) -> None:
        """Time passes: by steps of all sizes, never beyond what the rules asked for, as a selector does it."""
        at = self.now + (0.01, 0.3, 2.0, 40.0)[by % 4]
        if (deadline := self.rules.deadline) is not None:
            at = min(at, max(deadline, self.now))
        self.now = at
        self.take(self.rules.tick(self.now))
        assert self.rules.deadline is None or self.rules.deadline > self.now, "woken for nothing, again and again"

    def answer(self, by: int) -> None:
        seq, self.unanswered = self.unanswered, 0
        is_stop = self.is_stopping or by % 16 == 0
        self.is_stopping = is_stop
        self.take(self.rules.answered(seq, is_stop, self.now))

    def stop(self, by: int) -> None:
        if by % 16 == 0:
            self.is_stopping = True
            self.take(self.rules.answered(0, True, self.now))

    def merge(self, by: int) -> None:
        merging, self.merging = self.merging, None
        assert merging is not None
        path = f"checkpoint_{merging.seq}" if by % 8 else ""  # it may fail, too
        self.take(self.rules.merged(merging.seq, path, self.now))

    def go_on(self, by: int) -> None:
        """One rank goes on: it joins, reports, returns, raises, dies."""
        rank = by % self.size
        dice = by // self.size
        may_fail = not self.is_calm
        if rank in self.gone:
            return
        if rank in self.over or (may_fail and dice % 41 == 0):
            self.end_process(rank, dice)
        elif self.waiting[rank]:
            return
        elif rank not in self.joined:
            self.joined.add(rank)
            self.take(self.rules.joined(rank, self.now))
        elif rank in self.told_to_stop:
            self.say(rank, (STOPPED, STOPPED, STOPPED, FINISHED, failed("while stopping"))[dice % (4 + may_fail)])
        elif may_fail and dice % 17 == 0:
            self.say(rank, failed("by itself"))
        elif dice % 23 == 0:
            self.say(rank, FINISHED)
        else:
            self.report(rank, has_shard=dice % 3 == 0)

    def report(self, rank: int, *, has_shard: bool) -> None:
        self.reports[rank] += 1
        self.waiting[rank] = self.reports[rank]
        self.shards[rank] = f"shard{rank}-{self.reports[rank]}" if has_shard else ""
        self.take(self.rules.reported(rank, self.reports[rank], self.shards[rank], self.now))

    def say(self, rank: int, outcome: Outcome) -> None:
        self.over.add(rank)
        self.num_failures += not outcome.is_good
        self.take(self.rules.said(rank, outcome, self.now, self.now))

    def end_process(self, rank: int, dice: int) -> None:
        if rank in self.over and dice % 3 and not self.is_dismissed:
            return  # what has returned waits for the others
        self.num_failures += rank not in self.over and not self.is_killed
        self.over.add(rank)
        self.waiting[rank] = 0
        self.gone.add(rank)
        self.take(self.rules.gone(rank, EXITED, self.now))

    # what is asked of the actions

    def take(self, actions: Sequence[Action]) -> None:
        if self.is_killed:
            assert actions == []
        for action in actions:
            self.obey(action)
        deadline = self.rules.deadline
        if self.is_killed or self.rules.ending is not None:
            assert deadline is None
        if not self.is_killed:
            assert self.rules.ending is None or len(self.gone) == self.size
            self.check_that_nobody_waits_for_ever()

    def obey(self, action: Action) -> None:
        match action:
            case Tell(rank, is_stop, 0, path):
                assert is_stop
                assert not path
                assert rank not in self.over
                self.told_to_stop.add(rank)
            case Tell(rank, is_stop, seq, path):
                assert self.waiting[rank] == seq, "told a rank that does not wait for that"
                assert self.merging is None or self.merging.rank != rank
                assert is_stop == self.is_stopping
                assert path in ("", f"checkpoint_{seq}")
                self.waiting[rank] = 0
                if is_stop:
                    self.told_to_stop.add(rank)
            case Forward(seq, path):
                assert self.has_started, "a report came before the group had started"
                assert seq == self.forwarded + 1
                assert self.waiting[0] == seq
                assert not self.unanswered
                assert path in (None, f"checkpoint_{seq}")
                self.forwarded = self.unanswered = seq
            case Merge(rank, seq, shards):
                assert self.merging is None
                assert self.waiting[rank] == seq
                held = [self.shards[other] for other in range(self.size) if self.waiting[other] == seq]
                assert shards
                assert list(shards) == [shard for shard in held if shard]
                self.merging = action
            case Late(seq, path):
                assert seq == self.forwarded
                assert path == f"checkpoint_{seq}"
            case Joined():
                assert not self.has_started
                assert len(self.joined) == self.size
                self.has_started = True
            case Explain(text):
                assert bool(text) != bool(self.explained)
                self.explained = text
            case Dump():
                assert self.limits.hang_s is not None
                assert not self.is_dumped
                self.is_dumped = True
                assert self.rules.seen({0: "T"}, self.now) == []
            case Dismiss():
                assert len(self.over) == self.size
                self.is_dismissed = True
            case KillAll():
                assert not self.is_killed
                self.is_killed = True
            case Note(text):
                assert text

    def check_that_nobody_waits_for_ever(self) -> None:
        """When nothing is under way, some rank must be able to go on, or a time must be set at which that ends."""
        living = [rank for rank in range(self.size) if rank not in self.over]
        is_quiet = not self.unanswered and (self.merging is None or self.merging.rank in self.over)
        if living and is_quiet and all(self.waiting[rank] for rank in living):
            assert self.rules.deadline is not None
            assert self.num_failures or self.is_dumped, "every rank waits"

    def finish(self) -> None:
        """Let everybody end, and time pass until the rules are content."""
        for _ in range(1000):
            if len(self.gone) == self.size:
                break
            if self.is_killed:
                for rank in range(self.size):
                    if rank not in self.gone:
                        self.end_process(rank, 0)
                continue
            if self.unanswered:
                self.answer(1)
            elif self.merging is not None and self.merging.rank not in self.over:
                self.merge(1)
            elif free := [rank for rank in range(self.size) if not self.waiting[rank] and rank not in self.over]:
                rank = free[0]
                if rank in self.joined:
                    self.say(rank, STOPPED if rank in self.told_to_stop else FINISHED)
                else:
                    self.go_on(rank + self.size)
            elif self.is_dismissed:
                for rank in range(self.size):
                    if rank not in self.gone:
                        self.end_process(rank, 0)
            else:
                assert self.rules.deadline is not None
                self.pass_time(3)
        assert self.rules.ending is not None
        assert self.rules.deadline is None
        self.check_ending(self.rules.ending)

    def check_ending(self, ending: Outcome) -> None:
        if not self.num_failures and not self.is_killed:
            assert ending.kind in (("STOPPED", "FINISHED") if self.is_stopping else ("FINISHED",))
        if self.num_failures and not self.is_stopping:
            assert not ending.is_good
        if not ending.is_good:
            assert ending.error


def run_world(size: int, limits: Limits, *, is_calm: bool, tape: Sequence[int]) -> None:
    """Let the numbers of a tape decide what happens, one thing after another, and then let the group end."""
    world = World(size, limits, is_calm=is_calm)
    for number in tape:
        moves = world.moves()
        moves[number % len(moves)](number // len(moves))
    world.finish()


STARTS, BARRIERS, HANGS, SETTLES = (30.0, 300.0), (5.0, 300.0), (None, 7.0, 60.0), (0.0, 0.1)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 4),
    st.builds(
        Limits,
        start_s=st.sampled_from(STARTS),
        barrier_s=st.sampled_from(BARRIERS),
        hang_s=st.sampled_from(HANGS),
        settle_s=st.sampled_from(SETTLES),
    ),
    st.booleans(),
    st.lists(st.integers(0, 99999), max_size=100),
)
def test_whatever_happens_in_whatever_order_a_group_keeps_its_promises_and_ends(size, limits, is_calm, tape):
    run_world(size, limits, is_calm=is_calm, tape=tape)


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_long_courses_of_events_end_well_too(first):
    for seed in range(first, first + 500):
        rng = random.Random(seed)
        limits = Limits(
            start_s=rng.choice(STARTS),
            barrier_s=rng.choice(BARRIERS),
            hang_s=rng.choice(HANGS),
            settle_s=rng.choice(SETTLES),
        )
        tape = [rng.randrange(100_000) for _ in range(200)]
        try:
            run_world(rng.randint(1, 4), limits, is_calm=seed % 2 == 0, tape=tape)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
