"""Stoppers, with vectors computed by running Tune's."""

from __future__ import annotations

import math
import pickle
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.core.results import TrialResult
from sweep.core.stoppers import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    TimeoutStopper,
    TrialPlateauStopper,
    combine,
    reached,
)
from sweep.errors import ConfigError


def answers(stopper, values, trial_id="a_0", key="m"):
    return "".join("T" if stopper(trial_id, {key: value}) else "F" for value in values)


@pytest.mark.parametrize(
    ("stop", "result", "text"),
    [
        ({"m": 3}, {"m": 3}, "reached m=3 (stop at 3)"),
        ({"m": 3}, {"m": 2.99}, ""),
        ({"loss": 0.1}, {"loss": 5.0}, "reached loss=5 (stop at 0.1)"),
        ({"m": 3}, {"m": math.nan}, ""),
        ({"m": 3}, {"m": None}, ""),
        ({"m": 3}, {}, ""),
        ({"m": 3}, {"m": "high"}, ""),
        ({"m": 3}, {"m": [9]}, ""),
        ({"a": 1, "b": 1}, {"a": 0, "b": 2}, "reached b=2 (stop at 1)"),
        ({"eval/acc": 0.5}, {"eval": {"acc": 0.7}}, "reached eval/acc=0.7 (stop at 0.5)"),
        ({}, {"m": 1}, ""),
        ({"done": True}, {"done": True}, "reported done=True"),
        ({"done": True}, {"done": False}, ""),
        ({"done": True}, {"done": 1}, "reported done=True"),
        ({"done": True}, {"done": 2}, ""),
        ({"better": False}, {"better": False}, "reported better=False"),
        ({"better": False}, {"better": True}, ""),
        ({"better": False}, {"better": 0.5}, ""),
        ({"better": False}, {}, ""),
        ({"better": False}, {"better": "no"}, ""),
    ],
)
def test_a_criterion_is_reached_at_its_value_or_above(stop, result, text):
    assert reached(stop, TrialResult(result)) == text


def test_maximum_iteration_counts_results_per_trial():
    stopper = MaximumIterationStopper(3)
    assert answers(stopper, [0, 0, 0, 0]) == "FFTT"
    assert answers(stopper, [0, 0], trial_id="b_0") == "FF"
    assert not stopper.stop_all()


def test_a_trial_plateau_is_found_by_the_deviation_of_the_last_results():
    stopper = TrialPlateauStopper("m", std=0.5, num_results=3, grace_period=4)
    assert answers(stopper, [1, 1, 1, 1, 5, 5.1, 5.2]) == "FFFTFFT"
    assert answers(stopper, [5.2], trial_id="b_0") == "F"


def test_a_trial_plateau_counts_only_on_the_good_side_of_the_threshold():
    low = TrialPlateauStopper("m", num_results=2, grace_period=2, metric_threshold=2.0, mode="min")
    assert answers(low, [5, 5, 1, 1]) == "FFFT"
    high = TrialPlateauStopper("m", num_results=2, grace_period=2, metric_threshold=2.0, mode="max")
    assert answers(high, [1, 1, 5, 5]) == "FFFT"


def test_a_trial_plateau_ignores_results_without_the_metric_and_nan():
    stopper = TrialPlateauStopper("m", num_results=2, grace_period=2)
    assert not stopper("a_0", {"other": 1})
    assert answers(stopper, [math.nan, math.nan, math.nan]) == "FFF"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, "high", [1.0]])
def test_values_that_are_no_finite_number_are_no_plateau(value):
    assert answers(TrialPlateauStopper("m", num_results=2, grace_period=2), [value] * 4) == "FFFF"
    assert answers(ExperimentPlateauStopper("m", top=2), [value] * 4) == "FFFF"


def test_a_plateau_is_found_for_numbers_of_numpy_and_by_path():
    stopper = TrialPlateauStopper("eval/m", num_results=2, grace_period=np.int64(2))
    found = [stopper("a_0", TrialResult({"eval": {"m": np.float32(value)}})) for value in (1, 2, 2)]
    assert found == [False, False, True]


numbers = st.sampled_from([math.nan, 0.0, 1.0, 1.0005, -3.0, 7.5])


@given(st.lists(numbers, max_size=25), st.sampled_from(["min", "max"]))
def test_nan_changes_no_verdict_of_an_experiment_plateau_but_by_the_passing_of_results(values, mode):
    """Whatever is decided after a NaN was decided before it: the best values are the same."""
    stopper = ExperimentPlateauStopper("m", std=0.01, top=3, mode=mode)
    previous = "F"
    for value in values:
        verdict = answers(stopper, [value])
        if math.isnan(value):
            assert verdict == previous
        previous = verdict


@given(st.lists(numbers, max_size=25))
def test_a_trial_is_never_stopped_by_a_window_with_nan_in_it(values):
    stopper = TrialPlateauStopper("m", std=0.01, num_results=3, grace_period=3)
    for number, verdict in enumerate(answers(stopper, values)):
        window = values[max(number - 2, 0) : number + 1]
        is_flat = len(window) == 3 and not any(map(math.isnan, window)) and float(np.std(window)) < 0.01
        assert (verdict == "T") == is_flat


@given(st.dictionaries(st.sampled_from("abc"), numbers), st.dictionaries(st.sampled_from("abc"), st.just(math.nan)))
def test_nan_reaches_no_criterion(values, nothing):
    stop = {"a": -math.inf, "b": 1.0, "c": 7.5}
    text = reached(stop, TrialResult({**values, **nothing}))
    known = {key: value for key, value in values.items() if key not in nothing and not math.isnan(value)}
    assert bool(text) == any(value >= stop[key] for key, value in known.items())


