"""How well a forecast of `sweep plan` meets what happens: three workloads, many worlds of each.

A world is a sweep in virtual time whose trials are drawn from a distribution. Its forecast knows other draws of the
same distribution: some pilot trials, run to their end, or all trials of an earlier sweep, run as this one will be.

Run: python benchmarks/forecasts.py [--worlds N] [--pilots 2,8,24] [--only NAME]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import sweep
from sweep.core.resources import Device, Node
from sweep.core.trial import Trial, number_of
from sweep.engines.simulator import Point, Simulator
from sweep.launch.build import Built, build
from sweep.launch.spec import RunSpec
from sweep.simulation.curves import RecordedCurve
from sweep.simulation.forecast import Known, forecast, pilots
from sweep.simulation.virtual import drive_in_virtual_time
from sweep.worker.trainable import PreparedTrainable

SIMULATED = 16
OFF = 0.2  # the promise: a median within 20%


@dataclass(frozen=True)
class Workload:
    """A sweep, and how its trials are drawn.

    Attributes:
        reports: of a whole trial. median_s, spread: of its time: median, and standard deviation of the logarithm.
        size_power: a trial of size n takes n to this power as long.
    """

    name: str
    nodes: tuple[Node, ...]
    trials: int
    reports: int
    spread: float
    median_s: float = 600.0
    size_power: float = 0.0
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, *, is_pilot: bool = False) -> RunSpec:
        arguments = {key: make() if key == "scheduler" else make for key, make in self.arguments.items()}
        if is_pilot:
            arguments.pop("scheduler", None)
        space = {"x": sweep.uniform(0, 1), "size": sweep.choice([1, 2, 4])}
        return RunSpec(
            trainable=None,
            config=space,
            num_samples=self.trials,
            metric="loss",
            mode="min",
            strict_metric=False,
            **arguments,
        )

    def build(self, seed: int, *, is_pilot: bool = False) -> Built:
        trainable = PreparedTrainable("world", "function", b"")
        return build(self.spec(is_pilot=is_pilot), trainable, self.nodes, seed=seed)


class World(Simulator):
    """Trials drawn from the distribution of a workload."""

    def __init__(self, workload: Workload, seed: int) -> None:
        super().__init__(lambda config, count: iter(()), workload.nodes)
        self._workload, self._seed = workload, seed

    def points(self, trial: Trial, done: int) -> Iterator[Point]:
        workload, rng = self._workload, np.random.default_rng((self._seed, number_of(trial.id)))
        whole_s = workload.median_s * float(np.exp(workload.spread * rng.normal()))
        whole_s *= trial.config["size"] ** workload.size_power
        end, pace = trial.config["x"] + 0.1 * rng.normal(), rng.uniform(0.5, 1.5)
        noise = 0.02 * rng.normal(size=workload.reports)
        for step in range(done, workload.reports):
            loss = end + np.exp(-pace * step / workload.reports * 5) + noise[step]
            yield Point(whole_s / workload.reports, {"loss": float(loss)}, has_checkpoint=True)


def happens(workload: Workload, seed: int) -> float:
    """Return how long a sweep takes in one world."""
    built, world = workload.build(seed), World(workload, seed)
    return drive_in_virtual_time(built, world).seconds


def known(workload: Workload, seed: int, number: int | None) -> Known:
    """Return so many pilot trials of another world, or all trials of an earlier sweep there."""
    built, world = workload.build(seed, is_pilot=number is not None), World(workload, seed)
    found = drive_in_virtual_time(built, world)
    points: dict[str, list[Point]] = {trial.id: [] for trial in found.trials}
    for arrival in found.arrivals:
        points[arrival.trial_id].append(
            Point(arrival.metrics["time_this_iter_s"], {"loss": arrival.metrics["loss"]}, True)
        )
    curves = [
        RecordedCurve(
            trial.id,
            trial.config,
            tuple(points[trial.id]),
            len(points[trial.id]) < workload.reports,
            "",
            trial.resources,
        )
        for trial in (found.trials if number is None else pilots(found.trials, number, seed))
    ]
    return Known(curves, ["loss"])


def asked(config: Mapping[str, Any]) -> dict[str, float]:
    return {"cpu": 4.0, "gpu": config["size"]}


def gpus(name: str, number: int) -> Node:
    return Node(name, 32.0, devices=tuple(Device(str(index)) for index in range(number)))


WORKLOADS = [
    Workload("lognormal", (Node("local", 8.0),), trials=100, reports=5, spread=0.5),
    Workload(
        "asha",
        (Node("local", 8.0),),
        trials=300,
        reports=9,
        spread=0.4,
        arguments={"scheduler": partial(sweep.ASHAScheduler, max_t=9, reduction_factor=3)},
    ),
    Workload(
        "mixed GPUs",
        (gpus("a", 8), gpus("b", 8), gpus("c", 4)),
        trials=120,
        reports=5,
        spread=0.4,
        size_power=0.7,
        arguments={"resources_per_trial": asked},
    ),
]


def measure(workload: Workload, number: int | None, worlds: int) -> tuple[int, int, float, float]:
    """Return in how many worlds the forecast was within 20%, and in how many its range held what happened; the largest
    error, and the median width of the range as a share of its median."""
    errors, widths, held = [], [], 0
    for seed in range(worlds):
        truth = happens(workload, 1000 + seed)
        found = forecast(partial(workload.build, 1000 + seed), known(workload, seed, number), SIMULATED)["seconds"]
        errors.append(abs(found["median"] / truth - 1))
        widths.append((found["high"] - found["low"]) / found["median"])
        held += found["low"] <= truth <= found["high"]
    return sum(error <= OFF for error in errors), held, max(errors), float(np.median(widths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--pilots", default="2,4,8,16,24,32")
    parser.add_argument("--only")
    given = parser.parse_args()
    print("| workload | known | within 20% | range holds it | largest error | width of the range |")
    print("| --- | --- | --- | --- | --- | --- |")
    for workload in WORKLOADS:
        for number in (*map(int, given.pilots.split(",")), None):
            if given.only in (None, workload.name):
                within, held, most, width = measure(workload, number, given.worlds)
                known_as, of = "an earlier sweep" if number is None else f"{number} pilot trials", given.worlds
                shares = f"{within} of {of} | {held} of {of} | {most:.0%} | {width:.0%}"
                print(f"| {workload.name} | {known_as} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
