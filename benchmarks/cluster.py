"""A cluster in virtual time: how fast the core decides for a thousand machines, how full it keeps them, and what a
placement costs when most of them are full or unfit.

The lower bound of the makespan is what no order of the same trials can beat: the larger of the GPU-seconds that they
held over the number of GPUs, the CPU-seconds over the number of CPUs, and the seconds of the longest trial.

python benchmarks/cluster.py                  1,000 nodes of 8 GPUs, 100,000 trials, about a minute
python benchmarks/cluster.py --short          50 nodes, 2,000 trials
python benchmarks/cluster.py --profile        where the time goes, at 1,000 nodes and 20,000 trials
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import pstats
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import sweep
from searchers.base import EXHAUSTED, Config, Searcher, Signal
from sweep.core.packing import Packer
from sweep.core.resources import Bundle, Device, Node, Resources
from sweep.engines.simulator import Point, Simulator
from sweep.schedulers.asha import ASHAScheduler
from sweep.simulation.virtual import Simulation, simulate
from sweep.worker import wire

Row = tuple[str, str, str, str]  # what, measured, promised, beside it

NODES, TRIALS = 1_000, 100_000
GPUS, CPUS = 8, 64.0  # of each node
SIZES = (10, 100, 1_000, 4_000)  # nodes, for the cost of a placement


def part(gpu: float) -> Bundle:
    """GPUs with four CPUs to each, as a node has eight."""
    return Bundle(cpu=4.0 * gpu, gpu=gpu)


# What trials ask for, each with its weight in the mix.
MIX: list[tuple[int, Resources]] = [
    (25, Resources((part(0.5),))),
    (30, Resources((part(1.0),))),
    (12, Resources((part(2.0),))),
    (8, Resources((part(4.0),))),
    (5, Resources((part(8.0),))),
    (15, Resources((Bundle(cpu=8.0),))),
    *[(1, Resources((part(8.0),) * 2, strategy)) for strategy in ("PACK", "SPREAD", "STRICT_SPREAD")],
    *[(1, Resources((part(1.0),) * 16, strategy)) for strategy in ("PACK", "SPREAD", "STRICT_SPREAD")],
]


class Draws(Searcher):
    """Independent draws of a size, a speed and a quality, the same ones every time."""

    is_adaptive = False

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number, self._drawn = number, 0

    def suggest(self, trial_id: str) -> Config | Signal:
        if self._drawn == self._number:
            return EXHAUSTED
        self._drawn += 1
        draw = random.Random(self._drawn)
        kind = draw.choices(range(len(MIX)), [weight for weight, _ in MIX])[0]
        return {"kind": kind, "seconds": draw.uniform(45, 75), "quality": draw.random()}


def curve(config: Mapping[str, Any], done: int) -> Iterator[Point]:
    """Nine reports, of which ASHA lets one trial in three make more than three."""
    for step in range(done + 1, 10):
        yield Point(config["seconds"], {"accuracy": config["quality"] * (1 - math.exp(-step / 3))})


def cluster(number: int) -> list[Node]:
    """Return equal machines."""
    devices = tuple(Device(f"g{index}") for index in range(GPUS))
    return [Node(f"n{index:04d}", CPUS, devices=devices) for index in range(number)]


def run(num_nodes: int, num_trials: int) -> Simulation:
    """Simulate a sweep of the mix on equal machines."""
    return simulate(
        curve,
        metric="accuracy",
        mode="max",
        search_alg=Draws(num_trials),
        num_samples=num_trials,
        scheduler=ASHAScheduler(max_t=9, grace_period=3, reduction_factor=3),
        nodes=cluster(num_nodes),
        resources_per_trial=lambda config: MIX[config["kind"]][1],
    )


class Bound(NamedTuple):
    """What no order of the same trials can beat, in virtual seconds."""

    gpus: float
    cpus: float
    longest: float

    @property
    def seconds(self) -> float:
        return max(self)


def bound_of(found: Simulation, num_nodes: int) -> Bound:
    """Return the lower bound of a simulation's makespan."""
    spent = [(trial.last_result["time_total_s"], trial.resources.total) for trial in found.trials if trial.last_result]
    return Bound(
        sum(seconds * total.gpu for seconds, total in spent) / (GPUS * num_nodes),
        sum(seconds * total.cpu for seconds, total in spent) / (CPUS * num_nodes),
        max(seconds for seconds, _ in spent),
    )


