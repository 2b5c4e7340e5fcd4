"""What a cluster that can grow is told."""

from __future__ import annotations

import queue

from sweep.core.resources import PlacementGroupFactory, parse_resources
from sweep.core.trial import Status, Trial
from sweep.launch.observers import Demand


def trial(number, status, request):
    return Trial(id=f"abcde_{number:05d}", config={}, resources=parse_resources(request), status=status)


def test_what_is_held_and_what_waits_is_asked_for_and_what_is_over_or_paused_asks_for_nothing():
    trials = [
        trial(0, Status.TERMINATED, {"cpu": 64}),
        trial(1, Status.PENDING, PlacementGroupFactory([{"CPU": 2, "GPU": 1}] * 2)),
        trial(2, Status.RUNNING, {"cpu": 1, "license": 1}),
        trial(3, Status.PAUSED, {"cpu": 32}),
    ]
    told = queue.SimpleQueue()
    demand = Demand(told.put)
    demand.on_step({one.id: one for one in trials}, 0.0, ())
    assert told.get(timeout=20) == [{"CPU": 2.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}, {"CPU": 1.0, "license": 1.0}]
    demand.on_experiment_end([])


def test_it_is_told_again_only_when_it_has_changed_and_not_at_every_step():
    told = queue.SimpleQueue()
    demand = Demand(told.put)
    one, two = trial(0, Status.RUNNING, {"cpu": 1}), trial(1, Status.PENDING, {"cpu": 1})
    demand.on_step({one.id: one}, 0.0, ())
    demand.on_step({one.id: one, two.id: two}, 1.0, ())  # too soon
    demand.on_step({one.id: one}, 6.0, ())  # as before
    demand.on_step({one.id: one, two.id: two}, 12.0, ())
    assert [len(told.get(timeout=20)) for _ in range(2)] == [1, 2]
    demand.on_experiment_end([])
    assert told.empty()
