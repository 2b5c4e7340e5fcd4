"""The median stopping rule: against the plain formula, at NaN and infinity, and with trials that make room."""

from __future__ import annotations

import math
import random
from statistics import fmean, median

import pytest
from conformance.schedulers import Told, tid
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_run import in_virtual_time, new_sweep

from sweep.core.messages import PauseTrial, ResizeTrial, StopTrial
from sweep.core.resources import Placement
from sweep.core.trial import Status
from sweep.engines.simulator import Point
from sweep.schedulers.median import MedianStoppingRule


def rule(mode="max", num_trials=5, **arguments):
    scheduler = MedianStoppingRule(**{"time_attr": "training_iteration", "grace_period": 0, **arguments})
    scheduler.set_search_properties("m", mode)
    return Told(scheduler, num_trials)


def three_others(told, values=((1, 2, 3), (2, 4, 6), (3, 6, 9))):
    """Let trials 0, 1 and 2 report three times each; their running means at the third are 2, 4 and 6."""
    for number, curve in enumerate(values):
        for m in curve:
            told.report(number, m=m)
    return told


def test_a_trial_below_the_median_of_the_running_means_is_stopped():
    told = three_others(rule())
    assert told.report(3, m=1.9) == [
        StopTrial(tid(3), "stopped early: best m=1.9 at 1, median of the others 2")
    ]  # means at 1 are 1, 2 and 3
    assert told.scheduler.debug_string() == "Using MedianStoppingRule: num_stopped=1."


def test_nothing_is_decided_within_the_grace_period_nor_with_too_few_others():
    told = three_others(rule(grace_period=2, min_samples_required=3))
    assert told.report(3, m=-9.0) == ()
    assert [type(d) for d in told.report(3, m=-9.0)] == [StopTrial]
    told = three_others(rule(min_samples_required=4))
    assert told.report(3, m=-9.0) == ()


def test_nan_is_no_part_of_a_mean_and_no_best_result():
    nan = math.nan
    told = three_others(rule(), [(nan, 2, nan), (4, nan, nan), (nan, nan, 6)])
    assert told.report(3, training_iteration=3, m=4.0) == ()  # the means at 3 are 2, 4 and 6
    assert told.report(4, training_iteration=3, m=3.0) == [
        StopTrial(tid(4), "stopped early: best m=3 at 3, median of the others 4")
    ]


def test_a_trial_that_reports_nothing_but_nan_is_stopped_and_no_other_for_it():
    told = rule(num_trials=7)
    for number in range(3):
        told.report(number, m=math.nan)
    for number in range(3, 6):
        assert told.report(number, m=1.0) == ()
    assert told.report(6, m=math.nan) == [StopTrial(tid(6), "stopped early: best m=nan at 1, median of the others 1")]


def test_an_infinite_loss_counts_as_a_bad_one():
    told = rule("min", num_trials=5)
    for number, m in enumerate([math.inf, 1.0, 2.0]):
        told.report(number, m=m)
    assert told.report(3, m=2.0) == ()
    assert [type(d) for d in told.report(4, m=math.inf)] == [StopTrial]
    assert not any(math.isnan(mean) for _, mean, *_ in told.scheduler.state()[0].values())


def test_without_a_hard_stop_a_trial_is_paused_and_then_left_alone():
    told = three_others(rule(hard_stop=False))
    assert told.report(3, m=0.0) == [
        PauseTrial(tid(3), "goes on when all others have ended: best m=0 at 1, median of the others 2")
    ]
    assert told.report(3, m=0.0) == ()


def plain_rule(reports, grace, least):
    """Return which reports stop their trial, by the formula as it is written; whole times only."""
    curves: dict[int, list[tuple[int, float]]] = {}
    stopped = []
    for number, time, value in reports:
        curves.setdefault(number, []).append((time, value))
        if time < grace:
            stopped.append(False)
            continue
        means = [
            fmean(v for t, v in curve if grace <= t <= time)
            for other, curve in curves.items()
            if other != number and curve[-1][0] >= time and any(grace <= t <= time for t, _ in curve)
        ]
        best = max(v for _, v in curves[number])
        stopped.append(len(means) >= least and best < median(means) - 1e-9)
    return stopped