def measured(num_nodes: int, num_trials: int) -> dict[str, float]:
    """Return the figures of one simulation, with the peak memory of this process so far."""
    begin, spent = time.perf_counter(), time.process_time()
    found = run(num_nodes, num_trials)
    seconds, own_s = time.perf_counter() - begin, time.process_time() - spent
    bound = bound_of(found, num_nodes)
    return {
        "events": found.num_events,
        "seconds": seconds,
        "own_s": own_s,
        "makespan": found.seconds,
        **bound._asdict(),
        "ratio": found.seconds / bound.seconds,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def placement_us(num_nodes: int, resources: Resources, times: int = 300) -> float:
    """Return what it costs to place a request and to give it back, in microseconds: the median.

    Four nodes are idle. Of the others every second one has no GPUs, the rest is full.
    """
    plain = [Node(f"plain{index}", CPUS) for index in range((num_nodes - 4) // 2)]
    packer = Packer([*cluster(num_nodes - len(plain)), *plain])
    whole = Resources((part(8.0),))
    for number in range(num_nodes - len(plain)):
        assert packer.place(whole, (f"full_{number}", 1)) is not None
    for number in range(4):
        packer.release((f"full_{number * (num_nodes - len(plain)) // 4}", 1))
    spent = []
    for number in range(times):
        begin = time.perf_counter()
        placement = packer.place(resources, (f"one_{number}", 1))
        packer.release((f"one_{number}", 1))
        spent.append(time.perf_counter() - begin)
        assert placement is not None
    return statistics.median(spent) * 1e6


def placements() -> list[Row]:
    """What a placement costs on ever more nodes that cannot take it."""
    rows = []
    for name, resources in (("of one GPU", MIX[1][1]), ("of a gang of 2 x 8 GPUs", MIX[6][1])):
        costs = [placement_us(number, resources) for number in SIZES]
        shown = ", ".join(f"{cost:.0f}" for cost in costs)
        beside = f"us at {', '.join(f'{number:,}' for number in SIZES)} nodes, all but 4 full or without GPUs"
        rows.append((f"placement {name}", shown, "flat", beside))
    return rows


def recorded(directory: Path, num_trials: int = 1_000) -> list[Row]:
    """What a driver with its record takes in, when 1,000 trials report at a time, and how large a report is."""

    def curve(config: dict[str, Any], done: int) -> Iterator[Point]:
        for step in range(done, 50):
            yield Point(1.0, {"accuracy": config["x"] * step, "loss": 0.1 / (step + 1), "error": 0.3})

    engine = Simulator(curve, [Node(f"n{index}", cpus=8) for index in range(125)])
    begin = time.perf_counter()
    sweep.run(
        lambda config: None,
        config={"x": sweep.uniform(0, 1)},
        num_samples=num_trials,
        metric="accuracy",
        mode="max",
        verbose=0,
        storage_path=directory,
        name="recorded",
        engine=engine,
    )
    seconds = time.perf_counter() - begin
    number = 50 * num_trials
    size = sum(path.stat().st_size for path in (directory / "recorded").glob("sweep.db*"))
    metrics = {f"metric_{index}": index / 7 for index in range(10)}
    frame = wire.frame(wire.Report(("abcde_00001", 1), 1, metrics, None))
    begin = time.perf_counter()
    for _ in range(10_000):
        wire.decode(frame[4:])
    decode_us = (time.perf_counter() - begin) * 100
    return [
        (
            "results/s into the record, 1,000 at a time",
            f"{number / seconds:,.0f}/s",
            "",
            "simulated trials, one driver",
        ),
        ("bytes of a result in the record", f"{size / number:.0f}", "", f"on a socket {len(frame)}, with ten metrics"),
        ("reading a report from a socket's bytes", f"{decode_us:.1f} us", "", ""),
    ]


def rows(directory: Path, num_nodes: int = NODES, num_trials: int = TRIALS) -> list[Row]:
    """Return what was measured, what is promised and what stands beside it, a line for each figure."""
    ended = subprocess.run(
        [sys.executable, __file__, "--json", "--nodes", str(num_nodes), "--trials", str(num_trials)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    per_s = found["events"] / found["seconds"]
    parts = f"GPUs {found['gpus']:,.0f} s, CPUs {found['cpus']:,.0f} s, longest {found['longest']:,.0f} s"
    took = f"{found['events']:,} in {found['seconds']:.0f} s, {found['own_s']:.0f} s of them on a CPU"
    size = f"{num_nodes:,} nodes x {GPUS} GPUs, {num_trials:,} trials"
    return [
        (size, f"{per_s:,.0f} events/s", ">= 10,000/s", took),
        ("makespan / lower bound", f"{found['ratio']:.3f}", "<= 1.1", f"{found['makespan']:,.0f} s; bound: {parts}"),
        ("peak memory", f"{found['gib']:.2f} GiB", "< 4 GiB", "of the whole process, with every report kept"),
        *placements(),
        *recorded(directory),
    ]


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--short", action="store_true", help="50 nodes and 2,000 trials")
    parser.add_argument("--json", action="store_true", help="only the simulation, as one JSON object")
    parser.add_argument("--profile", action="store_true", help="where the time goes, with 20,000 trials")
    given = parser.parse_args()
    num_nodes, num_trials = (50, 2_000) if given.short else (given.nodes, given.trials)
    if given.json:
        print(json.dumps(measured(num_nodes, num_trials)))
    elif given.profile:
        profile = cProfile.Profile()
        profile.runcall(run, num_nodes, min(num_trials, 20_000))
        pstats.Stats(profile).sort_stats("tottime").print_stats(16)
    else:
        with tempfile.TemporaryDirectory() as name:
            for what, result, promised, beside in rows(Path(name), num_nodes, num_trials):
                print(f"{what:42s} {result:>24s}   {promised:18s} {beside}", flush=True)


if __name__ == "__main__":
    main()
