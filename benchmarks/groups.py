"""What training groups cost: from a start to both ranks past `init_process_group`, and how well gangs fill a machine.

Each figure stands beside its floor, measured in the same run: two processes forked from one that has imported torch,
which join a group and leave; and the makespan that no packing can beat. Ray Train and torchrun stand beside a whole
`fit()` in `make bench`.

Run: python benchmarks/groups.py [starts]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sweep
from sweep.core.messages import Exited, Released, Start, Started
from sweep.core.packing import Packer
from sweep.core.resources import Node
from sweep.core.trial import Trial
from sweep.engines.base import EngineContext
from sweep.engines.local.engine import LocalEngine
from sweep.train import DataParallelTrainer, ScalingConfig
from sweep.train.torch import TorchTrainer
from sweep.worker.trainable import prepare

FLOOR = Path(__file__).parent / "peers" / "floors" / "group.py"


def joined(config: dict) -> None:
    """Be in the group, nothing more."""
    import torch.distributed as dist

    assert dist.is_initialized()


def start_s(directory: Path, number: int) -> list[float]:
    """Return the times from `Start` to both ranks past `init_process_group`, torch being preloaded, in s."""
    trainable = prepare(TorchTrainer(joined, scaling_config=ScalingConfig(num_workers=2)))
    resources = trainable.resources({})
    nodes = [Node(cpus=4)]
    engine = LocalEngine(EngineContext(directory=directory, trainable=trainable, nodes=nodes))
    packer = Packer(nodes)
    times = []
    try:
        for i in range(number + 1):
            placement = packer.place(resources, ("t", i))
            begin = time.perf_counter()
            engine.execute(Start(Trial(f"bench_{i:05d}", {}, resources, attempt=1, placement=placement)))
            is_over = False
            while not is_over:
                for event in engine.next_events(None):
                    if isinstance(event, Started):
                        times.append(time.perf_counter() - begin)
                    elif isinstance(event, Exited):
                        assert event.exit.kind == "FINISHED", event.exit
                    is_over = is_over or isinstance(event, Released)
            packer.release(("t", i))
    finally:
        engine.close()
    return times[1:]  # the first one waited for the import of torch


def busy(config: dict) -> None:
    """Take a known time."""
    time.sleep(config["seconds"])


def nested(config: dict) -> None:
    """Run the same group inside a function trial, on what the trial holds."""
    DataParallelTrainer(busy, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2)).fit()


def makespans(directory: Path) -> list[tuple[str, float, float]]:
    """Return what runs on 4 declared CPUs, how long that takes and the least that it can take, in s."""
    workers = ScalingConfig(num_workers=2)
    common = {"nodes": [Node(cpus=4)], "storage_path": directory, "verbose": 0}
    one = {"train_loop_config": {"seconds": 1.0}}
    runs = [
        (
            "8 trials of 2 workers",
            sweep.run(
                DataParallelTrainer(busy, scaling_config=workers), config=one, num_samples=8, name="gangs", **common
            ),
            4.0,
        ),
        (
            "8 trials with a fit() of 2 workers inside",
            sweep.run(
                nested,
                config={"seconds": 1.0},
                num_samples=8,
                name="nested",
                resources_per_trial=sweep.PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 1}]),
                **common,
            ),
            4.0,
        ),
        # 2 x (1 + 2 + 4) seconds of CPUs; the whole seconds that hold them: 4 | 4 | 2 + 2 | 1 + 1
        (
            "6 trials of 1, 2 or 4 workers",
            sweep.run(
                DataParallelTrainer(busy),
                name="searched",
                num_samples=2,
                config={**one, "scaling_config": {"num_workers": sweep.grid_search([1, 2, 4])}},
                **common,
            ),
            4.0,
        ),
    ]
    found = []
    for what, analysis, least in runs:
        frame = analysis.dataframe(full=True)
        took = (frame["end_time"].max() - frame["start_time"].min()).total_seconds()
        found.append((what, took, least))
    return found


def rows(directory: Path, number: int = 20) -> list[tuple[str, str, str, str]]:
    """Return what was measured, what is promised and what stands beside it, a line for each figure."""
    command = [sys.executable, str(FLOOR), str(directory), str(number)]
    floor = subprocess.run(command, capture_output=True, text=True, check=True)
    bare = float(json.loads(floor.stdout)["joined_s"])
    times = start_s(directory / "start", number)
    ours = statistics.median(times)
    return [
        (
            "group of 2 torch ranks, Start to joined",
            f"{1000 * ours:.0f} ms (largest {1000 * max(times):.0f})",
            "<= 300 ms",
            f"forked and joined by hand: {1000 * bare:.0f} ms; ratio {ours / bare:.1f}",
        ),
        *(
            (what, f"{took:.2f} s", "<= 1.15x bound", f"on 4 CPUs at least {least:.1f} s; ratio {took / least:.2f}")
            for what, took, least in makespans(directory)
        ),
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for what, measured, promised, beside in rows(Path(name), int(sys.argv[1]) if len(sys.argv) > 1 else 20):
            print(f"{what:42s} {measured:>24s}   {promised:18s} {beside}", flush=True)
