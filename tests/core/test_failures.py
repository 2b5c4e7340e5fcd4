"""Kinds of failures: which exit is which, what is started again, and for how long a trial may run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import World, cpus, opened, running, tid

from sweep.core.failures import (
    CLASSES,
    RETRIED,
    after_exit,
    class_of,
    wants_save,
    was_put_off,
)
from sweep.core.messages import Ask, Exit, Exited, ExitKind, Kill, NodesChanged, PauseTrial, PlanChanged, ResizeTrial
from sweep.core.plan import Plan
from sweep.core.resources import Bundle, Device, Node, Resources
from sweep.core.trial import Cause, CheckpointRef, Status, Trial, evolve, revived

PENDING, STARTING, RUNNING, STOPPING, PAUSED, TERMINATED, ERROR = Status


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (Exit(ExitKind.FINISHED), ""),
        (Exit(ExitKind.FAILED, "ValueError: no", class_name="ValueError"), "user"),
        (Exit(ExitKind.FAILED, "MemoryError", class_name="MemoryError"), "out_of_memory"),
        (Exit(ExitKind.FAILED, "torch.OutOfMemoryError: x", class_name="OutOfMemoryError"), "out_of_memory"),
        (Exit(ExitKind.FAILED, "x", class_name="torch.cuda.OutOfMemoryError"), "out_of_memory"),
        (Exit(ExitKind.FAILED, "RuntimeError: CUDA out of memory. Tried", class_name="RuntimeError"), "out_of_memory"),
        (
            Exit(ExitKind.FAILED, "XlaRuntimeError: RESOURCE_EXHAUSTED: 2G", class_name="XlaRuntimeError"),
            "out_of_memory",
        ),
        (Exit(ExitKind.OUT_OF_MEMORY), "out_of_memory"),
        (Exit(ExitKind.KILLED), "killed"),
        (Exit(ExitKind.STOPPED), "killed"),  # by itself: nobody had asked
        (Exit(ExitKind.TIMEOUT), "timeout"),
        (Exit(ExitKind.HUNG), "hung"),
        (Exit(ExitKind.LOST), "lost"),
        (Exit(ExitKind.NODE_LOST), "node_lost"),
        (Exit(ExitKind.NEEDS_MORE, needs=Resources()), ""),
    ],
)
def test_every_exit_has_its_class(ended, expected):
    assert class_of(ended, has_begun=True) == expected
    assert expected in ("", *CLASSES)


NEVER_TO_START = {ExitKind.FINISHED, ExitKind.NEEDS_MORE, ExitKind.LOST, ExitKind.NODE_LOST}


@pytest.mark.parametrize("kind", sorted(set(ExitKind) - NEVER_TO_START))
def test_what_ends_before_its_code_began_failed_to_start(kind):
    assert class_of(Exit(kind, "MemoryError", class_name="MemoryError"), has_begun=False) == "start"
    assert class_of(Exit(ExitKind.LOST), has_begun=False) == "lost"
    assert class_of(Exit(ExitKind.NODE_LOST), has_begun=False) == "node_lost"


EXITS = {
    "user": ExitKind.FAILED,
    "killed": ExitKind.KILLED,
    "hung": ExitKind.HUNG,
    "out_of_memory": ExitKind.OUT_OF_MEMORY,
    "timeout": ExitKind.TIMEOUT,
    "lost": ExitKind.LOST,
    "node_lost": ExitKind.NODE_LOST,
}


@pytest.mark.parametrize("failure", EXITS)
@pytest.mark.parametrize("is_named", [False, True])
def test_only_what_retry_on_names_is_started_again(failure, is_named):
    others = tuple(name for name in CLASSES if name != failure)
    world = running(max_failures=5, retry_on=(failure,) if is_named else others)
    said = world.ended(0, EXITS[failure], "why")
    assert said == (["tell recover 0", "start 0.2"] if is_named else ["tell error 0"])
    assert world[0].failure == ("" if is_named else failure)  # it runs again, and has not failed so far
    counts = {"lost": (0, 1, 0), "node_lost": (0, 0, 1)}.get(failure, (1, 0, 0))
    assert (world[0].failures, world[0].losses, world[0].node_losses) == counts


def test_the_default_starts_again_what_always_was_and_neither_timeouts_nor_nan():
    assert set(CLASSES) - set(RETRIED) == {"timeout", "nan"}


def test_the_class_stands_while_a_trial_waits_for_its_next_try():
    world = running(num_cpus=1, max_failures=1)
    assert world.exited(0, ExitKind.KILLED, "killed by SIGSEGV") == ["tell recover 0"]
    assert (world[0].status, world[0].failure) == (PENDING, "killed")  # until it is released
    assert world.released(0) == ["start 0.2"]
    assert world[0].failure == ""


def test_a_request_that_never_fits_failed_to_start():
    world = opened()
    assert world.suggest(0, 99) == ["tell error 0"]
    assert (world[0].status, world[0].failure) == (ERROR, "start")


def test_a_metric_that_is_no_number_is_the_users_failure_and_final():
    world = running(metric="m", max_failures=9)
    assert world.report(0, m="high") == ["tell result 0", "stop 0.1#1"]
    assert world.exited(0) == ["tell error 0"]
    assert (world[0].failure, world[0].failures) == ("user", 1)


# --- NaN -----------------------------------------------------------------------------------------------------------


def test_nan_is_recorded_and_judged_by_default():
    world = running(metric="m")
    assert world.report(0, m=float("nan")) == ["tell result 0", "continue 0.1#1"]
    assert world[0].failure == ""


@pytest.mark.parametrize("exit_kind", [ExitKind.STOPPED, ExitKind.FINISHED, ExitKind.KILLED, ExitKind.FAILED])
def test_nan_ends_a_trial_where_an_error_is_wanted_however_it_ends_then(exit_kind):
    world = running(metric="m", nan="error", max_failures=9)
    assert world.report(0, m=0.5) == ["tell result 0", "continue 0.1#1"]
    assert world.report(0, m=float("nan")) == ["tell result 0", "stop 0.1#2"]
    assert world[0].status is STOPPING
    assert world.exited(0, exit_kind) == ["tell error 0"]
    assert (world[0].status, world[0].failure, world[0].failures) == (ERROR, "nan", 1)
    assert world[0].reason == "the metric 'm' is NaN at iteration 2, and nan='error' is set"
    assert world.scheduler.heard == [("add", 0), ("result", 0, 1), ("end", 0, "ERROR")]
    assert world[0].best_result["m"] == 0.5


def test_infinite_values_are_numbers():
    world = running(metric="m", nan="error")
    assert world.report(0, m=float("inf")) == ["tell result 0", "continue 0.1#1"]


def test_nan_is_tried_again_only_where_it_is_named():
    world = running(metric="m", nan="error", max_failures=1, retry_on=("nan",))
    world.report(0, m=float("nan"))
    assert world.exited(0) == ["tell recover 0", "start 0.2"]
    world.started(0)
    assert world.report(0, m=float("nan")) == ["stop 0.2#1"]  # a repeat is not judged again, but it is NaN
    assert world.exited(0) == ["tell error 0"]


# --- how long a trial may run --------------------------------------------------------------------------------------


def limited(**plan):
    world = opened(trial_timeout_s=60, stop_grace_s=5, **plan)
    world.suggest(0)
    return world


def test_a_trial_that_has_run_for_long_enough_is_asked_to_stop_and_then_killed():
    world = limited()
    world.now = 100
    world.started(0)
    assert world.sweep.deadline == 160
    assert world.wait(59.9) == []
    assert world.wait(0.1) == ["stop 0.1"]
    assert (world[0].status, world[0].reason) == (STOPPING, "has run for trial_timeout_s=60 s")
    assert world.sweep.deadline == 165
    assert world.wait(5) == ["kill 0.1"]
    (kill,) = world.commands
    assert kill == Kill(
        tid(0), 1, "has run for trial_timeout_s=60 s and did not stop when it was asked to", ExitKind.TIMEOUT
    )
    assert world.exited(0, kill.kind, kill.reason) == ["tell error 0"]
    assert (world[0].status, world[0].failure, world[0].failures) == (ERROR, "timeout", 1)
    assert world[0].reason == kill.reason


@pytest.mark.parametrize("exit_kind", [ExitKind.STOPPED, ExitKind.FINISHED, ExitKind.FAILED, ExitKind.KILLED])
def test_a_trial_that_ends_when_it_is_asked_to_has_not_failed(exit_kind):
    world = limited()
    world.started(0)
    world.report(0)
    world.wait(60)
    world.report(0)
    assert world.exited(0, exit_kind) == ["tell complete 0"]
    assert (world[0].status, world[0].failure, world[0].reason) == (TERMINATED, "", "has run for trial_timeout_s=60 s")


def test_a_trial_that_turns_out_to_hang_when_its_time_is_up_has_failed():
    world = limited()
    world.started(0)
    world.wait(60)
    assert world.exited(0, ExitKind.HUNG, "no report") == ["tell error 0"]
    assert (world[0].failure, world[0].reason) == (
        "timeout",
        "has run for trial_timeout_s=60 s and did not stop when it was asked to",
    )


def test_the_grace_is_no_longer_than_the_limit():
    world = running(trial_timeout_s=1, stop_grace_s=5)
    assert world.wait(1) == ["stop 0.1"]
    assert world.wait(1) == ["kill 0.1"]


def test_a_class_trainable_saves_when_its_time_is_up_and_gets_the_time_for_it():
    world = limited(can_save_on_demand=True, checkpoint_at_end=True)
    world.started(0)
    assert world.wait(60) == ["stop 0.1 saving"]
    assert world.sweep.deadline == 120


def test_only_running_time_counts_summed_over_attempts():
    world = limited(max_failures=9)
    world.wait(1000)  # STARTING: its process is being made
    world.started(0)
    world.wait(40)
    world.exited(0, ExitKind.FAILED)  # and is started again
    assert world[0].ran_s == 40
    world.wait(1000)
    world.started(0)
    assert world.wait(19.5) == []
    assert world.wait(0.5) == ["stop 0.2"]


def test_a_paused_trial_spends_nothing_and_its_end_is_not_confused_with_its_limit():
    world = limited(can_save_on_demand=True, stop={}, max_failures=9)
    world.scheduler.when_idle = []
    world.started(0)
    world.wait(59)
    assert world.report(0, decisions=[PauseTrial(tid(0))]) == ["tell result 0", "stop 0.1#1 saving"]
    assert world.wait(1) == []  # its time is up while it saves: it ends anyway
    world.saved(0, "0/c1")
    assert world.exited(0) == ["tell pause 0"]
    assert (world[0].status, world[0].ran_s, world[0].running_since) == (PAUSED, 60, None)


def test_a_driver_that_was_killed_leaves_what_a_trial_had_run():
    before = limited()
    before.started(0)
    before.wait(20)
    before.report(0)
    world = World(trial_timeout_s=60, trials=before.sweep.trials.values())
    world.now = 25
    world.open()
    assert world[0].ran_s == 25
    world.now = 30
    world.started(0)
    assert world.sweep.deadline == 65


def test_an_interrupt_saves_a_running_trial_and_its_limit_does_not_kill_it():
    world = limited(can_save_on_demand=True, interrupt_grace_s=30)
    world.started(0)
    world.wait(59)
    world.ask(Ask.INTERRUPT)
    assert world.wait(1) == ["stop 0.1"]


def test_a_timeout_that_is_tried_again_has_all_its_time_again():
    world = limited(max_failures=1, retry_on=("timeout",))
    world.started(0)
    world.wait(60)
    world.wait(5)
    assert world.exited(0, ExitKind.TIMEOUT) == ["tell recover 0", "start 0.2"]
    assert world[0].ran_s == 0
    world.started(0)
    assert world.wait(59) == []
    assert world.wait(1) == ["stop 0.2"]
    world.wait(5)
    assert world.exited(0, ExitKind.TIMEOUT) == ["tell error 0"]


def test_another_limit_counts_from_the_next_start_on():
    world = limited()
    world.started(0)
    world.tell(PlanChanged(world.plan))  # the same sweep goes on
    assert world.wait(60) == ["stop 0.1"]


# --- out of memory -------------------------------------------------------------------------------------------------


def test_out_of_memory_can_be_final():
    world = running(max_failures=9, out_of_memory="fail")
    assert world.exited(0, ExitKind.OUT_OF_MEMORY, "the kernel killed it") == ["tell error 0"]
    assert (world[0].failure, world[0].reason) == ("out_of_memory", "the kernel killed it")


def test_out_of_memory_counts_like_any_failure_by_default():
    world = running(max_failures=1)
    assert world.exited(0, ExitKind.OUT_OF_MEMORY) == ["tell recover 0", "start 0.2"]
    assert not world[0].resources.alone


def test_a_trial_that_ran_out_of_memory_is_tried_once_more_with_nothing_beside_it():
    world = opened(num_trials=4, ask_ahead=4, num_cpus=3, out_of_memory="retry_alone")
    for number in range(4):
        world.suggest(number)
    for number in range(3):
        world.started(number)
    assert world.exited(0, ExitKind.OUT_OF_MEMORY, "killed") == ["tell recover 0"]
    assert world[0].reason == "starts again, alone, after: killed"
    assert world[0].resources.alone
    assert world.released(0) == ["start 3.1"]  # who waited longer, and may run beside others
    world.started(3)
    assert world[0].reason == "waits until nothing else runs on its node, to run alone after it ran out of memory"
    world.ended(1, ExitKind.FINISHED)
    world.ended(2, ExitKind.FINISHED)
    world.exited(3, ExitKind.FINISHED)
    assert world.released(3) == ["start 0.2"]
    world.started(0)
    assert world.exited(0, ExitKind.OUT_OF_MEMORY, "again") == ["tell error 0"]
    assert (world[0].failures, world[0].reason) == (2, "again")


def test_nobody_starts_beside_a_trial_that_runs_alone():
    alone = Resources((Bundle(cpu=1),), alone=True)
    world = opened(num_trials=3, ask_ahead=3, num_cpus=8)
    assert world.suggest(0, alone) == ["start 0.1"]
    assert world.suggest(1) == []
    assert world[1].reason == "waits for 00000, which runs alone after it ran out of memory"
    world.started(0)
    world.exited(0, ExitKind.FINISHED)
    assert world.released(0) == ["start 1.1"]


def test_alone_means_alone_on_its_nodes():
    nodes = tuple(Node(name, cpus=2, devices=(Device("g"),)) for name in "ab")
    alone = Resources((Bundle(cpu=1, gpu=1),), alone=True)
    world = opened(num_trials=4, ask_ahead=4, nodes=nodes)
    assert world.suggest(0, 1) == ["start 0.1"]
    assert world.suggest(1, alone) == ["start 1.1"]
    assert {world[0].placement.bundles[0].node, world[1].placement.bundles[0].node} == {"a", "b"}
    assert world.suggest(2, 2) == []  # one CPU is free on each node, and b is another's
    assert world.suggest(3, 1) == ["start 3.1"]
    assert world[3].placement.bundles[0].node == world[0].placement.bundles[0].node


def test_a_new_inventory_keeps_who_runs_alone():
    world = opened(num_trials=2, ask_ahead=2)
    world.suggest(0, Resources((Bundle(cpu=1),), alone=True))
    world.tell(NodesChanged((Node("n", cpus=16),)))
    assert world.suggest(1) == []
    world.tell(Exited(tid(0), 1, Exit(ExitKind.FAILED)))
    assert world.released(0) == ["start 1.1"]


def test_a_request_to_be_alone_is_recorded_and_told_apart():
    alone = Resources((Bundle(cpu=1),), alone=True)
    assert Resources.from_json(alone.to_json()) == alone
    assert alone != cpus(1)
    assert hash(alone) != hash(cpus(1))


LEAVING = Trial(tid(0), {}, cpus(1), Status.STOPPING, reason="why it stops")


def test_what_finished_by_itself_keeps_only_the_reason_of_an_end():
    ended = Exit(ExitKind.FINISHED)
    told = {}
    for to in (Status.TERMINATED, Status.PAUSED, Status.PENDING):
        status, trial = after_exit(evolve(LEAVING, next_status=to), ended, Plan(), 0.0)
        told[to] = (status, trial.reason)
    assert told == {
        Status.TERMINATED: (Status.TERMINATED, "why it stops"),
        Status.PAUSED: (Status.TERMINATED, ""),
        Status.PENDING: (Status.TERMINATED, ""),
    }


AT_WORK = Trial(tid(0), {}, cpus(1), Status.RUNNING, attempt=1)
REF = CheckpointRef("t/checkpoint_000003", 3, 3, 1.5)


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [(REF, "starts again from t/checkpoint_000003: it is cut"), (None, "starts again from the beginning: it is cut")],
)
def test_a_trial_whose_checkpoint_is_damaged_starts_from_another_and_has_not_failed(checkpoint, expected):
    trial = evolve(AT_WORK, checkpoint=checkpoint, started_from=CheckpointRef("t/checkpoint_000004", 4))
    status, after = after_exit(trial, Exit(ExitKind.DAMAGED, "it is cut"), Plan(), 0.0)
    assert (status, after.reason, after.failures, after.losses) == (Status.PENDING, expected, 0, 0)
    assert after.cause is Cause.DAMAGED


@pytest.mark.parametrize(
    ("kind", "started_from"), [(ExitKind.DAMAGED, None), (ExitKind.FAILED, REF), (ExitKind.FAILED, None)]
)
def test_what_fails_otherwise_has_failed_whatever_it_was_started_from(kind, started_from):
    trial = evolve(AT_WORK, started_from=started_from)
    status, after = after_exit(trial, Exit(kind, "raised"), Plan(max_failures=1), 0.0)
    assert (status, after.failures + after.losses) == (Status.PENDING, 1)
    assert after.cause is not Cause.DAMAGED


def test_how_often_a_trial_was_lost_is_said_from_the_second_time_on():
    told = []
    for losses in range(3):
        plan = Plan(max_losses=losses)
        status, after = after_exit(
            evolve(AT_WORK, losses=losses), Exit(ExitKind.LOST, "the supervisor died"), plan, 0.0
        )
        told.append((status, after.reason))
    assert told == [
        (Status.ERROR, "lost: the supervisor died"),
        (Status.ERROR, "lost 2 times: the supervisor died"),
        (Status.ERROR, "lost 3 times: the supervisor died"),
    ]


LOST_TOO_OFTEN = {"status": Status.ERROR, "failure": "lost", "losses": 4, "reason": "lost 4 times: it was killed"}


@pytest.mark.parametrize(
    ("changes", "plan", "expected"),
    [
        ({}, Plan(), True),
        ({"failure": "start"}, Plan(), True),
        ({"failure": "node_lost", "losses": 0, "node_losses": 11}, Plan(), True),
        ({"failure": "start", "losses": 0}, Plan(), False),  # a request that never fits
        ({"failure": "killed"}, Plan(), False),  # by its own fault, after losses
        ({"failure": "user"}, Plan(), False),
        ({"status": Status.TERMINATED, "failure": ""}, Plan(), False),
        ({}, Plan(retry_on=("killed",)), False),
        ({}, Plan(retry_unfinished=False), False),
        ({"failure": "killed"}, Plan(retry_errored="continue"), True),
    ],
)
def test_a_resume_starts_again_what_was_lost_too_often_and_nothing_that_has_failed(changes, plan, expected):
    trial = evolve(AT_WORK, **{**LOST_TOO_OFTEN, "placement": None, "next_status": None, **changes})
    world = World(
        trials=[trial], **{name: getattr(plan, name) for name in ("retry_on", "retry_unfinished", "retry_errored")}
    )
    assert ("start 0.2" in world.open()) is expected
    assert world[0].losses == (0 if expected else trial.losses)


def test_nodes_that_are_gone_count_by_themselves_to_a_limit_of_their_own():
    trial = evolve(AT_WORK, losses=3, failures=1)
    told = []
    for _ in range(12):
        status, trial = after_exit(trial, Exit(ExitKind.NODE_LOST, "node 'b' left"), Plan(), 0.0)
        told.append((status, trial.reason))
    assert told[:10] == [(Status.PENDING, "starts again after: node 'b' left")] * 10
    assert told[10] == (Status.ERROR, "lost its node 11 times: node 'b' left")
    assert (trial.losses, trial.failures, trial.failure) == (3, 1, "node_lost")
    assert after_exit(trial, Exit(ExitKind.NODE_LOST), Plan(max_node_losses=-1), 0.0)[0] is Status.PENDING
    once = after_exit(AT_WORK, Exit(ExitKind.NODE_LOST), Plan(max_node_losses=0), 0.0)[1]
    assert once.reason == "lost its node: node lost"


def test_a_judged_report_resets_them_and_so_does_a_retry():
    world = running(num_trials=1)
    world.ended(0, ExitKind.NODE_LOST)
    world.started(0)
    assert world[0].node_losses == 1
    world.report(0)
    assert world[0].node_losses == 0
    world.ended(0, ExitKind.NODE_LOST)
    assert revived(world[0], from_scratch=False).node_losses == 0


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
    trial = evolve(LEAVING, next_status=to, pending=pending)
    for at_end in (False, True):
        plan = Plan(can_save_on_demand=True, checkpoint_at_end=at_end)
        assert wants_save(trial, plan) is (at_end if expected is None else expected)
        assert not wants_save(trial, replace(plan, can_save_on_demand=False))
        assert not wants_save(evolve(trial, is_saved=True), plan)


def test_what_the_budget_put_off_is_begun_when_there_is_time():
    trial = Trial(tid(0), {}, cpus(1), Status.TERMINATED, reason="the time budget of 10 s is spent", cause=Cause.BUDGET)
    assert [was_put_off(trial, Plan(time_budget_s=20.0), now) for now in (19.0, 20.0, 21.0)] == [True, False, False]
    assert was_put_off(trial, Plan(), 1e9)
    assert not was_put_off(evolve(trial, attempt=1), Plan(), 0.0)
    assert not was_put_off(evolve(trial, reason="stopped"), Plan(), 0.0)
    assert not was_put_off(evolve(trial, status=Status.ERROR), Plan(), 0.0)
