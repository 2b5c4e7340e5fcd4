"""When a sweep will end, by what its trials took so far."""

from __future__ import annotations

import random

import pytest

from sweep.display.forecast import Forecast, Progress


def running(iterations: float, seconds: float, since_s: float = 0.0) -> Progress:
    return Progress(iterations, seconds, since_s)


def test_nothing_is_said_before_there_is_ground_for_it() -> None:
    assert Forecast().eta(9.0, [running(3, 9.0)], [], 10) is None  # who knows how long they get
    assert Forecast(100, can_stop_early=True).eta(9.0, [running(50, 9.0)], [], 10) is None
    assert Forecast(100).eta(1.0, [running(1, 1.0)], [], 10) is None  # hardly begun
    assert Forecast(100).eta(1.0, [running(0, 0.0, 60.0)], [], 10) is None


def test_trials_of_known_length_are_played_on_from_where_they_are() -> None:
    eta = Forecast(100).eta(50.0, [running(50, 50.0), running(25, 50.0)], [], 0)
    assert eta is not None
    assert eta.seconds == pytest.approx(150.0)  # the slower one
    assert eta.spread_s >= 15.0


def test_what_has_passed_since_the_last_report_counts() -> None:
    eta = Forecast(10).eta(58.0, [running(5, 50.0, 8.0)], [], 0)
    assert eta is not None
    assert eta.seconds == pytest.approx(42.0)


def test_trials_to_come_take_the_places_of_those_that_end() -> None:
    known = Forecast(10)
    eta = known.eta(50.0, [running(5, 50.0), running(5, 50.0)], [], 4)
    assert eta is not None
    assert eta.seconds == pytest.approx(50.0 + 200.0)
    paused = known.eta(50.0, [running(5, 50.0), running(5, 50.0)], [running(8, 80.0)] * 2, 4)
    assert paused is not None
    assert paused.seconds == pytest.approx(50.0 + 20.0 + 200.0)


def test_trials_that_were_stopped_early_say_how_long_the_next_ones_get() -> None:
    known, chance = Forecast(100, can_stop_early=True), random.Random(0)
    now = 0.0
    known.begin(now)
    for _ in range(200):
        iterations = 100 if chance.random() < 0.1 else 10
        now += iterations
        known.end(now, iterations, iterations)
    eta = known.eta(now, [], [], 100)
    assert eta is not None
    assert eta.seconds == pytest.approx(100 * (0.1 * 100 + 0.9 * 10), rel=0.25)
    assert eta.spread_s > 0.2 * eta.seconds


def test_a_trial_that_outlives_the_others_is_not_taken_to_end_at_once() -> None:
    known = Forecast(100, can_stop_early=True)
    known.begin(0.0)
    for _ in range(10):
        known.end(10.0, 10, 10.0)
    eta = known.eta(50.0, [running(50, 50.0)], [], 0)
    assert eta is not None
    assert eta.seconds == pytest.approx(50.0)


def test_where_no_iterations_are_counted_seconds_are() -> None:
    known = Forecast()
    known.begin(0.0)
    for number in range(10):
        known.end(10.0 * (number + 1), 0, 10.0)
    eta = known.eta(100.0, [running(0, 0.0, 0.0)], [], 5)
    assert eta is not None
    assert eta.seconds == pytest.approx(60.0)


def test_the_time_between_trials_counts() -> None:
    known = Forecast()
    known.begin(0.0)
    for number in range(1000):
        known.end(0.1 * (number + 1), 1, 0.01)  # ten milliseconds each, and ninety until the next one
    eta = known.eta(100.0, [], [], 5000)
    assert eta is not None
    assert eta.seconds == pytest.approx(500.0, rel=0.05)


def test_few_trials_of_different_lengths_give_a_wide_spread_and_many_a_narrow_one() -> None:
    spreads = []
    for count in (5, 300):
        known, chance = Forecast(), random.Random(0)
        known.begin(0.0)
        for number in range(count):
            known.end(float(number), 0, chance.choice([1.0, 1.0, 1.0, 30.0]))
        eta = known.eta(float(count), [], [], 100)
        assert eta is not None
        spreads.append(eta.spread_s / eta.seconds)
    assert spreads[0] > 1.3 * spreads[1]


@pytest.mark.parametrize("count", [0, 1, 6])
def test_odd_numbers_do_no_harm(count: int) -> None:
    known = Forecast(0.5)
    known.begin(0.0)
    for _ in range(count):
        known.end(0.0, 0, 0.0)
    found = known.eta(0.0, [running(7, 0.0), running(0, 0.0)], [running(0, 0.0)], 3)
    assert found is None or found.seconds >= 0.0
    assert known.eta(0.0, [], [], 0) is None
