"""The state machine: tables of events and the whole list of commands they cause, a named test for every rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import Scripted, World, cpus, opened, running, tid

from searchers.base import EXHAUSTED, NOT_NOW
from sweep.core.messages import (
    Ask,
    CloneTrial,
    Discard,
    Exit,
    Exited,
    ExitKind,
    Failed,
    Hook,
    NodesChanged,
    Notify,
    PauseTrial,
    PlanChanged,
    Released,
    Reported,
    ResizeTrial,
    ResumeTrial,
    Saved,
    SaveTrial,
    Start,
    Started,
    StopTrial,
    Suggested,
    Tick,
    Verdict,
    Waiting,
)
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.core.results import TrialResult
from sweep.core.retention import Kept
from sweep.core.trial import Cause, CheckpointRef, Status, Trial, evolve
from sweep.errors import MetricError
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.base import Scheduler

PENDING, STARTING, RUNNING, STOPPING, PAUSED, TERMINATED, ERROR = Status

# --- one whole life ------------------------------------------------------------------------------------------------


def test_one_life_from_the_question_to_the_release():
    world = World(num_trials=1)
    table = [
        (PlanChanged(world.plan), []),
        (NodesChanged(world.nodes), ["suggest 0"]),
        (Suggested(tid(0), {"x": 1}, cpus(1)), ["start 0.1"]),
        (Waiting(tid(0), "importing torch"), []),
        (Started(tid(0), 1), ["tell start 0"]),
        (Reported(tid(0), 1, 1, {"m": 0.5}), ["tell result 0", "continue 0.1#1"]),
        (Reported(tid(0), 1, 2, {"m": 0.7}, "0/c2"), ["tell result 0", "tell save 0", "continue 0.1#2"]),
        (Exited(tid(0), 1, Exit(ExitKind.FINISHED)), ["tell complete 0"]),
        (Released(tid(0), 1), []),
    ]
    for event, expected in table:
        assert not world.sweep.done
        assert world.tell(event) == expected, event
    assert world.sweep.done
    trial = world[0]
    assert (trial.status, trial.count, trial.judged_to, trial.placement) == (TERMINATED, 2, 2, None)
    assert trial.best_result == trial.last_result
    assert trial.last_result["m"] == 0.7
    assert trial.checkpoint == CheckpointRef("0/c2", 2, 2, 0.0)
    assert world.scheduler.heard == [("add", 0), ("result", 0, 1), ("result", 0, 2), ("end", 0, "TERMINATED")]


def test_the_start_carries_everything_an_engine_needs():
    world = opened(nodes=(Node("n", 4, devices=(Device("g0"),)),))
    world.suggest(0, Resources((Bundle(cpu=2, gpu=1),)), lr=0.1)
    (start,) = world.commands
    assert isinstance(start, Start)
    trial = start.trial
    assert (trial.id, trial.attempt, trial.config, trial.status) == (tid(0), 1, {"lr": 0.1}, STARTING)
    assert trial.placement == Placement((BundlePlacement("n", (("g0", 1.0),)),))


def test_what_an_engine_waits_for_is_the_reason_that_a_starting_or_running_trial_shows():
    world = opened()
    world.suggest(0)
    world.tell(Waiting(tid(0), "device memory held by pid 7"))
    assert world[0].reason == "device memory held by pid 7"
    world.started(0)
    assert world[0].reason == ""
    world.tell(Waiting(tid(0), "rank 1 waits for rank 0"))  # a group may wait while it runs
    assert world[0].reason == "rank 1 waits for rank 0"
    world.tell(Waiting(tid(0), ""))
    assert world[0].reason == ""


def test_why_a_trial_that_has_ended_still_holds_its_devices_is_said_to_the_one_that_waits_for_them():
    world = opened(num_trials=2, ask_ahead=2, nodes=(Node(cpus=2, devices=(Device("GPU-a"),)),))
    world.suggest(0, Resources((Bundle(gpu=1),)))
    world.started(0)
    world.exited(0, ExitKind.FINISHED)
    world.suggest(1, Resources((Bundle(gpu=1),)))
    assert world[1].reason == "waits for gpu=1; 0 of 1 free, the rest held by 00000"
    world.tell(Waiting(tid(0), "GPU-a still holds 3GiB"))
    assert world[1].reason == "waits for gpu=1; 0 of 1 free, the rest held by 00000 (GPU-a still holds 3GiB)"
    world.released(0)
    assert world[1].status is Status.STARTING


def test_what_a_trial_waits_for_is_said_anew_when_others_hold_it():
    world = opened(num_trials=4, ask_ahead=4, num_cpus=3)
    for number, amount in enumerate((1, 2, 3, 1)):
        world.suggest(number, cpus(amount))
    for number in (0, 1):
        world.started(number)
    assert world[2].reason == "waits for cpu=3; 0 of 3 free, the rest held by 00000, 00001"
    world.ended(0, ExitKind.FINISHED)
    assert world[2].reason == "waits for cpu=3; 0 of 3 free, the rest held by 00001, 00003"
    world.ended(1, ExitKind.FINISHED)
    assert world[2].reason == "waits for cpu=3; 2 of 3 free, the rest held by 00003"


def test_what_changed_is_handed_over_once_and_holds_the_filled_in_results():
    world = running()
    world.sweep.take_changes()
    world.report(0, "0/c1", m=0.5, time_this_iter_s=2.0)
    changes = world.sweep.take_changes()
    assert list(changes.trials) == [tid(0)]
    assert changes.results.pop(world.sweep.seq) == {
        "m": 0.5,
        "time_this_iter_s": 2.0,
        "training_iteration": 1,
        "time_total_s": 2.0,
        "time_since_restore": 2.0,
        "iterations_since_restore": 1,
        "trial_id": tid(0),
        "done": False,
    }
    again = world.sweep.take_changes()
    assert not again.trials
    assert not again.results


def test_handling_is_deterministic():
    def run():
        world = World(num_trials=3, ask_ahead=3)
        lines = [world.open()]
        for number in range(3):
            lines.append(world.suggest(number, 3))
        lines += [world.started(0), world.report(0, m=3.0), world.exited(0, ExitKind.KILLED), world.released(0)]
        return lines, dict(world.sweep.trials)

    assert run() == run()


# --- rule 1: deciding is pure --------------------------------------------------------------------------------------


def test_rule_1_nothing_is_opened_before_the_first_plan():
    world = World()
    assert world.tell(NodesChanged(world.nodes)) == []
    assert not world.sweep.done
    assert world.tell(PlanChanged(world.plan)) == ["suggest 0"]


def test_rule_1_a_preview_changes_nothing_and_is_what_the_report_becomes():
    world = running()
    event = Reported(tid(0), 1, 1, {"m": 0.5, "time_this_iter_s": 1.5})
    before = world[0]
    preview = world.sweep.preview(event)
    assert world[0] is before
    world.tell(event)
    assert preview == world[0].last_result


def test_rule_1_reports_that_nobody_will_judge_have_no_preview():
    world = running()
    assert world.sweep.preview(Reported(tid(0), 7, 1, {})) is None
    assert world.sweep.preview(Reported("00000_00009", 1, 1, {})) is None
    world.ask(Ask.CANCEL, 0)
    assert world.sweep.preview(Reported(tid(0), 1, 1, {})) is None


# --- rule 2: what user code answered rides in the event ------------------------------------------------------------


def test_rule_2_a_verdict_of_the_stop_function_ends_the_trial_as_answer_to_its_report():
    world = running()
    assert world.report(0, verdict=Verdict.STOP) == ["tell result 0", "stop 0.1#1"]
    assert (world[0].status, world[0].next_status, world[0].reason) == (STOPPING, TERMINATED, "by the stop rule")
    assert ("result", 0, 1) not in world.scheduler.heard  # stop rules first: the scheduler is not asked any more


def test_rule_2_a_verdict_on_the_sweep_stops_everything():
    world = opened(num_trials=4, ask_ahead=4, num_cpus=2)
    for number in range(4):
        world.suggest(number)
    lines = world.report(0, verdict=Verdict.STOP_ALL)
    assert lines == ["tell result 0", "stop 0.1#1", "stop 1.1", "tell complete 2", "tell complete 3"]
    assert world.sweep.ending is Ask.CANCEL


def test_rule_2_a_result_that_says_done_ends_its_trial():
    world = running()
    assert world.report(0, m=1.0, done=True) == ["tell result 0", "stop 0.1#1"]
    assert world[0].reason == "reported done"


def test_rule_2_a_criterion_is_reached_from_below_also_for_a_loss():
    world = running(stop={"loss": 3.0, "training_iteration": 10}, metric="loss", mode="min")
    assert world.report(0, loss=2.9) == ["tell result 0", "continue 0.1#1"]
    assert world.report(0, loss=float("nan")) == ["tell result 0", "continue 0.1#2"]
    assert world.report(0, loss=3.0) == ["tell result 0", "stop 0.1#3"]
    assert world[0].reason == "reached loss=3 (stop at 3)"


def test_rule_2_a_criterion_on_a_value_that_is_no_number_does_not_take_the_sweep_down():
    world = running(stop={"note": 3.0})
    assert world.report(0, m=1.0, note="fine") == ["tell result 0", "continue 0.1#1"]


@pytest.mark.parametrize("answer", ["CONTINUE", [None], [("stop", tid(0))], 7])
def test_rule_2_a_scheduler_that_answers_no_decisions_ends_the_sweep_and_is_named(answer):
    class Odd(Scripted):
        def on_result(self, trial, result, trials):
            return answer

    world = running(scheduler=Odd())
    assert "fail SweepError" in world.report(0)
    assert "Odd" in str(world.failure)


@pytest.mark.parametrize("choice", ["nobody", 0])
def test_rule_2_a_scheduler_that_chooses_what_it_was_not_offered_ends_the_sweep_and_is_named(choice):
    class Odd(Scripted):
        def choose(self, startable):
            if startable[0].number == 0:
                return startable[0]
            return self.first if choice == 0 else Trial("00000_00077", {}, cpus(1))

    world = running(scheduler=Odd(), num_trials=2, ask_ahead=2)
    world.scheduler.first = world[0]
    assert "fail SweepError" in world.suggest(1)
    assert "Odd" in str(world.failure)


@pytest.mark.parametrize("hook", ["on_result", "on_trial_end", "on_refused", "choose", "on_idle"])
def test_rule_2_a_scheduler_that_raises_ends_the_sweep_with_its_error_as_the_cause(hook):
    class Broken(Scripted):
        pass

    def raise_(self, *args):
        raise ZeroDivisionError("a bad day")

    setattr(Broken, hook, raise_)
    world = World(scheduler=Broken())
    lines = world.open() + world.suggest(0)
    if hook != "choose":
        lines += world.started(0)
        world.scheduler.next = [PauseTrial(tid(0))]
        lines += world.report(0) if hook != "on_idle" else world.report(0, "0/c1")
        lines += world.exited(0) if hook == "on_idle" else world.exited(0, ExitKind.FINISHED)
        lines += world.released(0) if hook == "on_idle" else []
    assert lines.count("fail SweepError") == 1
    assert world.sweep.done
    assert isinstance(world.failure.__cause__, ZeroDivisionError)
    assert "Broken" in str(world.failure)


# --- rule 3: lock-step ---------------------------------------------------------------------------------------------


def test_rule_3_every_report_of_the_running_attempt_gets_exactly_one_answer():
    world = running(can_save_on_demand=True, checkpoint_frequency=2)
    assert world.report(0) == ["tell result 0", "continue 0.1#1"]
    assert world.report(0) == ["tell result 0", "save 0.1#2"]
    assert world.saved(0, "0/c2") == ["tell save 0"]
    assert world.report(0) == ["tell result 0", "continue 0.1#3"]
    assert world.report(0, "0/c4") == ["tell result 0", "tell save 0", "continue 0.1#4"]


def test_rule_3_a_report_of_a_stopping_trial_is_recorded_but_not_judged_and_is_told_to_stop_again():
    world = running(2)
    assert world.report(1, decisions=[StopTrial(tid(0))]) == ["tell result 1", "stop 0.1", "continue 1.1#1"]
    world.sweep.take_changes()
    assert world.report(0, m=99.0) == ["stop 0.1#1"]
    assert list(world.sweep.take_changes().results) == [world.sweep.seq]
    assert world[0].last_result["m"] == 99.0
    assert world[0].best_result is None
    assert ("result", 0, 1) not in world.scheduler.heard


def test_rule_3_the_second_stop_still_asks_for_the_save_that_the_first_one_asked_for():
    world = running(2, can_save_on_demand=True, checkpoint_at_end=True)
    assert world.report(1, decisions=[StopTrial(tid(0))]) == ["tell result 1", "stop 0.1 saving", "continue 1.1#1"]
    assert world.report(0) == ["stop 0.1#1 saving"]


def test_rule_3_the_first_report_makes_a_starting_trial_run():
    world = opened()
    world.suggest(0)
    assert world.report(0) == ["tell result 0", "continue 0.1#1"]
    assert world[0].status is RUNNING


# --- rule 4: an exit is a fact, a release another -------------------------------------------------------------------


def test_rule_4_what_an_ended_trial_held_is_granted_only_after_its_release():
    world = running(num_cpus=1, num_trials=2, ask_ahead=2)
    assert world.suggest(1) == []
    assert world.exited(0, ExitKind.FINISHED) == ["tell complete 0"]
    assert world[0].placement is not None
    assert world[1].status is PENDING
    assert world.released(0) == ["start 1.1"]
    assert world[0].placement is None


def test_rule_4_a_trial_that_starts_again_takes_a_second_placement_while_the_first_is_still_unclean():
    world = running(num_cpus=2, max_failures=1)
    assert world.exited(0, ExitKind.FAILED) == ["tell recover 0", "start 0.2"]
    assert sorted(world.packer.holders) == [(tid(0), 1), (tid(0), 2)]
    world.tell(Released(tid(0), 1))
    assert world.packer.holders == [(tid(0), 2)]
    assert world[0].placement is not None


# --- rule 5: attempts ----------------------------------------------------------------------------------------------


def test_rule_5_a_late_report_of_an_older_attempt_is_dropped():
    world = running(max_failures=1)
    world.exited(0, ExitKind.FAILED)
    before = world[0]
    assert before.attempt == 2
    world.sweep.take_changes()
    for late in (
        Started(tid(0), 1),
        Reported(tid(0), 1, 1, {"m": 5.0}, "0/late"),
        Saved(tid(0), 1, 1, "0/late"),
        Exited(tid(0), 1, Exit(ExitKind.FAILED)),
    ):
        assert world.tell(late) == []
        assert world[0] is before
    assert not world.sweep.take_changes().results


def test_rule_5_events_of_trials_that_nobody_knows_are_dropped():
    world = opened()
    stranger = tid(9)
    for event in (
        Suggested(stranger, {"x": 1}, cpus(1)),
        Started(stranger, 1),
        Reported(stranger, 1, 1, {"m": 5.0}),
        Saved(stranger, 1, 1, "9/c1"),
        Exited(stranger, 1, Exit(ExitKind.FINISHED)),
        Released(stranger, 1),
        Waiting(stranger, "why"),
    ):
        assert world.tell(event) == []
    assert not world.sweep.trials


def test_rule_5_a_second_exit_release_or_answer_changes_nothing():
    world = running(num_trials=2)
    world.ended(0, ExitKind.FINISHED)
    before = dict(world.sweep.trials)
    assert world.tell(Exited(tid(0), 1, Exit(ExitKind.FAILED))) == []
    assert world.tell(Released(tid(0), 1)) == []
    assert world.tell(Suggested(tid(0), {"x": 2}, cpus(1))) == []
    assert dict(world.sweep.trials) == before


def test_rule_5_a_release_of_an_older_attempt_frees_what_that_attempt_held():
    world = running(num_cpus=1, max_failures=1)
    assert world.exited(0, ExitKind.FAILED) == ["tell recover 0"]
    assert world.tell(Released(tid(0), 1)) == ["start 0.2"]


# --- rule 6: what a restart makes of the trials ---------------------------------------------------------------------

REF = CheckpointRef("0/c3", 3, 3, 1.5)


def loaded(number: int = 0, **changes) -> Trial:
    """A trial as it stands in the record."""
    place = Placement((BundlePlacement("n"),))
    values = {"status": RUNNING, "attempt": 1, "placement": place, "checkpoint": REF, "count": 5, "judged_to": 5}
    return Trial(tid(number), {"x": number}, cpus(1), **(values | changes))


@pytest.mark.parametrize("status", [STARTING, RUNNING])
def test_rule_6_held_trials_wait_again_with_one_more_loss(status):
    world = World(trials=[loaded(status=status, losses=1)])
    world.scheduler.hold = {tid(0)}
    assert world.tell(PlanChanged(world.plan)) == ["tell recover 0"]
    trial = world[0]
    assert (trial.status, trial.losses, trial.failures, trial.placement) == (PENDING, 2, 0, None)
    assert trial.reason == "starts again: the driver was restarted"
    world.scheduler.hold = set()
    assert world.tell(NodesChanged(world.nodes)) == ["start 0.2"]
    assert world[0].started_from == REF
    assert (world[0].count, world[0].judged_to) == (3, 5)


def test_rule_6_after_a_restart_what_had_begun_comes_before_what_had_not():
    new = [Trial(tid(number), {"x": number}, cpus(1)) for number in (0, 2)]
    world = World(trials=[new[0], loaded(1), new[1], loaded(3)], num_cpus=1, num_trials=4)
    world.tell(PlanChanged(world.plan))
    assert world.tell(NodesChanged(world.nodes)) == ["start 1.2"]
    world.exited(1, ExitKind.FINISHED)
    assert world.released(1)[0] == "start 3.2"
    world.exited(3, ExitKind.FINISHED)
    assert world.released(3)[0] == "start 0.1"


def test_rule_6_who_waits_comes_in_the_order_in_which_it_began_to_wait():
    new = [Trial(tid(number), {"x": number}, cpus(1), ticket=ticket) for number, ticket in ((0, 9), (1, 4), (2, 7))]
    world = World(trials=new, num_cpus=1, num_trials=3)
    assert list(world.sweep.trials) == [tid(0), tid(1), tid(2)]
    assert world.open()[0] == "start 1.1"
    world.exited(1, ExitKind.FINISHED)
    assert world.released(1)[0] == "start 2.1"


def test_of_each_request_the_oldest_that_has_run_and_the_oldest_that_has_not_are_offered():
    trials = [
        Trial(tid(number), {"x": number}, cpus(size), attempt=attempt, ticket=ticket)
        for number, size, attempt, ticket in ((0, 1, 1, 9), (1, 1, 0, 4), (2, 1, 0, 3), (3, 1, 2, 8), (4, 2, 0, 1))
    ]
    world = World(trials=trials, num_cpus=2, num_trials=5)
    offered = []
    world.scheduler.choose = lambda startable: offered.append([trial.number for trial in startable])
    world.open()
    assert offered[0] == [4, 2, 3]


def test_rule_6_who_was_making_room_comes_after_those_that_wait():
    leaving = loaded(0, status=STOPPING, next_status=PENDING, pending=ResizeTrial(tid(0), cpus(1)))
    new = Trial(tid(1), {"x": 1}, cpus(1))
    world = World(trials=[leaving, new, loaded(2)], num_cpus=1, num_trials=3)
    world.tell(PlanChanged(world.plan))
    assert world.tell(NodesChanged(world.nodes)) == ["start 2.2"]
    world.exited(2, ExitKind.FINISHED)
    assert world.released(2)[0] == "start 1.1"
    world.exited(1, ExitKind.FINISHED)
    assert world.released(1)[0] == "start 0.2"


def test_rule_6_who_was_interrupted_goes_on_before_those_that_waited():
    world = opened(num_cpus=1, num_trials=3, ask_ahead=3)
    for number in range(3):
        world.suggest(number)
    world.started(0)
    world.ask(Ask.INTERRUPT)
    world.report(0)
    world.ended(0)
    assert [(trial.status, trial.ticket) for trial in world.sweep.trials.values()] == [
        (PENDING, 0),
        (PENDING, 2),
        (PENDING, 3),
    ]


def test_rule_6_restarts_of_the_driver_are_losses_without_limit():
    world = World(trials=[loaded(losses=30)])
    world.tell(PlanChanged(world.plan))
    assert (world[0].status, world[0].losses) == (PENDING, 31)


def test_rule_6_a_stopping_trial_that_was_to_end_has_ended():
    world = World(trials=[loaded(status=STOPPING, next_status=TERMINATED, reason="stopped early")])
    assert world.tell(PlanChanged(world.plan)) == ["tell complete 0"]
    assert (world[0].status, world[0].reason, world[0].losses) == (TERMINATED, "stopped early", 0)


@pytest.mark.parametrize(("is_saved", "status"), [(True, PAUSED), (False, PENDING)])
def test_rule_6_a_stopping_trial_is_paused_only_if_its_save_was_committed(is_saved, status):
    world = World(trials=[loaded(status=STOPPING, next_status=PAUSED, is_saved=is_saved)])
    assert world.tell(PlanChanged(world.plan)) == ["tell pause 0" if is_saved else "tell recover 0"]
    assert world[0].status is status


def test_rule_6_a_clone_that_waited_for_the_exit_is_applied():
    source = CheckpointRef("1/c9", 9, 9, 4.0)
    clone = CloneTrial(tid(0), tid(1), {"x": "new"}, source)
    world = World(trials=[loaded(status=STOPPING, next_status=PENDING, pending=clone)])
    assert world.tell(PlanChanged(world.plan)) == ["tell recover 0"]
    trial = world[0]
    assert (trial.status, trial.config, trial.checkpoint) == (PENDING, {"x": "new"}, source)
    assert (trial.judged_to, trial.count, trial.pending) == (9, 9, None)


def test_rule_6_a_resize_that_waited_for_the_exit_is_applied():
    resize = ResizeTrial(tid(0), cpus(3))
    world = World(trials=[loaded(pending=resize)])
    assert world.tell(PlanChanged(world.plan)) == ["tell recover 0"]
    assert (world[0].resources, world[0].pending) == (cpus(3), None)


@pytest.mark.parametrize("status", [RUNNING, PENDING])
def test_rule_6_a_pause_that_waits_for_the_next_report_survives_a_restart_of_the_driver(status):
    pause = PauseTrial(tid(0))
    world = opened(trials=[loaded(status=status, pending=pause)])
    assert world[0].status is STARTING
    assert world[0].pending == pause


def test_rule_6_a_save_that_waits_for_the_next_report_survives_a_restart_of_the_driver():
    save = SaveTrial(tid(0))
    world = opened(trials=[loaded(pending=save)])
    assert world[0].pending == save


@pytest.mark.parametrize("status", [PENDING, PAUSED, TERMINATED, ERROR])
def test_rule_6_trials_that_held_nothing_stay_as_they_are(status):
    world = World(trials=[loaded(status=status, placement=None, is_by_person=status is PAUSED)])
    world.scheduler.hold = {tid(0)}
    assert world.tell(PlanChanged(world.plan)) == []
    assert (world[0].status, world[0].losses) == (status, 0)


def test_rule_6_an_unreleased_placement_died_with_the_driver():
    world = opened(trials=[loaded(status=TERMINATED)], num_trials=1)
    assert world[0].placement is None
    assert world.sweep.done


def test_rule_6_what_the_scheduler_answers_to_an_end_reaches_trials_that_are_not_yet_recovered():
    world = World(
        trials=[loaded(0, status=STOPPING, next_status=TERMINATED), loaded(1, status=RUNNING)],
        num_trials=2,
    )
    world.scheduler.at_end = [StopTrial(tid(1), "no longer wanted")]
    lines = world.open()
    assert world[1].status is TERMINATED
    assert "start 1.2" not in lines
    assert "stop 1.1" not in lines  # the attempt died with the driver: there is nobody to tell


def test_rule_6_questions_that_were_outstanding_are_asked_again_under_their_numbers():
    world = World(trials=[loaded(0, status=TERMINATED), loaded(3, status=TERMINATED)], num_trials=6, ask_ahead=8)
    assert world.open() == ["suggest 1", "suggest 2", "suggest 4", "suggest 5"]


def test_rule_6_a_finished_sweep_that_is_asked_for_more_goes_on_with_the_next_number():
    world = World(trials=[loaded(0, status=TERMINATED)], num_trials=1)
    assert world.open() == []
    assert world.sweep.done
    assert world.tell(PlanChanged(replace(world.plan, num_trials=2))) == ["suggest 1"]
    assert not world.sweep.done


def test_rule_6_an_exhausted_searcher_is_asked_again_after_a_restart_with_a_raised_number():
    world = opened(num_trials=None)
    world.answer(0, EXHAUSTED)
    assert world.sweep.done
    assert world.tell(PlanChanged(replace(world.plan, num_trials=5)))[0] == "suggest 1"


def test_rule_6_trials_in_error_are_continued_or_restarted_when_asked():
    failed = loaded(
        status=ERROR, placement=None, failures=2, losses=1, reason="boom", last_result=TrialResult({"m": 1.0})
    )
    world = World(trials=[failed], retry_errored="continue")
    assert world.open() == ["start 0.2"]
    assert (world[0].failures, world[0].losses, world[0].checkpoint, world[0].judged_to) == (0, 0, REF, 5)
    world = World(trials=[failed], retry_errored="restart")
    assert world.open() == ["start 0.2"]
    assert (world[0].checkpoint, world[0].judged_to, world[0].count, world[0].last_result) == (None, 0, 0, None)


def test_rule_6_unfinished_trials_are_ended_when_only_the_errored_ones_were_asked_for():
    world = World(
        trials=[loaded(0, status=RUNNING), loaded(1, status=ERROR, placement=None)],
        num_trials=2,
        retry_unfinished=False,
        retry_errored="continue",
    )
    assert world.open() == ["tell recover 0", "tell complete 0", "start 1.2"]
    assert world[0].status is TERMINATED


def test_rule_6_a_second_plan_in_the_same_run_recovers_nothing():
    world = running()
    assert world.tell(PlanChanged(world.plan)) == []
    assert world[0].status is RUNNING


@pytest.mark.parametrize("mode", ["restart", "continue"])
def test_rule_6_a_trial_retried_at_a_resume_is_judged_by_asha_like_any_other(mode):
    asha = ASHAScheduler(max_t=9, reduction_factor=3)
    asha.set_search_properties("m", "max")
    failed = loaded(
        status=ERROR, placement=None, checkpoint=None, last_result=TrialResult({"m": 1.0, "training_iteration": 5})
    )
    asha.on_trial_add(failed)  # as the record tells it to a new scheduler
    asha.on_trial_end(failed)
    world = opened(trials=[failed], scheduler=asha, retry_errored=mode)
    world.started(0)
    for _ in range(6):
        assert not [text for text in world.report(0) if text.startswith("fail")]


# --- judged_to -----------------------------------------------------------------------------------------------------


def test_a_repeat_after_a_restart_is_recorded_but_neither_judged_nor_told():
    world = running(max_failures=1)
    world.report(0, "0/c1", m=1.0)
    world.report(0, m=2.0)
    world.report(0, m=3.0)
    world.exited(0, ExitKind.FAILED)
    assert world.started(0) == ["tell start 0", "tell restore 0"]
    world.sweep.take_changes()
    heard = list(world.scheduler.heard)
    assert (world[0].count, world[0].judged_to) == (1, 3)
    assert world.sweep.preview(Reported(tid(0), 2, 1, {"m": 50.0}, None)) is None
    assert world.report(0, m=50.0) == ["continue 0.2#1"]
    assert world.report(0, m=60.0, verdict=Verdict.STOP) == ["continue 0.2#2"]
    assert [result["m"] for result in world.sweep.take_changes().results.values()] == [50.0, 60.0]
    assert world.scheduler.heard == heard
    assert world[0].best_result["m"] == 3.0
    assert world.report(0, m=4.0) == ["tell result 0", "continue 0.2#3"]
    assert (world[0].count, world[0].judged_to, world[0].best_result["m"]) == (4, 4, 4.0)


def test_reports_are_counted_whatever_iteration_the_user_reports():
    world = running(max_failures=1)
    world.report(0, "0/c1", m=1.0, training_iteration=100)
    world.report(0, m=1.0, training_iteration=200)
    assert (world[0].count, world[0].checkpoint.count, world[0].checkpoint.training_iteration) == (2, 1, 100)
    world.exited(0, ExitKind.FAILED)
    assert world.report(0, m=1.0, training_iteration=7) == ["continue 0.2#1"]


def test_time_goes_on_from_the_checkpoint_after_a_restart():
    world = running(max_failures=1)
    world.report(0, "0/c1", m=1.0, time_this_iter_s=2.0)
    world.report(0, m=1.0, time_this_iter_s=5.0)
    world.exited(0, ExitKind.FAILED)
    world.report(0, m=1.0, time_this_iter_s=1.0)
    result = world[0].last_result
    assert (result["time_total_s"], result["time_since_restore"], result["iterations_since_restore"]) == (3.0, 1.0, 1)
    assert result["training_iteration"] == 2


# --- the decision table, cell by cell -------------------------------------------------------------------------------

SUBJECT, ACTOR, SOURCE = 0, 1, 2


def stage(situation: str) -> World:
    """Three trials: the subject in a situation, an actor whose report brings decisions, a source that has saved."""
    world = World(num_trials=3, ask_ahead=3, max_failures=0)
    hold = world.scheduler.hold
    world.open()
    world.run(ACTOR)
    world.run(SOURCE)
    world.report(SOURCE, "2/c1")
    hold.add(tid(SUBJECT))
    world.suggest(SUBJECT, 2.0)
    if situation == "PENDING":
        return world
    hold.clear()
    world.tell(Tick())
    world.tell(NodesChanged(world.nodes))
    hold.add(tid(SUBJECT))
    if situation == "STARTING":
        return world
    world.started(SUBJECT)

    def decide(decision):
        world.report(ACTOR, decisions=[decision])

    def pause():
        world.report(SUBJECT, "0/c1", decisions=[PauseTrial(tid(SUBJECT))])

    match situation:
        case "RUNNING":
            pass
        case "RUNNING, to pause":
            decide(PauseTrial(tid(SUBJECT)))
        case "RUNNING, to save":
            decide(SaveTrial(tid(SUBJECT)))
        case "RUNNING, to resize":
            decide(ResizeTrial(tid(SUBJECT), cpus(4)))
        case "STOPPING to TERMINATED":
            decide(StopTrial(tid(SUBJECT), "enough"))
        case "STOPPING to PENDING":
            decide(CloneTrial(tid(SUBJECT), tid(SOURCE), {"x": "first"}))
        case "STOPPING to PAUSED":
            pause()
        case "PAUSED":
            pause()
            world.ended(SUBJECT)
        case "TERMINATED":
            world.ended(SUBJECT, ExitKind.FINISHED)
        case "ERROR":
            world.ended(SUBJECT, ExitKind.FAILED)
        case _:
            raise ValueError(situation)
    return world


STOP = StopTrial(tid(SUBJECT), "told to")
CLONE = CloneTrial(tid(SUBJECT), tid(SOURCE), {"x": "new"})
PAUSE = PauseTrial(tid(SUBJECT))
RESUME = ResumeTrial(tid(SUBJECT))
SAVE = SaveTrial(tid(SUBJECT))
RESIZE = ResizeTrial(tid(SUBJECT), cpus(3))
NONE: tuple[str, ...] = ()
# decision, situation, commands, then status, next status, what is pending, config, request; None: as before.
CELLS = [
    (STOP, "PENDING", ["tell complete 0"], TERMINATED, None, "", None, None),
    (STOP, "STARTING", ["stop 0.1"], STOPPING, TERMINATED, "", None, None),
    (STOP, "RUNNING", ["stop 0.1"], STOPPING, TERMINATED, "", None, None),
    (STOP, "RUNNING, to pause", ["stop 0.1"], STOPPING, TERMINATED, "", None, None),
    (STOP, "STOPPING to TERMINATED", [], STOPPING, TERMINATED, "", None, None),
    (STOP, "STOPPING to PENDING", [], STOPPING, TERMINATED, "", None, None),
    (STOP, "STOPPING to PAUSED", [], STOPPING, TERMINATED, "", None, None),
    (STOP, "PAUSED", ["tell complete 0"], TERMINATED, None, "", None, None),
    (STOP, "TERMINATED", [], TERMINATED, None, "", None, None),
    (STOP, "ERROR", [], ERROR, None, "", None, None),
    (CLONE, "PENDING", [], PENDING, None, "", "new", None),
    (CLONE, "STARTING", ["stop 0.1"], STOPPING, PENDING, "CloneTrial", None, None),
    (CLONE, "RUNNING", ["stop 0.1"], STOPPING, PENDING, "CloneTrial", None, None),
    (CLONE, "RUNNING, to pause", ["stop 0.1"], STOPPING, PENDING, "CloneTrial", None, None),
    (CLONE, "RUNNING, to resize", ["stop 0.1"], STOPPING, PENDING, "CloneTrial", None, None),
    (CLONE, "STOPPING to TERMINATED", [], STOPPING, TERMINATED, "", None, None),
    (CLONE, "STOPPING to PENDING", [], STOPPING, PENDING, "CloneTrial", None, None),
    (CLONE, "STOPPING to PAUSED", [], STOPPING, PENDING, "CloneTrial", None, None),
    (CLONE, "PAUSED", [], PENDING, None, "", "new", None),
    (CLONE, "TERMINATED", [], TERMINATED, None, "", None, None),
    (CLONE, "ERROR", [], ERROR, None, "", None, None),
    (PAUSE, "PENDING", [], PENDING, None, "", None, None),
    (PAUSE, "STARTING", [], STARTING, None, "PauseTrial", None, None),
    (PAUSE, "RUNNING", [], RUNNING, None, "PauseTrial", None, None),
    (PAUSE, "RUNNING, to save", [], RUNNING, None, "PauseTrial", None, None),
    (PAUSE, "RUNNING, to resize", [], RUNNING, None, "ResizeTrial", None, None),
    (PAUSE, "STOPPING to TERMINATED", [], STOPPING, TERMINATED, "", None, None),
    (PAUSE, "STOPPING to PENDING", [], STOPPING, PENDING, "CloneTrial", None, None),
    (PAUSE, "STOPPING to PAUSED", [], STOPPING, PAUSED, "", None, None),
    (PAUSE, "PAUSED", [], PAUSED, None, "", None, None),
    (PAUSE, "TERMINATED", [], TERMINATED, None, "", None, None),
    (PAUSE, "ERROR", [], ERROR, None, "", None, None),
    (RESUME, "PENDING", [], PENDING, None, "", None, None),
    (RESUME, "STARTING", [], STARTING, None, "", None, None),
    (RESUME, "RUNNING", [], RUNNING, None, "", None, None),
    (RESUME, "RUNNING, to pause", [], RUNNING, None, "", None, None),
    (RESUME, "RUNNING, to save", [], RUNNING, None, "SaveTrial", None, None),
    (RESUME, "RUNNING, to resize", [], RUNNING, None, "ResizeTrial", None, None),
    (RESUME, "STOPPING to TERMINATED", [], STOPPING, TERMINATED, "", None, None),
    (RESUME, "STOPPING to PENDING", [], STOPPING, PENDING, "CloneTrial", None, None),
    (RESUME, "STOPPING to PAUSED", [], STOPPING, PENDING, "", None, None),
    (RESUME, "PAUSED", [], PENDING, None, "", None, None),
    (RESUME, "TERMINATED", [], TERMINATED, None, "", None, None),
    (RESUME, "ERROR", [], ERROR, None, "", None, None),
    (SAVE, "PENDING", [], PENDING, None, "", None, None),
    (SAVE, "STARTING", [], STARTING, None, "SaveTrial", None, None),
    (SAVE, "RUNNING", [], RUNNING, None, "SaveTrial", None, None),
    (SAVE, "RUNNING, to pause", [], RUNNING, None, "PauseTrial", None, None),
    (SAVE, "RUNNING, to resize", [], RUNNING, None, "ResizeTrial", None, None),
    (SAVE, "STOPPING to TERMINATED", [], STOPPING, TERMINATED, "", None, None),
    (SAVE, "STOPPING to PENDING", [], STOPPING, PENDING, "CloneTrial", None, None),
    (SAVE, "STOPPING to PAUSED", [], STOPPING, PAUSED, "", None, None),
    (SAVE, "PAUSED", [], PAUSED, None, "", None, None),
    (SAVE, "TERMINATED", [], TERMINATED, None, "", None, None),
    (SAVE, "ERROR", [], ERROR, None, "", None, None),
    (RESIZE, "PENDING", [], PENDING, None, "", None, 3),
    (RESIZE, "STARTING", [], STARTING, None, "ResizeTrial", None, None),
    (RESIZE, "RUNNING", [], RUNNING, None, "ResizeTrial", None, None),
    (RESIZE, "RUNNING, to pause", [], RUNNING, None, "ResizeTrial", None, None),
    (RESIZE, "RUNNING, to save", [], RUNNING, None, "ResizeTrial", None, None),
    (RESIZE, "STOPPING to TERMINATED", [], STOPPING, TERMINATED, "", None, None),
    (RESIZE, "STOPPING to PENDING", [], STOPPING, PENDING, "CloneTrial", None, None),
    (RESIZE, "STOPPING to PAUSED", [], STOPPING, PAUSED, "", None, None),
    (RESIZE, "PAUSED", [], PAUSED, None, "", None, 3),
    (RESIZE, "TERMINATED", [], TERMINATED, None, "", None, None),
    (RESIZE, "ERROR", [], ERROR, None, "", None, None),
]


@pytest.mark.parametrize(
    ("decision", "situation", "commands", "status", "next_status", "pending", "x", "cpu"),
    CELLS,
    ids=[f"{type(cell[0]).__name__} while {cell[1]}" for cell in CELLS],
)
def test_what_a_decision_means_in_each_status(decision, situation, commands, status, next_status, pending, x, cpu):
    world = stage(situation)
    before = world[SUBJECT]
    lines = world.report(ACTOR, decisions=[decision])
    assert lines == ["tell result 1", *commands, f"continue 1.1#{world.seqs[ACTOR, 1]}"]
    trial = world[SUBJECT]
    assert (trial.status, trial.next_status) == (status, next_status)
    assert (type(trial.pending).__name__ if trial.pending else "") == pending
    assert trial.config == ({"x": x} if x else before.config)
    assert trial.resources == (cpus(cpu) if cpu else before.resources)
    if x:
        assert (trial.checkpoint, trial.judged_to) == (world[SOURCE].checkpoint, 1)
    if pending == "CloneTrial" and type(decision) is CloneTrial:
        assert trial.pending == replace(CLONE, checkpoint=world[SOURCE].checkpoint)


@pytest.mark.parametrize(
    ("first", "second", "kept", "loser"),
    [
        (SAVE, PAUSE, "PauseTrial", "SaveTrial"),
        (SAVE, RESIZE, "ResizeTrial", "SaveTrial"),
        (PAUSE, RESIZE, "ResizeTrial", "PauseTrial"),
        (PAUSE, SAVE, "PauseTrial", "SaveTrial"),
        (RESIZE, SAVE, "ResizeTrial", "SaveTrial"),
        (RESIZE, PAUSE, "ResizeTrial", "PauseTrial"),
    ],
)
def test_the_highest_of_the_waiting_decisions_is_kept_and_the_scheduler_hears_of_the_other(first, second, kept, loser):
    world = stage("RUNNING")
    world.report(ACTOR, decisions=[first, second])
    assert type(world[SUBJECT].pending).__name__ == kept
    assert world.scheduler.refused == [(tid(SUBJECT), loser)]


def test_stop_beats_clone_beats_pause_whatever_the_order():
    for decisions in ([STOP, CLONE, PAUSE], [PAUSE, CLONE, STOP], [CLONE, STOP, RESUME], [CLONE, PAUSE, STOP]):
        world = stage("RUNNING")
        world.report(ACTOR, decisions=list(decisions))
        assert (world[SUBJECT].status, world[SUBJECT].next_status) == (STOPPING, TERMINATED), decisions
        assert world[SUBJECT].pending is None
    for decisions in ([CLONE, PAUSE], [PAUSE, CLONE]):
        world = stage("RUNNING")
        world.report(ACTOR, decisions=list(decisions))
        assert (world[SUBJECT].status, world[SUBJECT].next_status) == (STOPPING, PENDING), decisions


def test_decisions_on_unknown_trials_are_ignored():
    world = stage("RUNNING")
    nobody = tid(77)
    world.scheduler.next = [
        StopTrial(nobody),
        CloneTrial(nobody, tid(SOURCE), {}),
        PauseTrial(nobody),
        ResumeTrial(nobody),
        SaveTrial(nobody),
        ResizeTrial(nobody, cpus(1)),
    ]
    assert world.report(ACTOR) == ["tell result 1", "continue 1.1#1"]
    assert world.scheduler.refused == []


def test_a_resize_to_what_can_never_fit_is_refused():
    world = stage("RUNNING")
    world.report(ACTOR, decisions=[ResizeTrial(tid(SUBJECT), cpus(9))])
    assert world[SUBJECT].pending is None
    assert world.scheduler.refused == [(tid(SUBJECT), "ResizeTrial")]


def test_a_clone_of_a_trial_that_never_saved_or_does_not_exist_is_refused():
    for source in (ACTOR, 77):
        world = stage("RUNNING")
        lines = world.report(ACTOR, decisions=[CloneTrial(tid(SUBJECT), tid(source), {})])
        assert lines == ["tell result 1", "continue 1.1#1"]
        assert world.scheduler.refused == [(tid(SUBJECT), "CloneTrial")]


def test_what_is_answered_to_a_refusal_is_carried_out_and_not_refused_again():
    world = stage("RUNNING")
    world.scheduler.next = [CloneTrial(tid(SUBJECT), tid(ACTOR), {})]
    world.scheduler.at_refusal = [CloneTrial(tid(SUBJECT), tid(77), {}), StopTrial(tid(SUBJECT))]
    assert world.report(ACTOR) == ["tell result 1", "stop 0.1", "continue 1.1#1"]
    assert len(world.scheduler.refused) == 1


def test_a_trial_that_stops_itself_is_told_so_as_the_answer():
    world = stage("RUNNING")
    assert world.report(SUBJECT, decisions=[STOP, StopTrial(tid(ACTOR))]) == ["tell result 0", "stop 0.1#1", "stop 1.1"]


def test_a_trial_that_is_cloned_at_its_own_report_is_stopped_by_the_answer_and_starts_from_the_source():
    world = stage("RUNNING")
    assert world.report(SUBJECT, "0/c1", decisions=[CLONE]) == ["tell result 0", "tell save 0", "stop 0.1#1"]
    world.scheduler.hold.clear()
    assert world.exited(SUBJECT) == ["start 0.2"]
    trial = world[SUBJECT]
    assert (trial.config, trial.started_from.path, trial.count, trial.judged_to) == ({"x": "new"}, "2/c1", 1, 1)
    assert trial.resources == cpus(2)  # a clone keeps its own request


def test_a_resumed_trial_starts_from_its_checkpoint():
    world = stage("PAUSED")
    world.scheduler.hold.clear()
    assert world.report(ACTOR, decisions=[RESUME]) == ["tell result 1", "continue 1.1#1", "start 0.2"]
    assert world[SUBJECT].started_from == CheckpointRef("0/c1", 1, 1, 0.0)


def test_only_the_decisions_that_can_be_told_now_wait_for_the_next_report_of_a_starting_trial():
    world = stage("STARTING")
    world.report(ACTOR, decisions=[PAUSE])
    world.started(SUBJECT)
    assert world.report(SUBJECT, "0/c1") == ["tell result 0", "tell save 0", "stop 0.1#1"]
    assert world[SUBJECT].next_status is PAUSED


# --- rule 8: a pause needs a save -----------------------------------------------------------------------------------


def test_rule_8_a_class_trainable_saves_on_demand_and_is_paused_when_the_save_is_committed():
    world = running(can_save_on_demand=True)
    world.scheduler.hold = {tid(0)}
    assert world.report(0, decisions=[PauseTrial(tid(0))]) == ["tell result 0", "stop 0.1#1 saving"]
    assert world.saved(0, "0/c1") == ["tell save 0"]
    world.scheduler.when_idle = [StopTrial(tid(0))]
    assert world.exited(0) == ["tell pause 0"]
    assert world[0].status is PAUSED
    assert world.released(0) == ["tell complete 0"]


def test_rule_8_a_function_is_paused_at_the_next_report_that_carries_a_checkpoint():
    world = running()
    world.report(0, "0/c1")
    assert world.report(0, decisions=[PauseTrial(tid(0))]) == ["tell result 0", "continue 0.1#2"]
    assert world.report(0) == ["tell result 0", "continue 0.1#3"]
    assert world.report(0, "0/c4") == ["tell result 0", "tell save 0", "stop 0.1#4"]
    assert (world[0].status, world[0].next_status, world[0].is_saved) == (STOPPING, PAUSED, True)
    assert world.scheduler.refused == []


def test_rule_8_a_pause_of_a_function_that_never_saved_is_refused_and_the_user_is_told():
    world = running()
    assert world.report(0, decisions=[PauseTrial(tid(0))]) == ["tell result 0", "continue 0.1#1"]
    assert world.scheduler.refused == [(tid(0), "PauseTrial")]
    assert world[0].pending is None
    assert world[0].reason == "cannot be paused: it never saved a checkpoint"


def test_rule_8_a_scheduler_may_stop_the_trial_whose_pause_was_refused():
    world = running()
    world.scheduler.next = [PauseTrial(tid(0))]
    world.scheduler.at_refusal = [StopTrial(tid(0))]
    assert world.report(0) == ["tell result 0", "stop 0.1#1"]


def test_rule_8_a_save_of_a_class_trainable_is_the_answer_and_gets_no_second_one():
    world = running(can_save_on_demand=True)
    assert world.report(0, decisions=[SaveTrial(tid(0))]) == ["tell result 0", "save 0.1#1"]
    assert world[0].pending is None
    assert world.saved(0, "0/c1") == ["tell save 0"]
    assert world.report(0) == ["tell result 0", "continue 0.1#2"]


def test_rule_8_a_save_of_a_function_is_satisfied_by_its_next_checkpoint():
    world = running()
    assert world.report(0, decisions=[SaveTrial(tid(0))]) == ["tell result 0", "continue 0.1#1"]
    assert isinstance(world[0].pending, SaveTrial)
    assert world.report(0, "0/c2") == ["tell result 0", "tell save 0", "continue 0.1#2"]
    assert world[0].pending is None


def test_rule_8_a_resize_saves_and_starts_again_with_the_new_request():
    world = running(can_save_on_demand=True)
    assert world.report(0, decisions=[ResizeTrial(tid(0), cpus(5))]) == ["tell result 0", "stop 0.1#1 saving"]
    world.saved(0, "0/c1")
    assert world.exited(0) == ["start 0.2"]  # 7 of 8 CPUs are free, though the old attempt is not yet released
    assert (world[0].resources, world[0].started_from.path, world[0].pending) == (cpus(5), "0/c1", None)


def test_rule_8_an_exit_applies_a_resize_at_once():
    world = running(max_failures=1)
    world.report(0, m=1.0, decisions=[ResizeTrial(tid(0), cpus(5))])
    # A function that never saved cannot be resized either: it is refused and goes on.
    assert world.scheduler.refused == [(tid(0), "ResizeTrial")]
    world.report(0, "0/c2")
    world.report(0, decisions=[ResizeTrial(tid(0), cpus(5))])
    assert isinstance(world[0].pending, ResizeTrial)
    assert world.exited(0, ExitKind.FAILED) == ["tell recover 0", "start 0.2"]
    assert (world[0].resources, world[0].pending) == (cpus(5), None)


def test_rule_8_a_waiting_pause_survives_a_failure_of_the_trial():
    world = running(max_failures=1)
    world.report(0, "0/c1")
    world.report(0, decisions=[PauseTrial(tid(0))])
    world.exited(0, ExitKind.FAILED)
    assert isinstance(world[0].pending, PauseTrial)
    world.report(0)
    assert world.report(0, "0/c3") == ["tell result 0", "tell save 0", "stop 0.2#2"]


def test_rule_8_a_class_trainable_saves_at_its_end_when_the_plan_says_so():
    world = running(can_save_on_demand=True, checkpoint_at_end=True)
    assert world.report(0, decisions=[StopTrial(tid(0))]) == ["tell result 0", "stop 0.1#1 saving"]
    assert world.saved(0, "0/c1") == ["tell save 0"]
    assert world.exited(0) == ["tell complete 0"]
    assert world[0].checkpoint.path == "0/c1"


# --- rule 9: bound, pinned, discarded -------------------------------------------------------------------------------


def test_rule_9_retention_discards_the_oldest():
    world = running(num_to_keep=2)
    world.report(0, "0/c1")
    assert world.report(0, "0/c2") == ["tell result 0", "tell save 0", "continue 0.1#2"]
    assert world.report(0, "0/c3") == ["tell result 0", "discard 0/c1", "tell save 0", "continue 0.1#3"]


def test_rule_9_retention_by_score_keeps_the_best_and_the_latest():
    world = running(num_to_keep=1, checkpoint_score="m", checkpoint_mode="max")
    assert "discard" not in str(world.report(0, "0/c1", m=9.0))
    assert "discard" not in str(world.report(0, "0/c2", m=1.0))
    assert world.report(0, "0/c3", m=float("nan"))[1] == "discard 0/c2"
    assert world.report(0, "0/c4", m=10.0)[1:3] == ["discard 0/c1", "discard 0/c3"]


def test_rule_9_the_checkpoint_that_an_attempt_started_from_is_kept_until_that_attempt_is_gone():
    world = running(num_to_keep=1, max_failures=1)
    world.report(0, "0/c1")
    world.exited(0, ExitKind.FAILED)
    assert world[0].started_from.path == "0/c1"
    assert world.report(0, "0/c2") == ["tell result 0", "tell save 0", "continue 0.2#1"]
    assert world.exited(0, ExitKind.FINISHED)[0] == "discard 0/c1"


def test_rule_9_a_clones_source_is_not_discarded_before_the_clone_has_run():
    world = running(2, num_to_keep=1)
    world.report(1, "1/c1")
    assert world.report(0, decisions=[CloneTrial(tid(0), tid(1), {"x": "new"})]) == ["tell result 0", "stop 0.1#1"]
    assert world[0].pending.checkpoint.path == "1/c1"
    assert world.report(1, "1/c2") == ["tell result 1", "tell save 1", "continue 1.1#2"]  # 1/c1 is pinned
    assert world.exited(0) == ["start 0.2"]
    assert world[0].started_from.path == "1/c1"
    assert world.report(1, "1/c3") == ["tell result 1", "discard 1/c2", "tell save 1", "continue 1.1#3"]
    assert world.report(0, "0/c2") == ["tell result 0", "tell save 0", "continue 0.2#1"]
    assert world.exited(0, ExitKind.FINISHED)[0] == "discard 1/c1"


def test_rule_9_what_the_old_attempt_of_a_clone_saves_is_nobodys():
    world = running(2)
    world.report(1, "1/c1")
    world.report(1, decisions=[CloneTrial(tid(0), tid(1), {"x": "new"})])
    assert world.report(0, "0/mine") == ["discard 0/mine", "stop 0.1#1"]
    assert world[0].config == {"x": 0}
    assert world.saved(0, "0/mine2") == ["discard 0/mine2"]
    assert world.exited(0) == ["start 0.2"]
    assert (world[0].config, world[0].checkpoint.path, world[0].count) == ({"x": "new"}, "1/c1", 1)


def test_rule_9_kept_checkpoints_of_the_record_count_after_a_restart():
    old = CheckpointRef("0/c1", 1, 1, 0.0)
    world = opened(
        trials=[loaded(checkpoint=REF)], kept={tid(0): [Kept(old, 0.0), Kept(REF, 0.0)]}, num_to_keep=1, max_failures=1
    )
    world.started(0)
    assert world.report(0, "0/c4") == ["discard 0/c1", "tell save 0", "continue 0.2#1"]  # 0/c3: started from it
    assert world.exited(0, ExitKind.FINISHED)[0] == "discard 0/c3"


# --- rule 10: nothing waits without a name --------------------------------------------------------------------------


def test_rule_10_a_searcher_that_says_not_now_is_asked_again_at_the_next_fact():
    world = running(num_trials=2, num_cpus=2)
    assert world.answer(1, NOT_NOW) == []
    assert world.started(0) == ["tell start 0"]
    assert world.report(0) == ["tell result 0", "continue 0.1#1"]  # reports are too many to ask at each
    assert world.exited(0, ExitKind.FINISHED) == ["tell complete 0", "suggest 1"]


def test_rule_10_a_searcher_that_says_not_now_is_asked_again_when_a_paused_trial_is_ended():
    paused = loaded(0, status=PAUSED, placement=None)
    world = World(trials=[paused], num_trials=3, num_cpus=2)
    world.open()
    world.run(1)
    assert world.answer(2, NOT_NOW) == []
    lines = world.report(1, decisions=[StopTrial(tid(0))])
    assert lines == ["tell result 1", "tell complete 0", "continue 1.1#1", "suggest 2"]


def test_rule_10_a_searcher_that_says_not_now_is_asked_again_after_a_second_at_the_latest():
    world = World(num_trials=2)
    world.now = 10.0
    world.open()
    assert world.answer(0, NOT_NOW) == []
    assert world.sweep.deadline == 11.0
    assert world.wait(0.9) == []
    assert world.wait(0.1) == ["suggest 0"]
    assert world.answer(0, NOT_NOW) == []
    assert world.sweep.deadline == 12.0


def test_rule_10_not_now_keeps_the_number_for_the_next_answer():
    world = World(num_trials=2, ask_ahead=2)
    assert world.open() == ["suggest 0", "suggest 1"]
    world.answer(0, NOT_NOW)
    assert world.suggest(1) == ["start 1.1", "suggest 0"]
    world.suggest(0)
    assert list(world.sweep.trials) == [tid(1), tid(0)]


def test_rule_10_after_a_minute_of_not_now_with_nothing_running_the_sweep_fails_and_names_the_searcher():
    world = opened(num_trials=2, time_budget_s=1000.0)
    asked = 0
    lines = world.answer(0, NOT_NOW)
    while not lines or not lines[-1].startswith("fail"):
        lines = world.wait(1.0)
        assert lines == ["suggest 0"]
        lines = world.answer(0, NOT_NOW)
        asked += 1
        assert asked <= 61
    assert asked == 60
    assert lines == ["fail SweepStalled"]
    assert "searcher has answered 'not now' for 60 s" in str(world.failure)
    assert world.sweep.done


def test_rule_10_the_minute_counts_from_when_nothing_ran():
    world = running(num_trials=2)
    world.answer(1, NOT_NOW)
    for _ in range(100):
        world.wait(1.0)
        assert "fail" not in str(world.answer(1, NOT_NOW))
    world.exited(0, ExitKind.FINISHED)
    world.answer(1, NOT_NOW)
    world.released(0)
    world.answer(1, NOT_NOW)
    for second in range(59):
        world.wait(1.0)
        assert "fail" not in str(world.answer(1, NOT_NOW)), second


def test_rule_10_a_scheduler_that_starts_nothing_is_named():
    world = World(num_trials=1)
    world.scheduler.hold = {tid(0)}
    world.open()
    assert world.suggest(0) == ["fail SweepStalled"]
    assert str(world.failure).endswith("Scripted starts none of the 1 waiting trials; its choose() returned None")


def test_rule_10_a_scheduler_that_leaves_everything_paused_is_named():
    world = running()
    world.scheduler.when_idle = []
    world.report(0, "0/c1", decisions=[PauseTrial(tid(0))])
    assert world.exited(0) == ["tell pause 0"]
    assert world.released(0) == ["fail SweepStalled"]
    assert "1 trials are paused" in str(world.failure)
    assert "Scripted" in str(world.failure)


def test_rule_10_paused_trials_are_resumed_when_nothing_else_can_happen():
    world = running()
    world.report(0, "0/c1", decisions=[PauseTrial(tid(0))])
    world.exited(0)
    assert not world.sweep.done
    assert world.released(0) == ["start 0.2"]


def test_rule_10_the_reason_of_a_waiting_trial_names_what_it_waits_for_and_who_holds_it():
    world = opened(num_trials=2, ask_ahead=2, num_cpus=2)
    world.run(0, 2.0)
    world.suggest(1, 1.0)
    assert world[1].reason == "waits for cpu=1; 0 of 2 free, the rest held by 00000"


# --- rule 12: what can never fit -----------------------------------------------------------------------------------


def test_rule_12_a_suggestion_that_fits_nowhere_becomes_an_error_with_the_arithmetic():
    world = opened(num_cpus=2, num_trials=2)
    assert world.suggest(0, 3.0) == ["tell error 0", "suggest 1"]
    assert world[0].status is ERROR
    assert "cpu=3" in world[0].reason
    assert "this machine has: 2" in world[0].reason
    assert "Lower resources_per_trial" in world[0].reason


def test_rule_12_a_lost_node_ends_what_waits_for_it():
    world = opened(nodes=(Node("a", 2), Node("b", 4)), num_trials=2, ask_ahead=2, max_losses=5)
    world.run(0, 4.0)
    world.suggest(1, 1.0)
    assert world.exited(0, ExitKind.LOST) == ["tell recover 0"]
    assert world.tell(NodesChanged((Node("a", 2),))) == ["tell error 0"]
    assert "the largest node has" in world[0].reason or "this machine has" in world[0].reason
    assert world.tell(Released(tid(0), 1)) == []
    assert world.packer.used()["cpu"] == (1.0, 2.0)


A, B = Node("a", 2), Node("b", 4)


def test_rule_12_a_trial_whose_node_left_waits_for_it_and_goes_on_when_it_is_back():
    world = opened(nodes=(A, B), num_trials=2, ask_ahead=2)
    world.run(0, 4.0)
    world.suggest(1, 1.0)
    assert world.exited(0, ExitKind.NODE_LOST, "node 'b' left") == ["tell recover 0"]
    assert world.tell(NodesChanged((A,), (B,)), Released(tid(0), 1)) == []
    assert world[0].status is PENDING
    assert world[0].reason == "waits for node 'b' (cpu=4), which is not available now"
    assert world.tell(NodesChanged((A, B))) == ["start 0.2"]
    assert (world[0].reason, world[0].node_losses, world[0].losses, world[0].failures) == ("", 1, 0, 0)


@pytest.mark.parametrize(("kind", "first"), [(ExitKind.NODE_LOST, "start 1.2"), (ExitKind.FAILED, "start 2.1")])
def test_rule_12_a_trial_that_lost_its_node_keeps_its_place_and_one_that_failed_waits_behind(kind, first):
    one, other = Node("a", 1), Node("b", 1)
    world = opened(nodes=(one, other), num_trials=4, ask_ahead=4, max_failures=1)
    for number in range(4):
        world.suggest(number)
    for number in range(2):
        world.started(number)
    assert world[1].placement.bundles[0].node == "b"
    world.exited(1, kind)
    world.tell(NodesChanged((one,), (other,)), Released(tid(1), 1))
    world.exited(0, ExitKind.FINISHED)
    assert world.released(0) == [first]


def test_rule_12_what_was_held_on_a_node_that_is_back_is_not_granted_before_it_is_released():
    world = opened(nodes=(B,), num_trials=1)
    world.run(0, 4.0)
    world.exited(0, ExitKind.NODE_LOST)
    world.tell(NodesChanged((), (B,)))
    assert world.tell(NodesChanged((B,))) == []
    assert world.released(0) == ["start 0.2"]


def test_rule_12_a_sweep_without_any_node_waits_and_does_not_count_as_stalled():
    world = opened(nodes=(B,), num_trials=None)
    world.run(0, 4.0)
    world.exited(0, ExitKind.NODE_LOST)
    assert world.tell(NodesChanged((), (B,)), Released(tid(0), 1)) == []
    assert world.wait(10_000) == []
    assert not world.sweep.done
    assert world[0].reason == "waits for node 'b' (cpu=4), which is not available now; there is no node at all"
    assert world.tell(NodesChanged((B,))) == ["start 0.2"]


def test_rule_12_a_run_may_begin_before_any_node_is_there():
    world = World(num_trials=2, ask_ahead=2)
    assert world.tell(PlanChanged(world.plan), NodesChanged((), (A, B))) == ["suggest 0", "suggest 1"]
    assert world.suggest(0, 3.0) == []
    assert world.suggest(1, 1.0) == []
    assert world[0].reason == "waits for node 'b' (cpu=4), which is not available now; there is no node at all"
    assert world[1].reason.startswith("waits for node 'a' (cpu=2) or 'b' (cpu=4), which are not available now")
    assert world.tell(NodesChanged((A,), (B,))) == ["start 1.1"]
    assert world[0].reason == "waits for node 'b' (cpu=4), which is not available now"


def test_rule_12_what_waits_for_a_node_holds_nobody_back():
    world = opened(nodes=(A, B), num_trials=40, ask_ahead=40)
    world.suggest(0, 4.0)
    world.exited(0, ExitKind.NODE_LOST)
    world.tell(NodesChanged((A,), (B,)), Released(tid(0), 1))
    for number in range(1, 40):  # more than may overtake one that waits for what others hold
        assert world.suggest(number, 2.0)[0] == f"start {number}.1"
        world.ended(number, ExitKind.FINISHED)
    assert "which is not available now" in world[0].reason


def test_rule_12_a_searcher_that_says_not_now_is_not_to_blame_while_a_trial_waits_for_a_node():
    world = opened(nodes=(B,), num_trials=None, ask_ahead=2)
    world.suggest(0, 4.0)
    world.answer(1, NOT_NOW)
    world.answer(2, NOT_NOW)
    world.exited(0, ExitKind.NODE_LOST)
    world.tell(NodesChanged((), (B,)), Released(tid(0), 1))
    for _ in range(100):
        assert "fail SweepStalled" not in world.wait(1)
        world.answer(1, NOT_NOW)
    assert world.ask(Ask.CANCEL, 0) == ["tell complete 0", "suggest 1"]
    assert world.answer(1, NOT_NOW) == []  # its patience begins now


def test_rule_12_what_not_even_the_nodes_away_can_hold_is_an_error_at_once():
    world = opened(nodes=(A, B), num_trials=2, ask_ahead=2)
    world.tell(NodesChanged((A,), (B,)))
    assert world.suggest(0, 5.0)[0] == "tell error 0"
    assert "cpu=5 is more than the largest node there is, or that may come, has: 4" in world[0].reason
    assert world.suggest(1, 4.0) == []
    assert world.tell(NodesChanged((A,))) == ["tell error 1"]  # it will not come back


def test_rule_12_who_drains_a_sweep_whose_nodes_are_away_is_not_kept():
    world = opened(nodes=(B,), num_trials=1)
    world.suggest(0, 4.0)
    world.exited(0, ExitKind.NODE_LOST)
    world.tell(NodesChanged((), (B,)), Released(tid(0), 1))
    world.ask(Ask.DRAIN)
    assert world.sweep.done
    assert world[0].status is PENDING


def test_what_a_resumed_trial_waited_for_is_explained_anew():
    before = loaded(status=PENDING, placement=None, reason="waits for node 'b' (cpu=4), which is not available now")
    world = World(trials=[evolve(before, resources=cpus(2.0))], nodes=(Node("a", 1), Node("c", 1)), num_trials=1)
    world.tell(PlanChanged(world.plan), NodesChanged((Node("a", 1),), (Node("d", 2),)))
    assert world[0].reason == "waits for node 'd' (cpu=2), which is not available now"
    assert world.tell(NodesChanged((Node("a", 1), Node("d", 2)))) == ["start 0.2"]


def test_rule_12_a_paused_trial_that_no_node_can_hold_any_more_becomes_an_error_and_not_a_stall():
    world = opened(num_cpus=4, num_trials=2, ask_ahead=2)
    world.run(0, 4.0)
    world.report(0, "0/c1", decisions=[PauseTrial(tid(0))])
    world.exited(0)
    world.suggest(1, 1.0)
    world.released(0)
    world.tell(NodesChanged((Node("n", 2),)))
    world.exited(1, ExitKind.FINISHED)
    lines = world.released(1)
    assert "fail SweepStalled" not in lines
    assert world[0].status is ERROR
    assert "cpu=4" in world[0].reason


def test_rule_12_a_running_trial_that_fails_after_its_node_shrank_becomes_an_error_and_not_a_stall():
    world = opened(num_cpus=4, max_failures=3)
    world.run(0, 4.0)
    world.tell(NodesChanged((Node("n", 2),)))
    lines = world.ended(0, ExitKind.FAILED)
    assert "fail SweepStalled" not in lines
    assert world[0].status is ERROR


@pytest.mark.parametrize("requests", [(3.0, 3.0), (3.0, 4.0)])
def test_rule_12_fail_fast_and_several_trials_that_can_never_fit_end_each_trial_once(requests):
    world = opened(num_cpus=4, num_trials=3, ask_ahead=3, fail_fast=True)
    world.run(0, 4.0)
    world.suggest(1, requests[0])
    world.suggest(2, requests[1])
    assert world.tell(NodesChanged((Node("n", 2),))) == ["tell error 1", "stop 0.1", "tell complete 2"]


def test_rule_12_what_a_scheduler_stops_at_an_end_is_not_ended_twice():
    world = opened(num_cpus=4, num_trials=3, ask_ahead=3)
    world.run(0, 4.0)
    world.suggest(1, 3.0)
    world.suggest(2, 3.0)
    world.scheduler.at_end = [StopTrial(tid(2))]
    assert world.tell(NodesChanged((Node("n", 2),))) == ["tell error 1", "tell complete 2"]


# --- rule 13: persons, budget, grace -------------------------------------------------------------------------------


def two_running(**plan) -> World:
    world = opened(num_trials=4, ask_ahead=4, num_cpus=2, **plan)
    for number in range(4):
        world.suggest(number)
    world.started(0)
    world.started(1)
    return world


def test_rule_13_a_drain_lets_finish_what_runs_and_leaves_the_rest_waiting():
    world = two_running()
    assert world.ask(Ask.DRAIN) == []
    assert world.report(0) == ["tell result 0", "continue 0.1#1"]
    assert world.exited(0, ExitKind.FINISHED) == ["tell complete 0"]
    assert world.released(0) == []
    assert not world.sweep.done
    world.ended(1, ExitKind.FINISHED)
    assert world.sweep.done
    assert [world[n].status for n in range(4)] == [TERMINATED, TERMINATED, PENDING, PENDING]


def test_rule_13_a_drain_asks_for_nothing_more():
    world = running(num_trials=5, num_cpus=1)
    world.ask(Ask.DRAIN)
    assert world.exited(0, ExitKind.FINISHED) == ["tell complete 0"]
    assert world.released(0) == []
    assert world.sweep.done


def test_rule_13_an_interrupt_saves_and_stops_at_the_next_report_and_leaves_everything_resumable():
    world = two_running(can_save_on_demand=True)
    world.now = 100.0
    assert world.ask(Ask.INTERRUPT) == []
    assert world.sweep.deadline == 130.0
    assert world.report(0) == ["tell result 0", "stop 0.1#1 saving"]
    assert world.saved(0, "0/c1") == ["tell save 0"]
    assert world.exited(0) == []
    world.released(0)
    assert (world[0].status, world[0].resources, world[0].pending) == (PENDING, cpus(1), None)
    assert world.at(130.0) == ["kill 1.1"]
    assert world.exited(1, ExitKind.KILLED) == []
    world.released(1)
    assert world.sweep.done
    assert [world[n].status for n in range(4)] == [PENDING] * 4
    assert [world[n].failures + world[n].losses for n in range(4)] == [0] * 4


def test_rule_13_an_interrupt_kills_at_once_what_has_not_started_yet():
    world = two_running()
    world.ended(0, ExitKind.FINISHED)
    assert world[2].status is STARTING
    assert world.ask(Ask.INTERRUPT) == ["kill 2.1"]
    assert world.exited(2, ExitKind.KILLED) == []
    assert (world[2].status, world[2].losses) == (PENDING, 0)


def test_rule_13_an_interrupt_shortens_the_grace_of_a_trial_that_is_saving_already():
    world = two_running(can_save_on_demand=True, checkpoint_at_end=True)
    assert "stop 0.1#1 saving" in world.report(0, decisions=[StopTrial(tid(0), "worse")])
    world.now = 10.0
    world.ask(Ask.INTERRUPT)
    assert world.at(40.0) == ["kill 0.1", "kill 1.1"]


def test_rule_13_an_interrupted_function_without_any_checkpoint_stops_at_its_next_report():
    world = two_running()
    world.ask(Ask.INTERRUPT)
    assert world.report(0) == ["tell result 0", "stop 0.1#1"]
    assert world.scheduler.refused == []


def test_rule_13_an_interrupted_function_that_was_to_be_paused_also_stops_at_its_next_report():
    world = two_running()
    world.report(1, decisions=[PauseTrial(tid(0))])
    world.ask(Ask.INTERRUPT)
    assert world.report(0) == ["tell result 0", "stop 0.1#1"]


def test_rule_13_an_interrupted_function_with_a_checkpoint_is_given_the_grace_to_make_the_next():
    world = two_running()
    world.report(0, "0/c1")
    world.ask(Ask.INTERRUPT)
    assert world.report(0) == ["tell result 0", "continue 0.1#2"]
    assert world.report(0, "0/c3") == ["tell result 0", "tell save 0", "stop 0.1#3"]


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_rule_13_an_interrupt_does_not_wait_for_a_trial_that_waits_for_disk_space_since(is_before):
    """It cannot save, so there is nothing to wait for; the other goes on to its next report."""
    world = two_running()
    short = Waiting(tid(0), "waits for disk space: a checkpoint of 1MiB does not fit into /x", Cause.SPACE)
    if is_before:
        world.tell(short)
        assert world[0].waits_for_space
        assert world.ask(Ask.INTERRUPT) == ["kill 0.1"]
    else:
        assert world.ask(Ask.INTERRUPT) == []
        assert world.tell(short) == ["kill 0.1"]
    assert world.exited(0, ExitKind.KILLED) == []
    world.released(0)
    assert (world[0].status, world[0].failures, world[0].losses) == (PENDING, 0, 0)
    assert world.report(1) == ["tell result 1", "stop 1.1#1"]


def test_a_wait_for_disk_space_is_the_reason_of_a_trial_until_it_is_over():
    world = two_running()
    world.tell(Waiting(tid(0), "waits for disk space: a checkpoint does not fit", Cause.SPACE))
    assert (world[0].status, world[0].waits_for_space, world[1].waits_for_space) == (Status.RUNNING, True, False)
    world.tell(Waiting(tid(0), ""))
    assert not world[0].waits_for_space


def test_rule_13_a_second_interrupt_kills():
    world = two_running()
    world.ask(Ask.INTERRUPT)
    assert world.ask(Ask.INTERRUPT) == ["kill 0.1", "kill 1.1"]
    for number in (0, 1):
        assert world.exited(number, ExitKind.KILLED) == []
        world.released(number)
        assert (world[number].status, world[number].failures) == (PENDING, 0)
    assert world.sweep.done


def test_rule_13_a_cancel_stops_and_kills_everything_for_good():
    world = two_running()
    lines = world.ask(Ask.CANCEL)
    assert lines == ["stop 0.1", "stop 1.1", "tell complete 2", "tell complete 3", "kill 0.1", "kill 1.1"]
    assert world.exited(0, ExitKind.KILLED) == ["tell complete 0"]
    world.exited(1, ExitKind.FAILED)
    world.released(0)
    world.released(1)
    assert world.sweep.done
    assert {world[n].status for n in range(4)} == {TERMINATED}
    assert world[0].reason == "cancelled"


def test_rule_13_cancelling_one_trial_leaves_the_others_alone():
    world = two_running()
    assert world.ask(Ask.CANCEL, 2) == ["tell complete 2"]
    assert world.ask(Ask.CANCEL, 0) == ["stop 0.1", "kill 0.1"]
    assert world.ask(Ask.CANCEL, 2) == []
    assert world[1].status is RUNNING
    assert world.sweep.ending is None


def test_rule_13_a_suggestion_that_arrives_after_the_end_was_decided_does_not_stay_waiting():
    world = running(num_trials=4, ask_ahead=4, num_cpus=1)
    world.ask(Ask.CANCEL)
    world.suggest(1)
    assert world[1].status is TERMINATED


def test_rule_13_a_budget_that_ends_between_two_suggestions_leaves_no_trial_waiting():
    world = opened(num_trials=2, ask_ahead=2, time_budget_s=10.0)
    world.now = 10.0
    world.suggest(0)
    world.suggest(1)
    assert [world[n].status for n in (0, 1)] == [TERMINATED, TERMINATED]


def test_rule_13_the_budget_stops_everything_and_kills_what_does_not_obey_within_the_grace():
    world = two_running(time_budget_s=20.0, stop_grace_s=5.0)
    assert world.sweep.deadline == 20.0
    world.now = 19.9
    assert world.report(0) == ["tell result 0", "continue 0.1#1"]
    assert world.at(20.0) == ["stop 0.1", "stop 1.1", "tell complete 2", "tell complete 3"]
    assert world[0].reason == "the time budget of 20 s is spent"
    assert world.sweep.deadline == 25.0
    assert world.report(0) == ["stop 0.1#2"]
    world.exited(0)
    assert world.at(25.0) == ["kill 1.1"]
    assert world.tell(Tick()) == []


def test_rule_13_a_budget_spent_by_earlier_runs_starts_nothing():
    world = World(trials=[loaded(status=PENDING, placement=None)], time_budget_s=10.0, num_trials=5)
    world.now = 12.0
    assert world.open() == ["tell complete 0"]
    assert world.sweep.done


def test_rule_13_a_trial_that_a_budget_ended_before_it_began_runs_when_there_is_time_again():
    spent = "the time budget of 10 s is spent"
    unbegun = loaded(status=TERMINATED, placement=None, attempt=0, reason=spent, cause=Cause.BUDGET)
    begun = loaded(1, status=TERMINATED, placement=None, attempt=1, reason=spent, cause=Cause.BUDGET)
    cancelled = loaded(2, status=TERMINATED, placement=None, attempt=0, reason="cancelled")
    for budget, revived in ((60.0, True), (None, True), (12.0, False)):
        world = World(trials=[unbegun, begun, cancelled], time_budget_s=budget, num_trials=3)
        world.now = 12.0
        world.open()
        assert [world[n].status for n in (1, 2)] == [TERMINATED, TERMINATED]
        assert (world[0].status is Status.STARTING) == revived
        assert world.sweep.done != revived


def test_rule_13_a_stop_is_followed_by_a_kill_after_the_grace_unless_it_exited():
    world = running(stop_grace_s=5.0)
    world.now = 50.0
    world.report(0, decisions=[StopTrial(tid(0))])
    assert world.sweep.deadline == 55.0
    assert world.at(54.9) == []
    assert world.at(55.0) == ["kill 0.1"]
    assert world.sweep.deadline is None


def test_rule_13_a_timer_of_an_older_attempt_kills_nobody():
    world = running(2, stop_grace_s=5.0)
    world.report(1, "1/c1")
    world.report(0, decisions=[CloneTrial(tid(0), tid(1), {"x": "new"})])
    world.exited(0)
    assert world[0].attempt == 2
    assert world.at(100.0) == []


def test_rule_13_a_save_has_the_longer_grace():
    world = running(can_save_on_demand=True, stop_grace_s=5.0, save_grace_s=60.0)
    world.report(0, decisions=[PauseTrial(tid(0))])
    assert world.sweep.deadline == 60.0


def test_rule_13_a_person_pauses_and_resumes_a_trial():
    world = running(can_save_on_demand=True)
    assert world.ask(Ask.PAUSE, 0) == []
    assert world.report(0) == ["tell result 0", "stop 0.1#1 saving"]
    world.saved(0, "0/c1")
    assert world.exited(0) == ["tell pause 0"]
    assert world.released(0) == []
    assert world[0].status is PAUSED
    assert world.sweep.done  # with trials that a person paused, the sweep is done and resumable
    assert world.ask(Ask.RESUME, 0) == ["start 0.2"]


def test_rule_13_the_scheduler_does_not_resume_what_a_person_paused():
    world = running(2)
    world.ask(Ask.PAUSE, 0)
    world.report(0, "0/c1")
    world.report(1, decisions=[ResumeTrial(tid(0))])
    assert world[0].next_status is PAUSED
    world.exited(0)
    world.report(1, decisions=[ResumeTrial(tid(0))])
    assert world[0].status is PAUSED


def test_rule_13_the_scheduler_does_not_withdraw_a_pause_that_a_person_asked_for():
    world = running(2)
    world.ask(Ask.PAUSE, 0)
    world.report(1, decisions=[ResumeTrial(tid(0))])
    assert isinstance(world[0].pending, PauseTrial)


def test_rule_13_a_persons_pause_whose_save_failed_does_not_claim_later_pauses_of_the_scheduler():
    world = running(can_save_on_demand=True)
    world.ask(Ask.PAUSE, 0)
    world.report(0)
    assert world.exited(0) == ["start 0.2"]  # it never saved: back to waiting, and the machine is free
    assert not world[0].is_by_person


def test_rule_13_a_persons_pause_that_lost_against_a_resize_does_not_claim_later_pauses_of_the_scheduler():
    world = running(2, can_save_on_demand=True)
    world.report(1, decisions=[ResizeTrial(tid(0), cpus(2))])
    world.ask(Ask.PAUSE, 0)
    world.report(0)
    world.saved(0, "0/c1")
    world.exited(0)
    assert world[0].resources == cpus(2)
    assert not world[0].is_by_person


def test_rule_13_a_person_retries_an_ended_trial_and_its_failures_are_forgiven():
    world = running(max_failures=0)
    world.report(0, "0/c1")
    world.exited(0, ExitKind.FAILED, "ValueError: x")
    world.released(0)
    assert (world[0].status, world[0].reason) == (ERROR, "ValueError: x")
    assert world.ask(Ask.RETRY, 0) == ["start 0.2"]
    assert (world[0].failures, world[0].started_from.path) == (0, "0/c1")
    assert world.ask(Ask.RETRY, 0) == []


def test_rule_13_a_retried_trial_is_judged_by_asha_like_any_other():
    asha = ASHAScheduler(max_t=100, reduction_factor=3)
    asha.set_search_properties("m", "max")
    world = running(scheduler=asha)
    world.report(0, m=1.0)
    world.ended(0, ExitKind.FAILED)
    world.ask(Ask.RETRY, 0)
    world.started(0)
    world.report(0, m=1.0)  # a repeat
    assert world.report(0, m=2.0) == ["tell result 0", "continue 0.2#2"]


@pytest.mark.parametrize("what", [Ask.PAUSE, Ask.RESUME, Ask.RETRY, Ask.CANCEL])
@pytest.mark.parametrize("situation", ["nobody", "PENDING", "TERMINATED"])
def test_rule_13_what_a_person_asks_of_a_trial_that_cannot_do_it_is_ignored(what, situation):
    world = stage("PENDING" if situation == "nobody" else situation)
    before = dict(world.sweep.trials)
    number = 77 if situation == "nobody" else SUBJECT
    if (what, situation) in ((Ask.RETRY, "TERMINATED"), (Ask.CANCEL, "PENDING")):
        return
    assert world.ask(what, number) == []
    assert dict(world.sweep.trials) == before


def test_rule_13_fail_fast_stops_the_others_after_the_first_error():
    world = two_running(fail_fast=True)
    assert world.exited(0, ExitKind.FAILED) == ["tell error 0", "stop 1.1", "tell complete 2", "tell complete 3"]
    assert world[1].reason == "trial 00000 failed and fail_fast is set"
    assert world.exited(1) == ["tell complete 1"]


# --- rule 14: how an exit counts -----------------------------------------------------------------------------------

MY_FAULT = [ExitKind.FAILED, ExitKind.KILLED, ExitKind.OUT_OF_MEMORY, ExitKind.HUNG]


@pytest.mark.parametrize("kind", MY_FAULT)
def test_rule_14_the_trials_own_faults_are_failures_up_to_the_limit(kind):
    world = running(max_failures=1)
    assert world.exited(0, kind) == ["tell recover 0", "start 0.2"]
    assert (world[0].failures, world[0].losses) == (1, 0)
    world.started(0)
    assert world.exited(0, kind, "the second") == ["tell error 0"]
    assert (world[0].status, world[0].failures, world[0].reason) == (ERROR, 2, "the second")


def test_rule_14_failures_without_limit():
    world = running(max_failures=-1)
    for attempt in range(2, 30):
        assert f"start 0.{attempt}" in world.exited(0, ExitKind.FAILED)
        world.released(0)
        world.tell(Released(tid(0), attempt - 1))
        world.started(0)


@pytest.mark.parametrize("kind", [ExitKind.LOST])
def test_rule_14_a_loss_is_no_failure_and_has_its_own_limit(kind):
    world = opened(max_failures=0, max_losses=3)
    world.suggest(0)
    for loss in range(1, 4):
        world.started(0)
        assert f"start 0.{loss + 1}" in world.exited(0, kind)
        assert (world[0].losses, world[0].failures) == (loss, 0)
    world.started(0)
    assert world.exited(0, kind, "node b went away") == ["tell error 0"]
    assert world[0].reason == "lost 4 times: node b went away"


@pytest.mark.parametrize("kind", [*MY_FAULT, ExitKind.STOPPED, ExitKind.LOST])
def test_rule_14_an_exit_before_it_started_is_a_loss(kind):
    world = opened(max_failures=0, max_losses=1)
    world.suggest(0)
    assert world.exited(0, kind) == ["tell recover 0", "start 0.2"]
    assert (world[0].losses, world[0].failures) == (1, 0)
    assert world.exited(0, kind) == ["tell error 0"]


def test_rule_14_a_judged_report_resets_the_losses_but_a_repeat_does_not():
    world = running(max_losses=3)
    world.report(0)
    world.exited(0, ExitKind.LOST)
    assert world[0].losses == 1
    world.report(0)  # a repeat: judged_to is 1
    assert world[0].losses == 1
    world.report(0)
    assert world[0].losses == 0


@pytest.mark.parametrize(
    "situation",
    ["STARTING", "RUNNING", "RUNNING, to pause", "STOPPING to TERMINATED", "STOPPING to PENDING", "STOPPING to PAUSED"],
)
def test_rule_14_finished_always_gives_terminated(situation):
    world = stage(situation)
    assert world.exited(SUBJECT, ExitKind.FINISHED) == ["tell complete 0"]
    assert (world[SUBJECT].status, world[SUBJECT].pending, world[SUBJECT].next_status) == (TERMINATED, None, None)


STOPPING_EXITS = [
    # situation, exit, told, status, failures
    ("STOPPING to TERMINATED", ExitKind.STOPPED, ["tell complete 0"], TERMINATED, 0),
    ("STOPPING to TERMINATED", ExitKind.KILLED, ["tell complete 0"], TERMINATED, 0),
    ("STOPPING to TERMINATED", ExitKind.FAILED, ["tell complete 0"], TERMINATED, 0),
    ("STOPPING to TERMINATED", ExitKind.LOST, ["tell complete 0"], TERMINATED, 0),
    ("STOPPING to PENDING", ExitKind.STOPPED, [], PENDING, 0),
    ("STOPPING to PENDING", ExitKind.KILLED, [], PENDING, 0),
    ("STOPPING to PENDING", ExitKind.LOST, [], PENDING, 0),
    ("STOPPING to PENDING", ExitKind.HUNG, [], PENDING, 0),
    ("STOPPING to PENDING", ExitKind.FAILED, ["tell error 0"], ERROR, 1),
    ("STOPPING to PAUSED", ExitKind.STOPPED, ["tell pause 0"], PAUSED, 0),
    ("STOPPING to PAUSED", ExitKind.KILLED, ["tell pause 0"], PAUSED, 0),
    ("STOPPING to PAUSED", ExitKind.LOST, ["tell pause 0"], PAUSED, 0),
    ("STOPPING to PAUSED", ExitKind.FAILED, ["tell error 0"], ERROR, 1),
]


@pytest.mark.parametrize(("situation", "kind", "told", "status", "failures"), STOPPING_EXITS)
def test_rule_14_where_a_stopping_trial_goes(situation, kind, told, status, failures):
    world = stage(situation)
    assert world.exited(SUBJECT, kind) == told
    trial = world[SUBJECT]
    assert (trial.status, trial.next_status, trial.failures, trial.losses) == (status, None, failures, 0)


def test_rule_14_a_failed_exit_on_the_way_to_a_pause_counts_and_the_pause_holds_below_the_limit():
    world = running(max_failures=1)
    world.report(0, "0/c1", decisions=[PauseTrial(tid(0))])
    assert world.exited(0, ExitKind.FAILED) == ["tell pause 0"]
    assert (world[0].status, world[0].failures) == (PAUSED, 1)


@pytest.mark.parametrize("kind", [ExitKind.STOPPED, ExitKind.KILLED, ExitKind.LOST])
def test_rule_14_a_pause_whose_save_was_never_committed_waits_again(kind):
    world = running(can_save_on_demand=True)
    world.report(0, decisions=[PauseTrial(tid(0))])
    assert world.exited(0, kind) == ["start 0.2"]
    assert world[0].failures == 0


# --- rule 15: asking -----------------------------------------------------------------------------------------------


def test_rule_15_an_adaptive_searcher_is_asked_exactly_when_the_last_request_would_fit():
    world = World(num_cpus=4, num_trials=9, ask_ahead=1)
    assert world.open() == ["suggest 0"]
    assert world.suggest(0, 2.0) == ["start 0.1", "suggest 1"]
    assert world.suggest(1, 2.0) == ["start 1.1"]
    assert world.started(0) == ["tell start 0"]
    assert world.report(0) == ["tell result 0", "continue 0.1#1"]
    assert world.exited(0, ExitKind.FINISHED) == ["tell complete 0"]
    assert world.released(0) == ["suggest 2"]


def test_rule_15_after_a_restart_the_last_suggested_request_still_says_when_a_slot_is_free():
    gpu = Resources((Bundle(cpu=1, gpu=1),))
    world = World(
        nodes=(Node("n", 8, devices=(Device("g0"),)),),
        trials=[evolve(loaded(), resources=gpu)],
        num_trials=3,
        ask_ahead=1,
    )
    assert world.open() == ["tell recover 0", "start 0.2"]


def test_rule_15_a_searcher_that_is_not_adaptive_is_asked_ahead():
    world = World(num_cpus=1, num_trials=None, ask_ahead=4)
    assert world.open() == ["suggest 0", "suggest 1", "suggest 2", "suggest 3"]
    assert world.suggest(0) == ["start 0.1"]
    assert world.suggest(1) == []
    assert world.suggest(2) == []
    assert world.suggest(3) == []
    world.exited(0, ExitKind.FINISHED)
    assert world.released(0) == ["start 1.1", "suggest 4", "suggest 5"]


def test_rule_15_never_more_trials_than_asked_for():
    world = World(num_trials=2, ask_ahead=64)
    assert world.open() == ["suggest 0", "suggest 1"]
    world.suggest(0)
    assert world.suggest(1) == ["start 1.1"]


def test_rule_15_paused_trials_do_not_count_as_waiting():
    world = running(num_trials=3, num_cpus=1)
    world.report(0, "0/c1", decisions=[PauseTrial(tid(0))])
    lines = world.ended(0)
    assert "suggest 1" in lines


def test_rule_15_an_exhausted_searcher_is_not_asked_again():
    world = running(num_trials=None, num_cpus=1)
    world.ended(0, ExitKind.FINISHED)
    world.answer(1, EXHAUSTED)
    assert world.sweep.done


def test_three_failed_suggestions_in_a_row_end_the_sweep():
    world = opened(num_trials=2)
    assert world.answer(0, Failed("boom 1")) == ["suggest 0"]
    assert world.answer(0, Failed("boom 2")) == ["suggest 0"]
    assert world.answer(0, Failed("boom 3")) == ["fail SearchError"]
    assert "3 times in a row: boom 3" in str(world.failure)


@pytest.mark.parametrize("between", ["a config", "not now"])
def test_an_answer_between_failed_suggestions_begins_a_new_row(between):
    world = opened(num_trials=9, num_cpus=9)
    number = 0
    for _ in range(3):
        assert world.answer(number, Failed("boom")) == [f"suggest {number}"]
        assert world.answer(number, Failed("boom")) == [f"suggest {number}"]
        if between == "a config":
            assert world.suggest(number) == [f"start {number}.1", f"suggest {number + 1}"]
            number += 1
        else:
            world.answer(number, NOT_NOW)
            assert world.wait(1.0) == [f"suggest {number}"]


def test_the_oldest_waiting_trial_is_overtaken_at_most_sixteen_times():
    world = running(num_cpus=2, num_trials=40, ask_ahead=64)
    world.suggest(1, 2.0)  # waits for the whole machine
    starts = []
    for number in range(2, 40):
        starts += [text for text in world.suggest(number, 1.0) if text.startswith("start")]
        begun = [t.number for t in world.sweep.trials.values() if t.status is STARTING]
        for one in begun:
            world.exited(one, ExitKind.FINISHED)
            starts += [text for text in world.released(one) if text.startswith("start")]
    assert len(starts) == 16
    world.exited(0, ExitKind.FINISHED)
    assert world.released(0)[0] == "start 1.1"


# --- the metric ----------------------------------------------------------------------------------------------------


def test_a_metric_that_is_no_number_puts_its_trial_alone_in_error_and_is_not_retried():
    world = running(2, metric="m", max_failures=-1)
    assert world.report(0, m="0.3") == ["tell result 0", "stop 0.1#1"]
    assert (world[0].status, world[0].next_status) == (STOPPING, ERROR)
    assert world.exited(0) == ["tell error 0"]
    assert (world[0].status, world[0].failures, world[0].best_result) == (ERROR, 1, None)
    assert world[0].reason == "the metric 'm' is '0.3', a str; expected a number"
    assert world.scheduler.heard[2:] == [("end", 0, "ERROR")]  # it was not asked about the report
    assert world.report(1, m=1.0) == ["tell result 1", "continue 1.1#1"]


def test_the_value_that_is_no_number_is_cut_and_a_nested_one_names_what_is_in_it():
    world = running(2, metric="eval")
    world.report(0, eval=list(range(1000)))
    assert world[0].reason.startswith("the metric 'eval' is [0, 1, 2")
    assert len(world[0].reason) < 150
    world.report(1, eval={"acc": 0.5, "loss": 1})
    assert world[1].reason == (
        "the metric 'eval' is {'acc': 0.5, 'loss': 1}, a dict; expected a number. Name one of 'eval/acc', 'eval/loss'"
    )


@pytest.mark.parametrize("value", [1, 0.5, True, float("nan"), float("inf"), None])
def test_numbers_are_metrics_nan_and_bools_included_and_none_is_not_measured_yet(value):
    world = running(metric="m")
    assert world.report(0, m=value, loss=1) == ["tell result 0", "continue 0.1#1"]


def test_every_one_of_several_objectives_has_to_be_a_number():
    world = running(required=("m", "latency_s"))
    assert world.report(0, m=1.0, latency_s="fast") == ["tell result 0", "stop 0.1#1"]
    assert "'latency_s' is 'fast'" in world[0].reason


@pytest.mark.parametrize("kind", list(ExitKind))
def test_however_the_attempt_ends_after_a_metric_that_is_no_number_the_trial_is_in_error(kind):
    world = running(metric="m", max_failures=3)
    world.report(0, "0/c1", m="0.3")
    world.exited(0, kind, "raised")
    assert world[0].status is ERROR
    assert "'m' is '0.3'" in world[0].reason


@pytest.mark.parametrize(
    "decision",
    [
        StopTrial(tid(0)),
        CloneTrial(tid(0), tid(1), {"x": 9}),
        PauseTrial(tid(0)),
        ResumeTrial(tid(0)),
        SaveTrial(tid(0)),
        ResizeTrial(tid(0), cpus(2)),
    ],
)
def test_nothing_that_a_scheduler_decides_leads_away_from_the_error_that_was_decided(decision):
    world = running(2, metric="m")
    world.report(1, "1/c1")
    world.report(0, m="0.3")
    assert world.report(1, decisions=[decision]) == ["tell result 1", "continue 1.1#2"]
    assert (world[0].next_status, world[0].pending) == (ERROR, None)


@pytest.mark.parametrize("what", [Ask.CANCEL, Ask.INTERRUPT, Ask.DRAIN, Ask.PAUSE, Ask.RESUME])
def test_no_person_leads_away_from_the_error_that_was_decided(what):
    world = running(metric="m")
    world.report(0, m="0.3")
    world.ask(what, None if what in (Ask.INTERRUPT, Ask.DRAIN) else 0)
    world.exited(0)
    assert world[0].status is ERROR
    assert "'m' is '0.3'" in world[0].reason


def test_a_trial_that_was_going_to_its_error_when_the_driver_died_is_there_after_the_restart():
    trial = loaded(0, status=STOPPING, next_status=ERROR, reason="the metric 'm' is '0.3'", attempt=1)
    world = World(trials=[trial], max_failures=-1)
    assert "tell error 0" in world.open()
    assert (world[0].status, world[0].reason) == (ERROR, "the metric 'm' is '0.3'")


def test_a_metric_that_no_report_has_ends_the_sweep_at_the_tenth_and_names_what_was_reported():
    world = running(metric="los")
    for number in range(1, 10):
        assert world.report(0, loss=1.0, eval={"f1": 2.0}) == ["tell result 0", f"continue 0.1#{number}"]
    assert "fail MetricError" in world.report(0, loss=1.0, eval={"f1": 2.0})
    assert str(world.failure) == (
        "a trial reported eval/f1, loss; expected the metric 'los'. Did you mean 'loss'? Report it, or name one of "
        "those as metric=. When it comes after more than 10 reports, pass strict_metric=False."
    )
    assert world.sweep.done


def test_a_metric_that_three_trials_never_reported_ends_the_sweep():
    world = opened(num_trials=5, metric="acc")
    for number in range(3):
        world.run(number)
        world.report(number, loss=1.0)
        lines = world.exited(number, ExitKind.FINISHED)
        assert world[number].reason == "never reported the metric 'acc'"
        assert world[number].status is TERMINATED
    assert "fail MetricError" in lines
    assert str(world.failure).startswith("3 trials reported loss; expected the metric 'acc'.")


def test_a_metric_that_one_trial_has_shown_is_judged_per_trial_from_then_on():
    world = running(num_trials=9, metric="acc")
    world.report(0, acc=1.0)
    world.exited(0, ExitKind.FINISHED)
    for number in range(1, 5):
        world.released(number - 1)
        world.run(number)
        for _ in range(12):
            world.report(number, loss=1.0)
        assert "tell complete" in world.exited(number, ExitKind.FINISHED)[0]
        assert world[number].reason == "never reported the metric 'acc'"
    assert world.failure is None
    assert world[0].reason == ""
    assert world.sweep.metric_error() is None


def test_at_the_end_a_metric_that_no_trial_reported_is_an_error_also_of_a_small_sweep():
    world = running(metric="acc")
    world.report(0, loss=1.0)
    world.exited(0, ExitKind.FINISHED)
    assert world.sweep.metric_error() is not None
    assert world.failure is None


def failing(world, reasons):
    """Let trials fail one after another while one more runs; returns how many did until the sweep failed."""
    for number, reason in enumerate(reasons):
        world.run(number)
        if number:
            world.ended(number - 1, ExitKind.FAILED, reason)
        if world.failure is not None:
            return number
    return None


@pytest.mark.parametrize(
    ("plan", "reasons", "number"),
    [
        ({}, ["KeyError: 'lr'"] * 20, 6),  # two run at a time
        ({}, [f"ValueError: step {n} of 10" for n in range(20)], 6),
        ({"max_identical_failures": 2}, ["KeyError: 'lr'"] * 20, 2),
        ({"max_identical_failures": -1}, ["KeyError: 'lr'"] * 20, None),
        ({}, ["KeyError: 'lr'"] * 5 + ["KeyError: 'x'"] + ["KeyError: 'lr'"] * 20, None),
    ],
)
def test_trials_that_all_fail_alike_before_any_has_reported_end_the_sweep(plan, reasons, number):
    world = opened(num_trials=40, **plan)
    assert failing(world, reasons) == number
    if number is not None:
        assert str(world.failure).startswith(f"the first {number} trials all failed alike, before any had reported: ")
        assert [world[n].status for n in range(number + 1)] == [ERROR] * number + [RUNNING]


def test_one_report_or_one_trial_that_ends_well_is_enough_to_go_on():
    for word in ("report", "end"):
        world = opened(num_trials=40)
        world.run(0)
        world.report(0) if word == "report" else world.ended(0, ExitKind.FINISHED)
        for number in range(1, 20):
            world.run(number)
            world.ended(number, ExitKind.FAILED, "KeyError: 'lr'")
        assert world.failure is None


def test_trials_that_never_ran_are_not_said_to_fail_alike():
    world = opened(num_trials=40, num_cpus=1.0)
    for number in range(10):
        world.suggest(number, 9.0)
        assert world[number].status is ERROR
    assert world.failure is None


def test_a_trial_that_reported_nothing_at_all_ends_with_that_reason():
    world = opened(num_trials=4, metric="acc")
    for number in range(3):
        world.run(number)
        lines = world.exited(number, ExitKind.FINISHED)
        assert (world[number].status, world[number].reason) == (
            TERMINATED,
            "reported nothing; expected the metric 'acc'",
        )
    assert "fail MetricError" in lines
    assert str(world.failure).startswith("3 trials reported nothing; expected the metric 'acc'.")


@pytest.mark.parametrize("how", ["scheduler", "cancel", "drain", "interrupt", "budget"])
def test_trials_that_were_stopped_or_drained_are_not_judged_by_what_they_reported(how):
    world = running(metric="acc", time_budget_s=10.0)
    match how:
        case "scheduler":
            world.report(0, loss=1.0, decisions=[StopTrial(tid(0), "stopped early")])
        case "budget":
            world.wait(20.0)
        case _:
            world.ask(Ask(how), 0 if how == "cancel" else None)
    world.exited(0, ExitKind.FINISHED if how in ("drain", "budget") else ExitKind.STOPPED)
    assert "reported" not in world[0].reason
    assert world.sweep.metric_error() is None


@pytest.mark.parametrize(
    ("plan", "report"), [({"stop": {"training_iteration": 1}}, {"loss": 1.0}), ({}, {"loss": 1.0, "done": True})]
)
def test_a_trial_that_went_all_its_way_to_a_stop_rule_without_the_metric_says_so(plan, report):
    world = running(metric="acc", **plan)
    assert "stop 0.1#1" in world.report(0, **report)
    world.exited(0)
    assert world[0].status is TERMINATED
    assert world[0].reason.endswith("; never reported the metric 'acc'")
    assert world.sweep.metric_error() is not None


def test_what_earlier_runs_of_the_driver_showed_counts_after_a_resume():
    result = TrialResult({"loss": 1.0, "training_iteration": 1})
    silent = {"status": TERMINATED, "reason": "never reported the metric 'los'", "cause": Cause.SILENT}
    trials = [loaded(number, last_result=result, **silent) for number in range(2)]
    wrong = World(trials=trials, num_trials=4, metric="los")
    right = World(trials=trials, num_trials=4, metric="loss")
    for world in (wrong, right):
        world.open()
        world.run(2)
        world.report(2, loss=1.0)
        world.exited(2, ExitKind.FINISHED)
    assert "3 trials reported loss" in str(wrong.failure)
    assert right.failure is None
    assert right.sweep.metric_error() is None


def test_a_later_report_may_lack_the_metric():
    world = running(metric="acc")
    world.report(0, acc=1.0)
    assert world.report(0, loss=1.0) == ["tell result 0", "continue 0.1#2"]


def test_a_metric_that_is_not_strict_may_be_missing_or_a_text():
    world = running(metric="acc", required=())
    for number in range(1, 20):
        assert world.report(0, loss=1.0) == ["tell result 0", f"continue 0.1#{number}"]
    assert world.report(0, acc="good") == ["tell result 0", "continue 0.1#20"]
    world.exited(0, ExitKind.FINISHED)
    assert world[0].reason == ""
    assert world.sweep.metric_error() is None


# --- keys of stop= that nobody reports ---


def test_a_stop_key_that_three_trials_never_showed_ends_the_sweep_when_it_is_the_only_criterion():
    world = opened(num_trials=5, stop={"acuracy": 0.9})
    for number in range(3):
        assert world.failure is None
        world.run(number)
        world.report(number, m=1.0, accuracy=1.0)
        world.exited(number, ExitKind.FINISHED)
    assert isinstance(world.failure, MetricError)
    assert "stop= names 'acuracy' alone, and 3 trials never reported it" in str(world.failure)
    assert "Did you mean 'accuracy'?" in str(world.failure)


def test_trials_that_never_end_show_after_a_hundred_reports_that_they_lack_the_stop_key():
    world = running(3, stop={"acuracy": 0.9})
    for _ in range(99):
        for number in range(3):
            world.report(number)
    assert world.failure is None
    for number in range(3):
        world.report(number)
    assert isinstance(world.failure, MetricError)


@pytest.mark.parametrize("stop", [{"acuracy": 0.9, "training_iteration": 9}, {"m": 100.0}])
def test_a_stop_key_that_is_reported_or_not_the_only_criterion_ends_no_sweep(stop):
    world = opened(num_trials=5, stop=stop)
    for number in range(5):
        world.run(number)
        world.report(number, m=1.0)
        world.ended(number, ExitKind.FINISHED)
    assert world.failure is None
    assert world.sweep.done


def test_a_nested_metric_is_found_by_its_path():
    world = running(metric="eval/acc")
    assert world.report(0, eval={"acc": 0.5}) == ["tell result 0", "continue 0.1#1"]
    assert world[0].best_result["eval/acc"] == 0.5


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        ("max", [1.0, float("nan"), 3.0, 2.0], 3.0),
        ("min", [2.0, float("nan"), 1.0, 3.0], 1.0),
        ("max", [float("nan"), -5.0], -5.0),
        ("min", [float("nan"), float("inf")], float("inf")),
        ("max", [float("inf"), 1.0], 1.0),  # an infinity is the best only where there is no number
        ("max", [1.0, float("inf")], 1.0),
        ("max", [2.0, 2.0], 2.0),
    ],
)
def test_the_best_result_is_the_best_number_and_nan_loses_to_all(mode, values, best):
    world = running(mode=mode)
    for value in values:
        world.report(0, m=value)
    assert world[0].best_result["m"] == best


def test_among_equals_the_first_stays_the_best():
    world = running()
    world.report(0, m=2.0)
    world.report(0, m=2.0)
    assert world[0].best_result["training_iteration"] == 1


# --- what is told --------------------------------------------------------------------------------------------------


def test_what_is_told_carries_the_trial_as_it_was_at_the_event():
    world = running(num_to_keep=1)
    world.report(0, "0/c1", m=0.25)
    told = [command for command in world.commands if isinstance(command, Notify)]
    assert [command.hook for command in told[-2:]] == [Hook.RESULT, Hook.SAVE]
    assert told[-2].result == told[-2].trial.last_result
    assert told[-1].trial.checkpoint.path == "0/c1"
    world.exited(0, ExitKind.FINISHED)
    (told,) = [command for command in world.commands if isinstance(command, Notify)]
    assert told.trial.status is TERMINATED
    assert told.result["m"] == 0.25


def test_a_discard_names_the_checkpoint_that_was_saved():
    world = running(num_to_keep=1)
    world.report(0, "0/c1", training_iteration=10, m=1.0, time_this_iter_s=2.0)
    world.report(0, "0/c2")
    (discard,) = [command for command in world.commands if isinstance(command, Discard)]
    assert discard.checkpoint == CheckpointRef("0/c1", 1, 10, 2.0)


def test_counts_are_kept_by_status():
    world = two_running()
    assert {status: n for status, n in world.sweep.counts.items() if n} == {RUNNING: 2, PENDING: 2}
    assert world.sweep.num_held == 2


def test_the_view_of_the_trials_cannot_be_written_to():
    world = two_running()
    with pytest.raises(TypeError):
        world.sweep.trials["x"] = world[0]  # type: ignore[index]
    with pytest.raises(AttributeError):
        world[0].status = ERROR  # type: ignore[misc]


def test_the_base_scheduler_lets_everything_continue_and_resumes_what_is_paused_in_order():
    class Plain(Scheduler):
        def on_result(self, trial, result, trials):
            return ()

    trials = {tid(n): loaded(n, status=PAUSED, is_by_person=n == 1) for n in range(3)}
    assert Plain().on_idle(trials) == [ResumeTrial(tid(0)), ResumeTrial(tid(2))]
    assert Plain().choose(list(trials.values())).id == tid(0)


# --- a node that leaves --------------------------------------------------------------------------------------------


def leaving_two(**plan):
    """Return a world with a trial on each of two nodes, of which b has just said that it leaves."""
    one, other = Node("a", 1), Node("b", 1)
    world = opened(**{"nodes": (one, other), "num_trials": 4, "ask_ahead": 4, **plan})
    for number in range(4):
        world.suggest(number)
    for number in range(2):
        world.started(number)
    assert world[1].placement.bundles[0].node == "b"
    return world, NodesChanged((one,), (other,))


def test_trials_of_a_node_that_leaves_end_at_their_next_checkpoint_and_go_on_first_without_a_failure():
    world, leaves = leaving_two()
    assert world.tell(leaves) == []
    assert world.tell(leaves) == []  # said again
    assert world.report(1, "c") == ["tell result 1", "tell save 1", "stop 1.1#1"]
    assert world.ended(1) == []  # nothing starts there
    assert world.ended(0, ExitKind.FINISHED) == ["tell complete 0", "start 1.2"]
    assert world[1].checkpoint.path == "c"
    assert (world[1].failures, world[1].losses, world[1].node_losses) == (0, 0, 0)


def test_one_that_saves_on_demand_is_asked_to_and_one_that_starts_as_soon_as_it_reports():
    world, leaves = leaving_two(can_save_on_demand=True)
    assert world.tell(leaves) == []
    assert world.report(1) == ["tell result 1", "stop 1.1#1 saving"]
    world, leaves = leaving_two()
    world.ended(0, ExitKind.FINISHED)
    assert world[2].placement.bundles[0].node == "a"
    assert world.tell(NodesChanged((Node("b", 1),), (Node("a", 1),))) == []
    world.started(2)
    assert world.report(2, "c") == ["tell result 2", "tell save 2", "stop 2.1#1"]
    world.ended(2)
    assert world.ended(1, ExitKind.FINISHED) == ["tell complete 1", "start 2.2"]  # before 3


def test_one_that_never_saved_goes_on_until_the_node_is_gone():
    world, leaves = leaving_two()
    world.tell(leaves)
    assert world.report(1) == ["tell result 1", "continue 1.1#1"]
    assert world.exited(1, ExitKind.NODE_LOST) == ["tell recover 1"]
    assert world[1].node_losses == 1
