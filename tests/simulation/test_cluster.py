"""A cluster in virtual time: nothing is given out twice, and the machines are kept busy."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from sweep.core.messages import Released, Start
from sweep.engines.simulator import Simulator
from sweep.simulation import virtual

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "cluster.py"


@pytest.fixture(scope="module")
def cluster() -> ModuleType:
    """The benchmark, whose sweep it is."""
    return _benchmark(BENCHMARK)


@pytest.fixture(scope="module")
def busy() -> ModuleType:
    """The one of nodes that come and go, and of a slow searcher."""
    return _benchmark(BENCHMARK.with_name("busy.py"))


def _benchmark(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Checked(Simulator):
    """A simulator that keeps its own account of what is given out on each node."""

    instances: list[Checked] = []

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.there = {(node.id, "cpu"): Fraction(node.cpus) for node in self.nodes()}
        self.there |= {(node.id, device.id): Fraction(1) for node in self.nodes() for device in node.devices}
        self.used: Counter = Counter()
        self.held: dict = {}
        self.num_starts = 0
        self.instances.append(self)

    def execute(self, command):
        if isinstance(command, Start):
            trial = command.trial
            self.num_starts += 1
            self.held[trial.id, trial.attempt] = trial.resources, trial.placement
            self.take(trial.resources, trial.placement, 1)
            on = [place.node for place in trial.placement.bundles]
            assert len(set(on)) == len(on) or trial.resources.strategy != "STRICT_SPREAD"
        super().execute(command)

    def next_events(self, deadline):
        events = super().next_events(deadline)
        for event in events:
            if isinstance(event, Released):
                self.take(*self.held.pop((event.trial_id, event.attempt)), -1)
        return events

    def take(self, resources, placement, sign):
        for bundle, place in zip(resources.bundles, placement.bundles, strict=True):
            assert sum(share for _, share in place.devices) == bundle.gpu
            for name, amount in (("cpu", bundle.cpu), *place.devices):
                self.used[place.node, name] += sign * Fraction(amount)
                assert 0 <= self.used[place.node, name] <= self.there[place.node, name]


def test_a_cluster_is_full_and_never_more_than_full(cluster, monkeypatch):
    monkeypatch.setattr(virtual, "Simulator", Checked)
    monkeypatch.setattr(Checked, "instances", [])
    found = cluster.run(20, 2_000)
    (engine,) = Checked.instances
    assert not engine.held
    assert not any(engine.used.values())
    assert {trial.status for trial in found.trials} == {"TERMINATED"}
    assert {len(trial.resources.bundles) for trial in found.trials} == {1, 2, 16}
    assert engine.num_starts == len(found.trials) == 2_000
    # a plan and an inventory; each trial is suggested, starts, exits and is released
    assert found.num_events == 2 + 4 * 2_000 + len(found.arrivals)
    assert found.seconds <= 1.2 * cluster.bound_of(found, 20).seconds


@pytest.mark.slow
def test_a_thousand_nodes_fit_into_memory_and_are_kept_busy():
    size = ["--nodes", "1000", "--trials", "100000"]
    ended = subprocess.run(
        [sys.executable, str(BENCHMARK), "--json", *size], capture_output=True, text=True, check=True
    )
    found = json.loads(ended.stdout)
    assert found["events"] > 900_000
    assert found["gib"] < 4
    assert found["ratio"] <= 1.1


def test_nodes_that_are_away_a_third_of_the_time_cost_only_what_was_not_saved(busy):
    found = busy.preempted(10, 100)
    assert found["trials"] == 100
    assert found["losses"] > 100
    assert 0.25 < found["away"] < 0.35
    assert 1 < found["ratio"] <= 1.25


@pytest.mark.parametrize(("cost_s", "least", "most"), [(1.5, 0.95, 1.0), (5.0, 0.0, 0.65)])
def test_workers_are_busy_unless_the_searcher_is_too_slow_for_them(busy, cost_s, least, most):
    """200 workers for ten minutes need a suggestion every 3 s; at the beginning each waits for its first one."""
    assert least <= busy.suggested(200, 8, cost_s)["busy"] <= most
