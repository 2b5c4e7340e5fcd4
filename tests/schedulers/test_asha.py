"""ASHA, with vectors computed by running Tune's; and where it departs from it on purpose."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from conformance.schedulers import Told, tid
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_run import given_configs

from sweep.core.messages import PauseTrial, ResumeTrial, StopTrial
from sweep.core.results import TrialResult
from sweep.core.trial import Cause, CheckpointRef, Status
from sweep.engines.simulator import Point
from sweep.errors import ConfigError
from sweep.schedulers.asha import ASHAScheduler, AsyncHyperBandScheduler, _Rung
from sweep.simulation.virtual import simulate


def asha(mode: str = "max", *, seed: int = 0, num_trials: int = 0, **arguments) -> Told:
    scheduler = ASHAScheduler(**arguments)
    scheduler.set_search_properties("m", mode, seed=seed)
    return Told(scheduler, num_trials)


def milestones(told: Told) -> list[list[float]]:
    return [[rung[0] for rung in bracket] for bracket in told.scheduler.state()]


@pytest.mark.parametrize("eta", [1.5, 2, 3, 4, 10])
def test_a_cutoff_is_exactly_numpys_quantile(eta):
    rng, rung, scores = np.random.default_rng(0), _Rung(eta), []
    for score in rng.normal(size=400).tolist():
        scores.append(score)
        rung.judge(score)
        assert rung.state() == np.quantile(scores, 1 - 1 / eta)


@pytest.mark.parametrize(
    ("grace", "max_t", "factor", "bracket", "expected"),
    [
        (1, 100, 4, 0, [64, 16, 4, 1]),
        (1, 100, 4, 1, [64, 16, 4]),
        (1, 81, 3, 0, [81, 27, 9, 3, 1]),
        (5, 100, 3, 0, [45, 15, 5]),
        (1, 10, 2, 0, [8, 4, 2, 1]),
        (1, 16, 2, 2, [16, 8, 4]),
        (1, 1000, 10, 0, [1000, 100, 10, 1]),  # Tune's logarithm loses the top rung here
        (1, 243, 3, 0, [243, 81, 27, 9, 3, 1]),  # and here
        (1, 125, 5, 0, [125, 25, 5, 1]),
        (3, 3, 4, 0, [3]),
        (1, 1, 2, 0, [1]),
        (1, 10**9, 10, 0, [10**k for k in range(9, -1, -1)]),
    ],
)
def test_the_rungs_lie_at_these_milestones(grace, max_t, factor, bracket, expected):
    told = asha(grace_period=grace, max_t=max_t, reduction_factor=factor, brackets=bracket + 1)
    assert milestones(told)[bracket] == expected


@given(st.integers(1, 50), st.integers(1, 5000), st.integers(2, 10))
def test_the_rungs_are_every_power_within_the_maximum(grace, max_t, factor):
    if max_t < grace:
        return
    (rungs,) = milestones(asha(grace_period=grace, max_t=max_t, reduction_factor=factor))
    expected = [grace * factor**k for k in range(20) if grace * factor**k <= max_t]
    assert rungs == expected[::-1]


def test_the_sequence_of_decisions_is_that_of_tune():
    told = asha(max_t=10, reduction_factor=2, num_trials=4)
    stopped = [bool(told.report(number, training_iteration=1, m=m)) for number, m in enumerate([2, 4, 1, 3])]
    assert stopped == [False, False, True, False]
    lowest = told.scheduler.state()[0][-1]
    assert lowest == (1, [tid(n) for n in range(4)], 2.5)
    assert not told.report(1, training_iteration=2, m=5)
    (decision,) = told.report(3, training_iteration=2, m=4)
    assert decision == StopTrial(tid(3), "stopped early: m=4 at 2, cutoff 5")
    told.add(4)
    assert not told.report(4, training_iteration=5, m=9)
    seen = {rung[0]: rung[1] for rung in told.scheduler.state()[0]}
    assert [milestone for milestone, ids in seen.items() if tid(4) in ids] == [4]


def test_a_trial_is_judged_once_per_rung():
    told = asha(max_t=100, reduction_factor=4, num_trials=2)
    told.report(0, training_iteration=1, m=10.0)
    assert not told.report(1, training_iteration=1, m=10.0)
    for step in (2, 3):
        assert not told.report(1, training_iteration=step, m=-1e9)
    told.report(0, training_iteration=4, m=10.0)
    assert told.report(1, training_iteration=4, m=-1e9)


def test_at_max_t_a_trial_is_stopped_and_not_counted_as_stopped_early():
    told = asha(max_t=4, reduction_factor=2, num_trials=1)
    for step in (1, 2, 3):
        assert not told.report(0, training_iteration=step, m=1.0)
    assert told.report(0, training_iteration=4, m=1.0) == [
        StopTrial(tid(0), "reached max_t: training_iteration=4", Cause.REACHED)
    ]
    assert told.scheduler.num_stopped == 0


def test_without_stop_last_trials_a_trial_may_pass_max_t():
    told = asha(max_t=4, reduction_factor=2, stop_last_trials=False, num_trials=1)
    for step in range(1, 20):
        assert not told.report(0, training_iteration=step, m=1.0)


def test_nan_never_passes_a_rung_and_is_no_part_of_a_cutoff():
    told = asha(max_t=9, reduction_factor=3, num_trials=4)
    (decision,) = told.report(0, m=math.nan)
    assert decision.trial_id == tid(0)
    assert told.scheduler.state()[0][-1][2] is None
    assert not told.report(1, m=-1e9)
    assert told.report(2, m=math.nan)
    assert told.scheduler.state()[0][-1][2] == -1e9


def test_a_last_result_counts_at_the_rung_it_reached():
    told = asha(max_t=100, reduction_factor=4, num_trials=1)
    told.report(0, training_iteration=3, m=1.0)
    told.end(0)
    told.add(1)
    assert told.report(1, training_iteration=3, m=0.0)


def test_brackets_are_drawn_by_seed_and_trial_number_alone():
    def drawn(seed, order):
        told = asha(max_t=100, reduction_factor=4, brackets=3, seed=seed)
        for number in order:
            told.add(number)
            told.report(number, training_iteration=64, m=1.0)
        return [sorted(rung[1]) for bracket in told.scheduler.state() for rung in bracket]

    assert drawn(1, range(40)) == drawn(1, reversed(range(40)))
    assert drawn(1, range(40)) != drawn(2, range(40))


def test_brackets_that_could_hold_no_rung_are_left_out():
    assert len(milestones(asha(max_t=4, reduction_factor=4, brackets=9))) == 2


def test_without_a_metric_there_is_nothing_to_judge_by():
    with pytest.raises(ConfigError, match="needs a metric"):
        ASHAScheduler().set_search_properties(None, "max")


def test_a_metric_given_twice_is_refused_and_one_given_here_is_kept():
    with pytest.raises(ConfigError, match="metric was given to AsyncHyperBandScheduler and to the run"):
        ASHAScheduler(metric="a").set_search_properties("b", None)
    scheduler = ASHAScheduler(metric="a", mode="min")
    for repeated in ((None, None), ("a", "min")):
        scheduler.set_search_properties(*repeated)
        assert (scheduler.metric, scheduler.mode) == ("a", "min")


def test_both_names_are_one_scheduler():
    assert ASHAScheduler is AsyncHyperBandScheduler


def test_the_log_line_names_each_rung_and_its_cutoff():
    told = asha(max_t=10, reduction_factor=4, num_trials=1)
    told.report(0, m=0.5)
    assert told.scheduler.debug_string() == (
        "Using AsyncHyperBand: num_stopped=0\nBracket: Iter 4.000: None | Iter 1.000: 0.5"
    )


@given(st.lists(st.floats(allow_nan=True, allow_infinity=False), max_size=60))
def test_of_a_rung_never_the_best_is_stopped(values):
    """Whatever the order of arrival: a trial that is the best seen at a rung goes on."""
    told = asha(max_t=1000, reduction_factor=3, num_trials=len(values))
    best = -math.inf
    for number, value in enumerate(values):
        stopped = told.report(number, m=value)
        if value >= best:  # never so for NaN
            best = value
            assert not stopped


# --- rungs that are given ---------------------------------------------------------------------------------------------


def test_rungs_may_be_given_and_the_last_one_is_the_end():
    told = asha(rungs=[4, 11, 33, 100], reduction_factor=3, brackets=2, grace_period=50, max_t=7)
    assert milestones(told) == [[100, 33, 11, 4], [100, 33, 11]]
    assert (told.scheduler.max_t, told.scheduler.grace_period) == (100, 4)
    told.add(0)
    assert told.report(0, training_iteration=100, m=1.0) == [
        StopTrial(tid(0), "reached max_t: training_iteration=100", Cause.REACHED)
    ]


@pytest.mark.parametrize(
    "rungs", [[], [0, 1], [3, 3], [9, 3], [1, math.inf], [1, math.nan], [True, 2], "13", 3, {1: 2}]
)
def test_rungs_that_are_no_increasing_numbers_are_refused(rungs):
    with pytest.raises(ConfigError, match="rungs is"):
        ASHAScheduler(rungs=rungs)


# --- promotion --------------------------------------------------------------------------------------------------------


def promoting(mode="max", **arguments):
    return asha(mode, type="promotion", **{"max_t": 9, "reduction_factor": 3, **arguments})


def reach(told, number, time, m):
    """Report one result at `time`; everything happens that was decided, and who is paused has a checkpoint."""
    if tid(number) not in told.trials:
        told.add(number)
    trial = told.put(number, checkpoint=CheckpointRef("c", time))
    if trial.status is not Status.RUNNING:  # it was promoted and starts again
        told.put(number, status=Status.RUNNING, attempt=trial.attempt + 1)
    return told.reach(number, time, m)


def waits(number, m, time, best, of):
    return PauseTrial(tid(number), f"waits to be promoted: m={m:g} at {time} is not among the best {best} of {of}")


def test_one_in_three_is_promoted_as_soon_as_it_is_among_the_best():
    told = promoting()
    assert reach(told, 0, 1, 0.2) == [waits(0, 0.2, 1, 0, 1)]
    assert reach(told, 1, 1, 0.9) == [waits(1, 0.9, 1, 0, 2)]
    assert reach(told, 2, 1, 0.5) == [ResumeTrial(tid(1)), waits(2, 0.5, 1, 1, 3)]
    assert reach(told, 3, 1, 0.7) == [waits(3, 0.7, 1, 1, 4)]
    assert reach(told, 4, 1, 1.5) == []  # the best of five goes on without a pause
    assert reach(told, 5, 1, 0.1) == [waits(5, 0.1, 1, 2, 6)]  # the best two went on already
    assert reach(told, 6, 1, 0.0) == [waits(6, 0.0, 1, 2, 7)]
    assert reach(told, 7, 1, 0.0) == [waits(7, 0.0, 1, 2, 8)]
    assert reach(told, 8, 1, 0.0) == [ResumeTrial(tid(3)), waits(8, 0.0, 1, 3, 9)]
    assert not reach(told, 1, 2, 5.0)  # between two rungs nothing is decided
    assert reach(told, 1, 3, 0.1) == [waits(1, 0.1, 3, 0, 1)]
    assert reach(told, 4, 3, 0.2) == [waits(4, 0.2, 3, 0, 2)]
    assert reach(told, 3, 3, 0.3) == []
    assert reach(told, 3, 9, 0.3) == [StopTrial(tid(3), "reached max_t: training_iteration=9", Cause.REACHED)]


def test_a_trial_that_ended_keeps_its_place_and_is_not_resumed():
    told = promoting()
    reach(told, 0, 1, 9.0)
    told.end(0, Status.ERROR)
    reach(told, 1, 1, 1.0)
    assert [type(d) for d in reach(told, 2, 1, 2.0)] == [PauseTrial]
    for number in range(3, 5):
        reach(told, number, 1, 0.0)
    assert reach(told, 5, 1, 0.0)[0] == ResumeTrial(tid(2))


@pytest.mark.parametrize(
    ("m", "decisions", "waiting"),
    [
        pytest.param(0.0, [ResumeTrial(tid(1))], [tid(1)], id="promotes another"),
        pytest.param(9.0, [], [], id="is not promoted itself"),
    ],
)
def test_the_last_result_of_a_trial_that_ends_counts_at_its_rung(m, decisions, waiting):
    told = promoting(grace_period=2, max_t=18)
    for number in range(2):
        reach(told, number, 2, 1.0 + number)
    told.add(2)
    told.put(2, last_result=TrialResult({"training_iteration": 5, "m": m}))
    assert told.end(2) == decisions
    assert told.scheduler.state()[0][-1][2] == waiting


def test_a_trial_that_never_saved_runs_on_and_is_stopped_where_it_is_not_among_the_best():
    told = promoting(num_trials=3)
    assert [type(d) for d in told.report(0, training_iteration=1, m=0.5)] == [PauseTrial]
    assert told.scheduler.on_refused(told.trials[tid(0)], PauseTrial(tid(0))) == ()
    assert told.scheduler.on_refused(told.trials[tid(0)], PauseTrial(tid(0))) == ()
    assert len(told.scheduler.notices) == 1
    assert "never saved" in told.scheduler.notices[0]
    assert not told.report(0, training_iteration=2, m=9.0)
    assert told.report(0, training_iteration=3, m=0.5) == [
        StopTrial(tid(0), "stopped early: m=0.5 at 3 is not among the best 0 of 1")
    ]
    told.end(0)
    told.report(1, training_iteration=1, m=0.4)
    assert told.report(1, training_iteration=3, m=0.4)[-1].reason.endswith("not among the best 0 of 2")
    told.end(1)
    told.report(2, training_iteration=1, m=0.3)
    assert told.report(2, training_iteration=3, m=0.6) == []  # the best of three goes on


def test_a_trial_that_saved_late_is_paused_at_its_next_rung():
    told = promoting(num_trials=1)
    told.report(0, training_iteration=1, m=0.5)
    told.put(0, checkpoint=CheckpointRef("c", 2))
    assert [type(d) for d in told.report(0, training_iteration=3, m=0.5)] == [PauseTrial]


@pytest.mark.parametrize(("kind", "checkpoint"), [("promotion", CheckpointRef("c", 1)), ("stopping", None)])
def test_a_pause_that_a_person_wanted_and_that_is_refused_is_no_news(kind, checkpoint):
    told = asha(max_t=9, reduction_factor=3, type=kind, num_trials=1)
    trial = told.put(0, checkpoint=checkpoint)
    told.report(0, m=1.0)
    told.scheduler.on_refused(trial, PauseTrial(trial.id))
    assert not told.scheduler.notices


def test_who_was_promoted_runs_before_new_trials_and_the_highest_first():
    told = promoting(reduction_factor=2)
    for number, m in [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3)]:
        reach(told, number, 1, m)
    reach(told, 2, 3, 0.0)
    new = told.add(7)
    assert told.scheduler.choose([new, told.trials[tid(0)]]).id == tid(0)
    assert told.scheduler.choose([new, told.trials[tid(0)], told.trials[tid(2)]]).id == tid(2)
    assert told.scheduler.choose([new]).id == tid(7)
    assert asha(max_t=9).scheduler.choose([new, told.trials[tid(0)]]) is new


def test_when_nothing_runs_the_worse_half_is_stopped_from_the_lowest_rung_on():
    told = promoting()
    for number in range(9):
        reach(told, number, 1, (8 - number) / 10)
    for number in range(3):  # those that were promoted
        reach(told, number, 3, (8 - number) / 10)
    rounds = []
    while decisions := told.scheduler.on_idle(told.trials):
        rounds.append(decisions)
        for decision in decisions:
            told.end(int(decision.trial_id[-5:]))
    low = "never promoted: place {} of 9 at 1, where the best 3 went on"
    high = "never promoted: place {} of 3 at 3, where the best 1 went on"
    assert rounds == [
        [StopTrial(tid(number), low.format(number + 1)) for number in (8, 7, 6, 5)],
        [StopTrial(tid(number), low.format(number + 1)) for number in (4, 3)],
        [StopTrial(tid(2), high.format(3))],
        [StopTrial(tid(1), high.format(2))],
    ]
    assert told.scheduler.num_stopped == 8


def test_who_is_paused_for_another_reason_goes_on_and_a_persons_pause_is_left_alone():
    told = promoting()
    for number, changes in enumerate([{}, {"is_by_person": True}]):
        told.add(number)
        told.put(number, status=Status.PAUSED, **changes)
    assert told.scheduler.on_idle(told.trials) == [ResumeTrial(tid(0))]


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.integers(0, 5).map(float), st.floats(0, 1), st.just(math.nan)), max_size=60),
    st.sampled_from([1.5, 2, 3, 4]),
)
def test_whatever_the_order_only_the_best_share_is_promoted(values, eta):
    """Compared with the rule itself: each time all are sorted, and the best floor(n/eta) that wait go on."""
    told = promoting(reduction_factor=eta)
    promoted: set[int] = set()
    for number, value in enumerate(values):
        decisions = reach(told, number, 1, value)
        seen = [(n, v) for n, v in enumerate(values[: number + 1]) if v == v]
        best = sorted(seen, key=lambda pair: (-pair[1], pair[0]))[: int((number + 1) / eta)]
        expected = {n for n, _ in best} - promoted
        resumed = {int(d.trial_id[-5:]) for d in decisions if isinstance(d, ResumeTrial)}
        goes_on = not any(isinstance(d, PauseTrial) for d in decisions)
        assert resumed | ({number} if goes_on else set()) == expected
        assert len(expected) <= 1
        for one in expected:  # nobody who is left behind is better
            left = [v for n, v in seen if n not in promoted | expected]
            assert all(v <= values[one] for v in left)
        promoted |= expected
    if values == sorted((v for v in values if v == v), reverse=True):
        assert len(promoted) <= int(len(values) / eta)


def promoted_in_a_sweep(max_t, num_trials, **arguments):
    """Return a run of trials that save at every step and may be promoted up to `max_t`."""

    def curve(config, count):
        for step in range(count + 1, max_t + 1):
            yield Point(1.0, {"m": config["x"] * step}, has_checkpoint=True)

    drawn = given_configs({"x": (number * 37 % 81) / 81} for number in range(num_trials))
    scheduler = ASHAScheduler(max_t=max_t, reduction_factor=3, type="promotion")
    return simulate(curve, metric="m", mode="max", num_samples=-1, search_alg=drawn, scheduler=scheduler, **arguments)


def test_in_a_sweep_a_third_goes_on_each_time_and_the_best_runs_to_the_end():
    run = promoted_in_a_sweep(27, 81, cpus=1)
    assert all(trial.status is Status.TERMINATED for trial in run.trials)
    counts = Counter(trial.count for trial in run.trials)
    assert set(counts) == {1, 3, 9, 27}
    assert counts[27] >= 3
    assert run.best_trial.config["x"] == 80 / 81
    assert run.best_trial.count == 27
    assert len(run.arrivals) < 81 * 27 / 6
    steps = [(arrival.trial_id, arrival.metrics["training_iteration"]) for arrival in run.arrivals]
    assert len(set(steps)) == len(steps)  # nothing was computed twice


def test_too_few_trials_for_one_to_get_to_the_end_are_told_of():
    run = promoted_in_a_sweep(27, 9, cpus=2)
    assert max(trial.count for trial in run.trials) < 27
    assert [notice for notice in run.notices if "no trial was promoted to max_t=27: about 27 trials" in notice]


def test_a_limit_on_trials_alive_at_a_time_does_not_hang_a_sweep():
    run = promoted_in_a_sweep(9, 40, cpus=2, max_concurrent_trials=4)
    assert len(run.trials) == 40
    assert all(trial.is_ended for trial in run.trials)
