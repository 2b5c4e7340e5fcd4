"""HyperBand: brackets as Tune's, whole lists of decisions, sweeps in virtual time that spend what the table says."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from conformance.schedulers import Told, tid
from sweep_run import in_virtual_time, new_sweep

from sweep.core.messages import CloneTrial, PauseTrial, ResumeTrial, StopTrial
from sweep.core.trial import Cause, Status
from sweep.engines.simulator import Point
from sweep.schedulers.hyperband import HyperBandScheduler, bracket_milestones


def hyperband(mode="max", *, num_trials=0, **arguments):
    scheduler = HyperBandScheduler(**arguments)
    scheduler.set_search_properties("m", mode)
    return Told(scheduler, num_trials)


def second_bracket(arrived=(), **arguments):
    """Return a HyperBand of (9, 3) whose bracket [(5, 3), (2, 9)] holds trials 3 to 7, and trials 0 to 2 have ended.

    The trials that have `arrived` at 3 reported their number there.
    """
    told = hyperband(max_t=9, **arguments, num_trials=8)
    for number in range(3):
        told.end(number)
    for number in arrived:
        told.reach(number, 3, number)
    return told


def restart(told, number):
    told.put(number, status=Status.RUNNING, attempt=told.trials[tid(number)].attempt + 1)


@pytest.mark.parametrize(
    ("max_t", "factor", "brackets"),
    [
        (81, 3, "5@81 | 8@27 3@81 | 15@9 5@27 2@81 | 34@3 12@9 4@27 2@81 | 81@1 27@3 9@9 3@27 1@81"),
        (100, 4, "4@100 | 8@25 2@100 | 22@6 6@24 2@96 | 64@1 16@4 4@16 1@64"),
        (16, 2, "5@16 | 5@8 3@16 | 7@4 4@8 2@16 | 10@2 5@4 3@8 2@16 | 16@1 8@2 4@4 2@8 1@16"),
        (9, 3, "3@9 | 5@3 2@9 | 9@1 3@3 1@9"),
        (6, 3, "3@6 | 5@2 2@6"),  # a third bracket would begin below 1
        (1, 3, "1@1"),
    ],
)
def test_the_brackets_are_these(max_t, factor, brackets):
    """So many trials at so many steps."""
    found = [" ".join(f"{number}@{at}" for number, at in bracket) for bracket in bracket_milestones(max_t, factor)]
    assert " | ".join(found) == brackets


def test_trials_wait_for_each_other_and_the_best_go_on():
    told = second_bracket()
    why = "waits for its bracket at training_iteration=3"
    for number, m in [(3, 0.3), (4, 0.9), (5, 0.1), (6, 0.5)]:
        assert told.reach(number, 2, m) == []
        assert told.reach(number, 3, m) == [PauseTrial(tid(number), why)]
    assert told.reach(7, 3, 0.7) == [
        StopTrial(tid(6), "stopped early: m=0.5 at 3 is not among the best 2"),
        StopTrial(tid(3), "stopped early: m=0.3 at 3 is not among the best 2"),
        StopTrial(tid(5), "stopped early: m=0.1 at 3 is not among the best 2"),
        ResumeTrial(tid(4)),
    ]  # 7 itself goes on, by no decision
    assert told.scheduler.num_stopped == 3
    assert told.reach(7, 8) == []
    assert told.reach(7, 9) == [
        StopTrial(tid(7), "reached the last milestone of its bracket: training_iteration=9", Cause.REACHED),
    ]
    restart(told, 4)
    assert [type(d) for d in told.reach(4, 9)] == [StopTrial]
    assert told.scheduler.state() == []


def test_nan_is_the_worst():
    told = second_bracket()
    for number, m in [(3, math.nan), (4, -1e9), (5, math.nan), (6, -math.inf)]:
        told.reach(number, 3, m)
    decisions = told.reach(7, 3, -5.0)
    assert {d.trial_id for d in decisions if isinstance(d, StopTrial)} == {tid(3), tid(5), tid(6)}
    assert "m=nan at 3" in decisions[0].reason


@pytest.mark.parametrize("does_fail", [True, False])
def test_a_bracket_is_halved_when_the_last_one_on_its_way_ends_or_a_person_paused_it(does_fail):
    told = second_bracket(arrived=(3, 4, 5, 6))
    if does_fail:
        decisions = told.end(7, Status.ERROR)
    else:
        told.put(7, status=Status.PAUSED, is_by_person=True)
        decisions = told.scheduler.on_idle(told.trials)
    assert decisions == [
        StopTrial(tid(4), "stopped early: m=4 at 3 is not among the best 2"),
        StopTrial(tid(3), "stopped early: m=3 at 3 is not among the best 2"),
        ResumeTrial(tid(6)),
        ResumeTrial(tid(5)),
    ]


def test_a_trial_that_fails_before_its_first_milestone_gives_its_place_to_another():
    told = hyperband(max_t=9, num_trials=5)
    told.end(3, Status.ERROR)
    told.end(4, Status.TERMINATED)  # it finished: its place stays taken
    for number in range(5, 9):
        told.add(number)
    assert [(n, len(members)) for _, _, n, members in told.scheduler.state()] == [(3, 3), (5, 4)]
    told.add(9)
    assert [(n, len(members)) for _, _, n, members in told.scheduler.state()] == [(3, 3), (5, 4), (1, 1)]


def test_a_trial_that_cannot_be_paused_is_judged_by_what_it_had_at_the_milestone():
    told = second_bracket()
    told.reach(3, 3, 0.1)
    for time in (4, 5, 6):
        assert [type(d) for d in told.reach(3, time, 99.0)] == [PauseTrial]  # it might have saved meanwhile
    told.scheduler.on_refused(told.trials[tid(3)], PauseTrial(tid(3)))
    told.scheduler.on_refused(told.trials[tid(4)], PauseTrial(tid(4)))
    told.scheduler.on_refused(told.trials[tid(4)], CloneTrial(tid(4), tid(3), {}))
    assert len(told.scheduler.notices) == 1
    assert "never saved a checkpoint" in told.scheduler.notices[0]
    for number in (4, 5, 6):
        told.reach(number, 3, 0.5)
    assert StopTrial(tid(3), "stopped early: m=0.1 at 3 is not among the best 2") in told.reach(7, 3, 0.5)


def test_a_trial_that_ran_ahead_and_is_among_the_best_only_loses_its_pause():
    told = second_bracket()
    told.reach(3, 3, 5.0)
    told.reach(3, 4, 5.0)
    for number in (4, 5, 6):
        told.reach(number, 3, 0.5)
    assert ResumeTrial(tid(3)) in told.reach(7, 3, 0.1)
    assert told.reach(3, 5) == []


def test_one_result_may_pass_several_milestones():
    told = hyperband(max_t=9, num_trials=17)
    for number in range(8, 16):
        told.reach(number, 4, number)
    decisions = told.reach(16, 4, 99.0)  # [(9, 1), (3, 3), (1, 9)] is halved twice at once
    assert sum(isinstance(d, StopTrial) for d in decisions) == 8
    assert not any(d.trial_id == tid(16) for d in decisions)
    assert told.scheduler.state()[-1][0] == 2


def test_without_stop_last_trials_the_best_run_on():
    told = second_bracket(arrived=(3, 4, 5, 6, 7), stop_last_trials=False)
    for time in (9, 10, 50):
        assert told.reach(7, time) == []


def test_when_nothing_more_will_come_a_bracket_is_halved_as_it_is():
    told = hyperband(max_t=9, num_trials=6)
    for number in range(3):
        told.end(number)
    for number in (3, 4, 5):
        told.reach(number, 3, number)
    assert told.scheduler.on_idle(told.trials) == [
        StopTrial(tid(3), "stopped early: m=3 at 3 is not among the best 2"),
        ResumeTrial(tid(5)),
        ResumeTrial(tid(4)),
    ]
    told.add(6)  # a searcher that had been waiting: the next bracket
    assert [members.keys() for *_, members in told.scheduler.state()] == [{tid(4), tid(5)}, {tid(6)}]


def test_when_nothing_runs_who_ran_ahead_waits_on_at_the_next_milestone():
    told = hyperband(max_t=9, num_trials=11)
    for number in (8, 9, 10):  # of the bracket [(9, 1), (3, 3), (1, 9)]
        told.reach(number, 1, number)
    told.reach(8, 4, 8)
    assert told.scheduler.on_idle(told.trials) == [ResumeTrial(tid(10)), ResumeTrial(tid(9))]


def test_what_is_paused_for_other_reasons_is_resumed_when_nothing_runs():
    told = second_bracket()
    for number in (3, 5):
        told.put(number, status=Status.PAUSED)
    assert told.scheduler.on_idle(told.trials) == [ResumeTrial(tid(3)), ResumeTrial(tid(5))]


def test_a_trial_that_a_person_lets_run_again_is_compared_where_it_reports():
    told = hyperband(max_t=9, num_trials=4)
    told.end(0, Status.ERROR)
    told.scheduler.on_trial_add(told.trials[tid(0)])
    assert [n for _, _, n, _ in told.scheduler.state()] == [3, 1]
    told.report(0, m=1.0)
    assert [n for _, _, n, _ in told.scheduler.state()] == [3, 2]


# --- sweeps in virtual time ----------------------------------------------------------------------------------------


def simulated(num_trials, cpus, max_t=81):
    """Run a sweep whose trial i reports i at every step, one second each; returns how far each trial came."""

    def curve(config, done):
        for _ in range(done, 1000):
            yield Point(1.0, {"m": config["x"]}, has_checkpoint=True)

    sweep = new_sweep(hyperband(max_t=max_t).scheduler, num_trials=num_trials, ask_ahead=4)
    in_virtual_time(sweep, curve, [{"x": (37 * i) % 101} for i in range(num_trials)], cpus=cpus)
    return [trial.last_result["training_iteration"] for trial in sweep.trials.values()]


@pytest.mark.parametrize("cpus", [3, 16])
def test_a_full_band_spends_what_the_table_says(cpus):
    brackets = bracket_milestones(81, 3)
    sizes = [levels[0][0] for levels in brackets]
    steps = simulated(sum(sizes), cpus)
    first = 0
    for size, levels in zip(sizes, brackets, strict=True):
        reached = Counter(steps[first : first + size])
        first += size
        following = [n for n, _ in levels[1:]] + [0]
        assert reached == {r: n - after for (n, r), after in zip(levels, following, strict=True)}


def test_the_best_of_each_bracket_gets_to_the_end():
    steps = simulated(17, 4, max_t=9)
    values = [(37 * i) % 101 for i in range(17)]
    for first, last, num_best in [(3, 8, 2), (8, 17, 1)]:
        best = sorted(range(first, last), key=lambda i: -values[i])[:num_best]
        assert [i for i in range(first, last) if steps[i] == 9] == sorted(best)
