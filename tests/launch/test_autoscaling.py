"""What a cluster that can grow is told."""

from __future__ import annotations

import queue

import pytest

from sweep.core.resources import PlacementGroupFactory, parse_resources
from sweep.core.trial import Status, Trial
from sweep.launch import observers
from sweep.launch.observers import Demand


def trial(number, status, request):
    return Trial(id=f"abcde_{number:05d}", config={}, resources=parse_resources(request), status=status)


@pytest.fixture
def told(monkeypatch):
    """What was told, as (waiting, running)."""
    monkeypatch.setattr(observers, "_EVERY_S", 0.01)
    return queue.SimpleQueue()


@pytest.fixture
def step(told):
    """Return a function that takes the trials which have changed in a step."""
    demand = Demand(lambda waiting, running: told.put((waiting, running)))
    known = {}

    def stepped(*trials):
        known.update({one.id: one for one in trials})
        demand.on_step(known, 0.0, [one.id for one in trials])

    yield stepped
    demand.on_experiment_end([])
    assert told.empty()


def test_what_waits_and_what_is_held_is_told_and_what_is_over_or_paused_asks_for_nothing(step, told):
    step(
        trial(0, Status.TERMINATED, {"cpu": 64}),
        trial(1, Status.PENDING, PlacementGroupFactory([{"CPU": 2, "GPU": 1}] * 2)),
        trial(2, Status.RUNNING, {"cpu": 1, "license": 1}),
        trial(3, Status.PAUSED, {"cpu": 32}),
    )
    waiting, running = told.get(timeout=20)
    assert waiting == [{"CPU": 2.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}]
    assert running == [{"CPU": 1.0, "license": 1.0}]


def test_a_step_without_trials_does_not_delay_what_comes_next_and_the_last_change_is_told_though_nothing_follows(
    step, told
):
    step()
    step(trial(0, Status.PENDING, {"cpu": 6}))
    assert told.get(timeout=20) == ([{"CPU": 6.0}], [])
    step(trial(1, Status.PENDING, {"cpu": 1}))  # right after it was told
    assert told.get(timeout=20) == ([{"CPU": 6.0}, {"CPU": 1.0}], [])


def test_what_has_not_changed_is_not_told_again(step, told):
    step(trial(0, Status.RUNNING, {"cpu": 1}))
    assert told.get(timeout=20) == ([], [{"CPU": 1.0}])
    step(trial(0, Status.RUNNING, {"cpu": 1}))
    step(trial(0, Status.PENDING, {"cpu": 1}))
    assert told.get(timeout=20) == ([{"CPU": 1.0}], [])


@pytest.mark.parametrize(
    ("num_trials", "limit", "more"), [(5, None, 3), (5, 3, 1), (5, 2, 0), (None, None, 256), (2, None, 0)]
)
def test_trials_that_are_still_to_come_wait_too_as_many_as_may_run(told, num_trials, limit, more):
    demand = Demand(lambda waiting, running: told.put((waiting, running)), num_trials, limit)
    trials = {one.id: one for one in (trial(0, Status.RUNNING, {"cpu": 1}), trial(1, Status.RUNNING, {"cpu": 2}))}
    demand.on_step(trials, 0.0, list(trials))
    assert told.get(timeout=20) == ([{"CPU": 2.0}] * more, [{"CPU": 1.0}, {"CPU": 2.0}])
    demand.on_experiment_end([])


def test_a_trial_that_comes_is_told_though_it_asks_for_what_was_expected(told):
    demand = Demand(lambda waiting, running: told.put((waiting, running)), 2)
    trials = {"a": trial(0, Status.TERMINATED, {"cpu": 1})}
    demand.on_step(trials, 0.0, ["a"])
    assert told.get(timeout=20) == ([{"CPU": 1.0}], [])
    trials["b"] = trial(1, Status.PENDING, {"cpu": 1})
    demand.on_step(trials, 0.0, ["b"])
    assert told.get(timeout=20) == ([{"CPU": 1.0}], [])
    demand.on_experiment_end([])
