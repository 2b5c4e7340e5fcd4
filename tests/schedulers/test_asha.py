"""ASHA, with vectors computed by running Tune's; and where it departs from it on purpose."""

from __future__ import annotations

import math

import pytest
from conformance.schedulers import Told
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.messages import StopTrial
from sweep.core.trial import Status
from sweep.errors import ConfigError
from sweep.schedulers.asha import ASHAScheduler, AsyncHyperBandScheduler


def asha(mode: str = "max", *, seed: int = 0, **arguments) -> Told:
    scheduler = ASHAScheduler(**arguments)
    scheduler.set_search_properties("m", mode, seed=seed)
    return Told(scheduler)


def milestones(told: Told) -> list[list[float]]:
    return [[rung[0] for rung in bracket] for bracket in told.scheduler.state()]


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
    told = asha(max_t=10, reduction_factor=2)
    for number in range(4):
        told.add(number)
    stopped = [bool(told.report(number, training_iteration=1, m=m)) for number, m in enumerate([2, 4, 1, 3])]
    assert stopped == [False, False, True, False]
    lowest = told.scheduler.state()[0][-1]
    assert lowest == (1, [f"abcde_{n:05d}" for n in range(4)], 2.5)
    assert not told.report(1, training_iteration=2, m=5)
    (decision,) = told.report(3, training_iteration=2, m=4)
    assert decision == StopTrial("abcde_00003", "stopped early: m=4 at 2, cutoff 5")
    told.add(4)
    assert not told.report(4, training_iteration=5, m=9)
    seen = {rung[0]: rung[1] for rung in told.scheduler.state()[0]}
    assert [milestone for milestone, ids in seen.items() if "abcde_00004" in ids] == [4]


def test_for_a_loss_the_small_values_go_on():
    told = asha("min", max_t=10, reduction_factor=2)
    for number in range(3):
        told.add(number)
    assert not told.report(0, m=2.0)
    (decision,) = told.report(1, m=3.0)
    assert decision.reason == "stopped early: m=3 at 1, cutoff 2"
    assert not told.report(2, m=1.0)


def test_who_comes_first_to_a_rung_always_continues():
    told = asha(max_t=81, reduction_factor=3)
    told.add(0)
    for step, m in [(1, -5.0), (3, -50.0), (9, -500.0)]:
        assert not told.report(0, training_iteration=step, m=m)


def test_an_equal_value_is_no_worse():
    told = asha(max_t=9, reduction_factor=3)
    for number in range(5):
        told.add(number)
        assert not told.report(number, m=1.0)


def test_a_trial_is_judged_once_per_rung():
    told = asha(max_t=100, reduction_factor=4)
    told.add(0)
    told.add(1)
    told.report(0, training_iteration=1, m=10.0)
    assert not told.report(1, training_iteration=1, m=10.0)
    for step in (2, 3):
        assert not told.report(1, training_iteration=step, m=-1e9)
    told.report(0, training_iteration=4, m=10.0)
    assert told.report(1, training_iteration=4, m=-1e9)


def test_at_max_t_a_trial_is_stopped_and_not_counted_as_stopped_early():
    told = asha(max_t=4, reduction_factor=2)
    told.add(0)
    for step in (1, 2, 3):
        assert not told.report(0, training_iteration=step, m=1.0)
    assert told.report(0, training_iteration=4, m=1.0) == [
        StopTrial("abcde_00000", "reached max_t: training_iteration=4")
    ]
    assert told.scheduler.num_stopped == 0


def test_without_stop_last_trials_a_trial_may_pass_max_t():
    told = asha(max_t=4, reduction_factor=2, stop_last_trials=False)
    told.add(0)
    for step in range(1, 20):
        assert not told.report(0, training_iteration=step, m=1.0)


def test_nan_never_passes_a_rung_and_is_no_part_of_a_cutoff():
    told = asha(max_t=9, reduction_factor=3)
    for number in range(4):
        told.add(number)
    (decision,) = told.report(0, m=math.nan)
    assert decision.trial_id == "abcde_00000"
    assert told.scheduler.state()[0][-1][2] is None
    assert not told.report(1, m=-1e9)
    assert told.report(2, m=math.nan)
    assert told.scheduler.state()[0][-1][2] == -1e9


@pytest.mark.parametrize("mode", ["min", "max"])
def test_infinities_do_not_spoil_a_rung(mode):
    told = asha(mode, max_t=9, reduction_factor=3)
    for number, m in enumerate([math.inf, -math.inf, 0.0, math.inf, -math.inf, 0.0]):
        told.add(number)
        told.report(number, m=m)
    assert not any(isinstance(rung[2], float) and math.isnan(rung[2]) for rung in told.scheduler.state()[0])


def test_a_time_that_is_nan_reaches_no_rung():
    told = asha(max_t=9, reduction_factor=3)
    told.add(0)
    assert not told.report(0, training_iteration=math.nan, m=1.0)
    assert all(not rung[1] for rung in told.scheduler.state()[0])


