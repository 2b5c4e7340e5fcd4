"""How often something happens, as the display says it."""

from __future__ import annotations

import pytest

from sweep.display.rate import Rate


def rate_of(times: list[float], now: float, began: float = 0.0) -> float | None:
    rate = Rate()
    rate.begin(began)
    for time in times:
        rate.add(time)
    return rate.per_second(now)


def test_two_trials_in_three_seconds_say_nothing_yet() -> None:
    assert rate_of([2.98, 3.0], 3.0) is None
    assert rate_of([], 100.0) is None
    assert Rate().per_second(100.0) is None


def test_in_the_first_minute_it_is_that_since_the_beginning() -> None:
    assert rate_of([9.0, 9.1, 9.2, 9.3, 9.4], 10.0) == pytest.approx(0.5)
    assert rate_of([109.0] * 5, 110.0, began=100.0) == pytest.approx(0.5)


def test_after_a_minute_few_trials_say_something_too() -> None:
    assert rate_of([30.0, 60.0], 61.0) == pytest.approx(2 / 61)


def test_later_it_is_that_of_the_last_minute() -> None:
    burst = [second / 10 for second in range(600)]
    slowly = [float(second) for second in range(60, 180)]
    assert rate_of(burst + slowly, 180.0) == pytest.approx(1.0, rel=0.05)
    assert rate_of(burst, 60.0) == pytest.approx(10.0, rel=0.05)
    assert rate_of(burst, 75.0) == pytest.approx(7.5, rel=0.05)  # nothing has happened in the last 15 s


def test_long_trials_that_end_together_are_counted_over_several_rounds() -> None:
    rounds = [float(600 * number) for number in range(1, 11) for _ in range(5)]
    assert rate_of(rounds, 6000.0) == pytest.approx(5 / 600, rel=0.01)
    assert rate_of(rounds, 6060.0) == pytest.approx(5 / 600, rel=0.05)
    assert rate_of(rounds[:5], 605.0) == pytest.approx(5 / 605)


def test_it_keeps_a_minute_and_not_every_trial() -> None:
    rate = Rate()
    for number in range(100_000):
        rate.add(number / 1000)
    assert rate.total == 100_000
    assert rate.per_second(100.0) == pytest.approx(1000.0, rel=0.01)
    assert len(rate._entries) <= 122
