"""Figures of single parts that `make bench` does not measure: the core, the import, claims, schedulers, drawing.

python benchmarks/run.py                  all of it, a few minutes
python benchmarks/run.py import core      only what is named
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import claims
import cluster
import cluster_peers
import figures
import groups
import lanes
import parameters
import schedulers

Row = tuple[str, str, str, str]  # what, measured, promised, beside it


def child(code: str, *arguments: object) -> dict[str, float]:
    """Run `code` in a fresh interpreter and return the JSON object that it prints last."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"benchmark failed:\n{ended.stderr}")
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def start_up(directory: Path) -> list[Row]:
    """`import sweep` against a bare interpreter."""

    def wall(code: str) -> float:
        spent = []
        for _ in range(9):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            spent.append(time.perf_counter() - began)
        return min(spent) * 1000

    bare, imported = wall("pass"), wall("import sweep")
    used = wall("import sweep; sweep.run, sweep.report, sweep.uniform")
    numpy = wall("import numpy")
    return [
        ("import sweep", f"{imported - bare:.0f} ms more", "<= 150 ms", f"bare {bare:.0f} ms"),
        (
            "the same, run, report and uniform used",
            f"{used - bare:.0f} ms more",
            "",
            f"numpy {numpy - bare:.0f} ms more",
        ),
    ]


def memory_and_resume(directory: Path) -> list[Row]:
    """What 10,000 finished trials leave in the driver's memory, and how fast such a sweep is read back."""
    code = """
        import gc, json, sys, time
        import psutil, sweep
        from sweep.core.messages import Hook
        from sweep.engines.simulator import Point, Simulator
        reports, number = int(sys.argv[2]), 10_000
        def curve(config, done):
            for step in range(done, reports):
                yield Point(1.0, {"loss": config["x"] / (step + 1)})
        me, seen, at = psutil.Process(), [0], {}
        class Watch(sweep.Callback):
            def on_step(self, trials, now, changed):
                if len(trials) >= 200 and "start" not in at:
                    gc.collect(); at["start"] = me.memory_info().rss
                at["trials"] = trials
            def on_experiment_end(self, trials):
                gc.collect(); at["end"] = me.memory_info().rss
        def go(**more):
            began = time.time()
            sweep.run(lambda c: None, config={"x": sweep.uniform(0, 1)}, num_samples=number, metric="loss", mode="min",
                      verbose=0, storage_path=sys.argv[1], name="many", engine=Simulator(curve, [sweep.Node(cpus=8)]),
                      callbacks=[Watch()], **more)
            return time.time() - began
        go()
        grown = (at["end"] - at["start"]) / 2**20
        spent = go(resume=True)
        print(json.dumps({"grown": grown, "resume": spent}))
    """
    found = child(code, directory / "memory", 10)
    return [
        ("driver memory, 10,000 finished trials", f"{found['grown']:.1f} MiB", "< 25 MiB", "random search, FIFO"),
        ("resume of 10,000 trials x 10 results", f"{found['resume']:.2f} s", "< 2 s", "to the end of run()"),
    ]


def core(directory: Path) -> list[Row]:
    """Events through the state machine and the simulator, without a store."""
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "core_floor.py")], capture_output=True, text=True, check=True
    )
    line = ended.stdout.strip().splitlines()[-1]
    asha, fifo = (part.split()[1] for part in line.split(": ", 1)[1].split("; ")[:2])
    turns = line.partition("empty loop ")[2].partition(";")[0]
    beside = f"ASHA; FIFO {fifo}; an empty Python loop: {turns}"
    return [("core and simulator", f"{asha} events/s", ">= 50,000/s", beside)]


PARTS: dict[str, Callable[[Path], list[Row]]] = {
    "import": start_up,
    "memory": memory_and_resume,
    "core": core,
    "cluster": cluster.rows,
    "claims": claims.rows,
    "groups": groups.rows,
    "lanes": lanes.rows,
    "parameters": parameters.rows,
    "schedulers": schedulers.rows,
    "figures": figures.rows,
    "cluster_peers": cluster_peers.rows,
}


def main() -> None:
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        raise SystemExit(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    load = os.getloadavg()[0]
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {load:.1f}, SQLite {sqlite3.sqlite_version}, "
        f"kernel {platform.release()}"
    )
    print(f"{'':42s} {'measured':>24s}   {'promised':18s} beside it")
    directory = Path(tempfile.mkdtemp(prefix="sweep-bench-", dir=os.environ.get("SWEEP_BENCH_DIR")))
    os.environ["SWEEP_CLAIMS"] = str(directory / "claims")  # what other sweeps of this machine hold does not count
    try:
        for name in wanted:
            (directory / name).mkdir()
            for what, measured, promised, beside in PARTS[name](directory / name):
                print(f"{what:42s} {measured:>24s}   {promised:18s} {beside}", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
