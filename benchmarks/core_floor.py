"""How many events per second the core and the simulator handle: `python benchmarks/core_floor.py [--profile]`."""

from __future__ import annotations

import argparse
import cProfile
import math
import platform
import pstats
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from searchers.base import EXHAUSTED, Config, Searcher, Signal, keyed_rng
from sweep.core.messages import Changes, Command, Event, Notify
from sweep.core.packing import Packer
from sweep.core.plan import Plan
from sweep.core.resources import Node, Resources
from sweep.core.sweep import Sweep
from sweep.core.trial import CheckpointRef, Trial
from sweep.engines.simulator import Point, Simulator
from sweep.launch.drive import drive
from sweep.schedulers.asha import ASHAScheduler
from sweep.schedulers.base import Scheduler
from sweep.schedulers.fifo import FIFOScheduler

TARGET = 50_000


class Draws(Searcher):
    """Independent draws of one learning rate, keyed by their number."""

    is_adaptive = False

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left, self._drawn = number, 0

    def suggest(self, trial_id: str) -> Config | Signal:
        if self._drawn == self._left:
            return EXHAUSTED
        self._drawn += 1
        return {"lr": 10 ** keyed_rng(0, self._drawn).uniform(-5, 0)}


class Nothing:
    """A record and observers that keep nothing but the number of events."""

    def __init__(self) -> None:
        self.num_events = 0

    def commit(
        self, events: Sequence[Event], commands: Sequence[Sequence[Command]], changes: Changes, now: float
    ) -> None:
        self.num_events += len(events)

    def discard(self, checkpoint: CheckpointRef) -> None:
        pass

    def notify(self, told: Sequence[Notify]) -> None:
        pass

    def step(self, trials: Mapping[str, Trial], now: float, changed: Sequence[str]) -> None:
        pass


def curve(config: Mapping[str, Any], done: int) -> Iterator[Point]:
    """A learning curve of 50 reports whose end depends on the learning rate."""
    goal = math.exp(-((math.log10(config["lr"]) + 2.5) ** 2))
    for step in range(done + 1, 51):
        yield Point(1.0 + config["lr"], {"accuracy": goal * (1 - math.exp(-step / 10))})


def run(num_trials: int, cpus: float, *, stops_early: bool) -> tuple[int, float, int]:
    """Return (events, seconds, reports) of one sweep, under ASHA or under FIFO, where every trial makes 50 reports."""
    scheduler: Scheduler = FIFOScheduler()
    if stops_early:
        scheduler = ASHAScheduler(max_t=50, grace_period=1, reduction_factor=3)
        scheduler.set_search_properties("accuracy", "max", seed=0)
    plan = Plan(num_trials=num_trials, metric="accuracy", mode="max")
    sweep = Sweep(plan, scheduler, Packer())
    record = Nothing()
    engine = Simulator(curve, (Node("n", cpus),))
    request = Resources()
    begin = time.perf_counter()
    drive(sweep, engine, Draws(num_trials), record, record, request_of=lambda config: request)
    seconds = time.perf_counter() - begin
    return record.num_events, seconds, sum(trial.count for trial in sweep.trials.values())


def spin() -> float:
    """Return millions of empty loop turns per second: what this machine and interpreter can do at all."""
    begin = time.perf_counter()
    for _ in range(2_000_000):
        pass
    return 2.0 / (time.perf_counter() - begin)


def main() -> None:
    """Print one line; with --profile also where the time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--cpus", type=float, default=16)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs is shown")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    parts = []
    for name, stops_early in (("ASHA", True), ("FIFO", False)):
        runs = [run(given.trials, given.cpus, stops_early=stops_early) for _ in range(given.repeat)]
        events, seconds, reports = max(runs, key=lambda row: row[0] / row[1])
        parts.append(
            f"{name} {events / seconds:,.0f} events/s ({events:,} events, {reports:,} reports, {seconds:.2f} s)"
        )
    print(
        f"core floor, {given.trials:,} trials of up to 50 reports, target {TARGET:,} events/s: {'; '.join(parts)}; "
        f"empty loop {spin():.0f} M turns/s; Python {platform.python_version()}"
    )
    if given.profile:
        profile = cProfile.Profile()
        profile.runcall(run, given.trials, given.cpus, stops_early=True)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
