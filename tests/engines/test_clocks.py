"""Times of another machine in this one's clock, from messages both ways."""

from __future__ import annotations

import random

import pytest

from sweep.engines.local.group import ClockGap


@pytest.mark.parametrize("ahead", [-5000.0, 0.0, 12.5])
def test_a_time_is_told_as_exactly_as_the_fastest_ways_are_alike(ahead):
    draw = random.Random(1)
    gap, lag, now = ClockGap(), float("inf"), 100.0
    for _ in range(20):
        there = now + draw.uniform(0.001, 0.2)  # when what is sent now arrives, by this clock
        lag = min(lag, there + ahead - now)
        now = there + draw.uniform(0.001, 0.2)
        gap.heard(there + ahead, now, lag)
    assert gap.here(90.0 + ahead, now) == pytest.approx(90.0, abs=0.02)


def test_before_an_answer_has_come_a_message_is_taken_to_arrive_at_once():
    gap = ClockGap()
    gap.heard(7.0, 100.0, None)
    gap.heard(8.0, 100.5, None)
    assert gap.here(7.5, 101.0) == 100.0


def test_nothing_that_was_told_lies_in_the_future():
    gap = ClockGap()
    assert gap.here(1e9, 3.0) == 3.0
    gap.heard(0.0, 3.0, 2.0)
    assert gap.here(50.0, 3.0) == 3.0