@settings(max_examples=150)
@given(st.integers(0, 10**6))
def test_at_whole_times_it_is_the_plain_formula(seed):
    rng = random.Random(seed)
    grace, least = rng.choice([0, 1, 3]), rng.choice([1, 3])
    told = rule(num_trials=8, grace_period=grace, min_samples_required=least)
    reports, answers, at = [], [], dict.fromkeys(range(8), 0)
    for _ in range(80):
        number = rng.randrange(8)
        if at[number] is None:
            continue
        at[number] += 1
        value = float(rng.randrange(1000))
        reports.append((number, at[number], value))
        answers.append(bool(told.report(number, training_iteration=at[number], m=value)))
        if answers[-1]:
            at[number] = None  # it reports no more
    assert answers == plain_rule(reports, grace, least)


def test_a_time_in_seconds_compares_those_who_came_as_far():
    told = rule(time_attr="time_total_s", grace_period=60.0)
    for number in range(3):
        for time, m in [(30.2, 0.0), (65.1, 1.0), (130.7, 3.0), (200.3, 5.0)]:
            told.report(number, time_total_s=time, m=m)
    told.report(3, time_total_s=31.0, m=9.0)
    assert told.report(3, time_total_s=70.0, m=0.0) == ()  # its best is 9
    assert told.report(4, time_total_s=131.0, m=1.9) == [
        StopTrial(tid(4), "stopped early: best m=1.9 at 131, median of the others 2")
    ]


@pytest.mark.parametrize("time", [math.nan, None, "1"])
def test_at_a_time_that_is_no_number_nothing_is_decided(time):
    told = three_others(rule())
    assert told.report(3, training_iteration=time, m=-9.0) == ()
    assert told.scheduler.state()[0].keys() == {tid(0), tid(1), tid(2)}


# --- making room for others ----------------------------------------------------------------------------------------


def test_who_cannot_be_judged_makes_room_for_those_who_wait_once_in_a_time_slice():
    told = rule(grace_period=2, min_time_slice=3)
    told.put(4, status=Status.PENDING)
    assert told.report(0, m=1.0) == ()
    yields = [told.report(0, m=1.0) for _ in range(5)]
    resize = [ResizeTrial(tid(0), told.trials[tid(0)].resources)]
    assert yields == [resize, (), (), resize, ()]


@pytest.mark.parametrize("why", ["nobody waits", "it is about to start", "it cannot be paused", "a person pauses it"])
def test_there_is_no_need_to_make_room_if(why):
    told = rule(grace_period=1)
    if why == "it is about to start":
        told.put(4, status=Status.PENDING, placement=Placement(()))
    elif why != "nobody waits":
        told.put(4, status=Status.PENDING)
    if why == "it cannot be paused":
        told.scheduler.on_refused(told.trials[tid(0)], PauseTrial(tid(0)))
    if why == "a person pauses it":
        told.put(0, pending=PauseTrial(tid(0)))
    assert told.report(0, m=1.0) == ()


def run_in_virtual_time(num_trials=9, cpus=2, **arguments):
    def curve(config, done):
        for step in range(done + 1, 13):
            yield Point(1.0, {"m": config["x"] * step}, has_checkpoint=True)

    scheduler = MedianStoppingRule(**{"time_attr": "training_iteration", "grace_period": 3, **arguments})
    scheduler.set_search_properties("m", "max")
    sweep = new_sweep(scheduler, num_trials=num_trials, ask_ahead=64)
    return sweep, in_virtual_time(sweep, curve, [{"x": (5 * i) % 9} for i in range(num_trials)], cpus=cpus).told


def test_in_a_sweep_all_get_to_the_grace_period_before_any_goes_on():
    _, told = run_in_virtual_time(num_trials=8, min_samples_required=8)
    results = [(told.trial.id, told.result["training_iteration"]) for told in told if told.result is not None]
    beyond = next(i for i, (_, step) in enumerate(results) if step > 3)
    assert len({trial_id for trial_id, step in results[:beyond] if step == 3}) == 8


def test_in_a_sweep_without_a_hard_stop_all_get_to_their_end():
    sweep, _ = run_in_virtual_time(hard_stop=False)
    assert {trial.last_result["training_iteration"] for trial in sweep.trials.values()} == {12}
    assert any(trial.attempt > 1 for trial in sweep.trials.values())