def test_an_experiment_plateau_ends_everything_once_the_best_stay():
    stopper = ExperimentPlateauStopper("m", std=0.1, top=3, mode="min", patience=1)
    assert answers(stopper, [3, 2, 1, 1, 1, 1, 1, 0.99]) == "FFFFTTTT"
    assert stopper.stop_all()


def test_an_experiment_plateau_with_patience_waits_for_consecutive_results():
    stopper = ExperimentPlateauStopper("m", std=0.1, top=2, mode="max", patience=3)
    assert answers(stopper, [1, 1, 1, 5, 5, 5, 5]) == "FFFFFFT"


def test_an_experiment_plateau_is_not_reached_by_nan():
    stopper = ExperimentPlateauStopper("m", std=0.1, top=2)
    assert answers(stopper, [math.nan] * 5) == "FFFFF"
    assert not stopper.stop_all()


def test_a_budget_is_found_within_combined_stoppers():
    inner = CombinedStopper(TimeoutStopper(30), CombinedStopper(NoopStopper(), TimeoutStopper(timedelta(seconds=20))))
    assert (inner.budget_s, CombinedStopper(NoopStopper()).budget_s, TimeoutStopper(5).budget_s) == (20.0, None, 5.0)


def test_every_stopper_is_asked_whether_all_is_over():
    asked = []

    class Asked(NoopStopper):
        def __init__(self, answer):
            self.answer = answer

        def stop_all(self):
            asked.append(self.answer)
            return self.answer

    assert CombinedStopper(Asked(True), Asked(False)).stop_all()
    assert asked == [True, False]


def test_a_function_stops_its_trial_and_several_stoppers_all_hear_everything():
    heard = []
    function = FunctionStopper(lambda trial_id, result: heard.append(result["m"]) or result["m"] > 2)
    stopper = CombinedStopper(MaximumIterationStopper(2), function, NoopStopper())
    assert answers(stopper, [1, 1, 9]) == "FTT"
    assert heard == [1, 1, 9]
    assert not stopper.stop_all()
    assert CombinedStopper(ExperimentPlateauStopper("m", top=2)).stop_all() is False


@pytest.mark.parametrize(("timeout", "seconds"), [(3, 3.0), (timedelta(minutes=2), 120.0), (0.5, 0.5)])
def test_a_timeout_is_taken_in_seconds_or_as_a_timedelta(timeout, seconds):
    stopper = TimeoutStopper(timeout)
    assert stopper.seconds == seconds
    assert not stopper("a_0", {})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MaximumIterationStopper(0), "max_iter is 0"),
        (lambda: MaximumIterationStopper(True), "max_iter is True"),
        (lambda: MaximumIterationStopper("3"), "max_iter is '3'"),
        (lambda: TimeoutStopper("soon"), "timeout is 'soon'"),
        (lambda: TimeoutStopper(0), "timeout is 0"),
        (lambda: TrialPlateauStopper("m", metric_threshold=1.0), "mode=None"),
        (lambda: ExperimentPlateauStopper("m", mode="best"), "mode is 'best'"),
        (lambda: ExperimentPlateauStopper("m", top=1), "top is 1"),
        (lambda: ExperimentPlateauStopper("m", patience=-1), "patience is -1"),
        (lambda: ExperimentPlateauStopper("m", std=0), "std is 0"),
        (lambda: ExperimentPlateauStopper("m", std=math.nan), "std is nan"),
        (lambda: TrialPlateauStopper("m", std="small"), "std is 'small'"),
        (lambda: TrialPlateauStopper("m", num_results=0), "num_results is 0"),
        (lambda: TrialPlateauStopper("m", grace_period=-1), "grace_period is -1"),
        (lambda: TrialPlateauStopper("m", metric_threshold="low", mode="min"), "metric_threshold is 'low'"),
        (lambda: TimeoutStopper(timedelta(0)), "timeout is datetime.timedelta(0)"),
        (lambda: TimeoutStopper(math.nan), "timeout is nan"),
        (lambda: TimeoutStopper(True), "timeout is True"),
        (lambda: TimeoutStopper(math.inf), "timeout is inf"),
        (lambda: TimeoutStopper(10**400), "timeout is 1000"),
        (lambda: FunctionStopper(3), "not 3"),
        (lambda: CombinedStopper(lambda trial_id, result: True), "Wrap a function: FunctionStopper(function)"),
    ],
)
def test_a_wrong_argument_is_named(make, words):
    with pytest.raises(ConfigError) as error:
        make()
    assert words in str(error.value)


def test_stoppers_are_combined_only_when_there_are_several():
    stopper = NoopStopper()
    assert combine([]) is None
    assert combine([stopper]) is stopper
    assert isinstance(combine([stopper, NoopStopper()]), CombinedStopper)


def test_a_timeout_that_is_asked_by_another_stopper_has_a_clock_of_its_own(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("sweep.core.stoppers.time.monotonic", lambda: clock[0])
    stopper = TimeoutStopper(10)
    answers = []
    for now in (100.0, 109.0, 110.0):
        clock[0] = now
        answers.append(stopper.stop_all())
    assert answers == [False, False, True]
    assert not pickle.loads(pickle.dumps(stopper)).stop_all()  # in another process it begins anew