def test_a_last_result_counts_at_the_rung_it_reached():
    told = asha(max_t=100, reduction_factor=4)
    told.add(0)
    told.report(0, training_iteration=3, m=1.0)
    told.end(0)
    told.add(1)
    assert told.report(1, training_iteration=3, m=0.0)


def test_another_time_attribute_may_be_counted():
    told = asha(max_t=100, reduction_factor=4, time_attr="epoch")
    told.add(0)
    assert not told.report(0, m=1.0)
    assert all(not rung[1] for rung in told.scheduler.state()[0])
    told.report(0, m=1.0, epoch=20)
    assert [rung[0] for rung in told.scheduler.state()[0] if rung[1]] == [16]


def test_brackets_are_drawn_by_seed_and_trial_number_alone():
    def drawn(seed, order):
        told = asha(max_t=100, reduction_factor=4, brackets=3, seed=seed)
        for number in order:
            told.add(number)
            told.report(number, training_iteration=64, m=1.0)
        return [sorted(rung[1]) for bracket in told.scheduler.state() for rung in bracket]

    assert drawn(1, range(40)) == drawn(1, reversed(range(40)))
    assert drawn(1, range(40)) != drawn(2, range(40))


def test_brackets_are_weighted_by_the_exponent_of_their_rungs():
    told = asha(max_t=100, reduction_factor=4, brackets=3, seed=5)
    for number in range(600):
        told.add(number)
        told.report(number, training_iteration=64, m=1.0)
    sizes = [len(bracket[0][1]) for bracket in told.scheduler.state()]
    weights = [math.exp(4), math.exp(3), math.exp(2)]
    expected = [600 * weight / sum(weights) for weight in weights]
    assert sum(sizes) == 600
    for size, mean in zip(sizes, expected, strict=True):
        assert abs(size - mean) < 5 * math.sqrt(mean)


def test_brackets_that_could_hold_no_rung_are_left_out():
    assert len(milestones(asha(max_t=4, reduction_factor=4, brackets=9))) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "best"}, "mode is 'best'"),
        ({"max_t": 0}, "max_t is 0"),
        ({"max_t": "100"}, "max_t is '100'"),
        ({"max_t": math.nan}, "max_t is nan"),
        ({"grace_period": -1}, "grace_period is -1"),
        ({"grace_period": True}, "grace_period is True"),
        ({"max_t": 3, "grace_period": 5}, "max_t=3 is below grace_period=5"),
        ({"reduction_factor": 1}, "reduction_factor is 1"),
        ({"reduction_factor": "4"}, "reduction_factor is '4'"),
        ({"reduction_factor": math.inf}, "reduction_factor is inf"),
        ({"max_t": math.inf}, "max_t is inf"),
        ({"brackets": 0}, "brackets is 0"),
        ({"brackets": 1.5}, "brackets is 1.5"),
    ],
)
@pytest.mark.timeout(5)
def test_a_wrong_argument_is_named(arguments, words):
    with pytest.raises(ConfigError) as error:
        ASHAScheduler(**arguments)
    assert words in str(error.value)


def test_without_a_metric_there_is_nothing_to_judge_by():
    with pytest.raises(ConfigError, match="needs a metric"):
        ASHAScheduler().set_search_properties(None, "max")


def test_a_metric_given_twice_is_refused_and_one_given_here_is_kept():
    with pytest.raises(ConfigError, match="metric was given to AsyncHyperBandScheduler and to the run"):
        ASHAScheduler(metric="a").set_search_properties("b", None)
    scheduler = ASHAScheduler(metric="a", mode="min")
    scheduler.set_search_properties(None, None)
    assert (scheduler.metric, scheduler.mode) == ("a", "min")


def test_both_names_are_one_scheduler():
    assert ASHAScheduler is AsyncHyperBandScheduler


def test_the_log_line_names_each_rung_and_its_cutoff():
    told = asha(max_t=10, reduction_factor=4)
    told.add(0)
    told.report(0, m=0.5)
    assert told.scheduler.debug_string() == (
        "Using AsyncHyperBand: num_stopped=0\nBracket: Iter 4.000: None | Iter 1.000: 0.5"
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(allow_nan=True, allow_infinity=False)), max_size=60))
def test_of_a_rung_never_the_best_is_stopped(reports):
    """Whatever the order of arrival: a trial that is the best seen at a rung goes on."""
    told = asha(max_t=1000, reduction_factor=3)
    best: dict[int, float] = {}
    for number, value in reports:
        trial_id = f"abcde_{number:05d}"
        if trial_id not in told.trials:
            told.add(number)
        if told.trials[trial_id].status is not Status.RUNNING:
            continue
        step = told.trials[trial_id].count + 1
        stopped = told.report(number, m=value)
        if step in (1, 3, 9, 27):
            if value == value and value >= best.get(step, -math.inf):
                assert not stopped
            if value == value:
                best[step] = max(value, best.get(step, -math.inf))
        if stopped:
            told.end(number)
