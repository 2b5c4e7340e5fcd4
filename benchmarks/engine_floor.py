"""What the local engine can do with nothing around it: trials and reports per second, CPU time of each, the cold start.

CPU time counts the driver and all that it started, so it says something on a busy machine, too.

Run: python benchmarks/engine_floor.py [seconds per figure]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sweep.core.messages import Continue, Exited, ExitKind, Released, Reported, Start, Tick
from sweep.core.resources import Bundle, Node, Resources
from sweep.core.trial import Trial
from sweep.engines.base import EngineContext
from sweep.engines.local.engine import LocalEngine
from sweep.worker.environment import THREAD_VARIABLES
from sweep.worker.session import report
from sweep.worker.trainable import prepare

CPU = Resources((Bundle(cpu=1.0),))


def report_once(config: dict) -> None:
    """Report one number."""
    report({"loss": 1.0})


def report_for_ever(config: dict) -> None:
    """Report as fast as it is answered."""
    while True:
        report({"loss": 1.0})


def drive(engine: LocalEngine, *, slots: int, seconds: float, warm_up_s: float = 0.5) -> tuple[float, float, int, int]:
    """Keep `slots` trials running, answer every report; return the rates after the warm-up, and the totals."""
    number = trials = reports = all_trials = all_reports = 0

    def start() -> None:
        nonlocal number
        engine.execute(Start(Trial(id=f"bench_{number:05d}", config={"x": number}, resources=CPU, attempt=1)))
        number += 1

    for _ in range(slots):
        start()
    begin = None
    end = float("inf")
    while time.perf_counter() < end:
        for event in engine.next_events(engine.now() + 10):
            if isinstance(event, Reported):
                engine.execute(Continue(event.trial_id, event.attempt, event.seq))
                reports += 1
                all_reports += 1
            elif isinstance(event, Released):
                trials += 1
                all_trials += 1
                start()
            elif isinstance(event, Exited):
                assert event.exit.kind is ExitKind.FINISHED, event.exit
            assert not isinstance(event, Tick), "nothing happened for 10 s"
        if begin is None and reports:
            begin = time.perf_counter() + warm_up_s
            end = begin + seconds
        if begin is not None and time.perf_counter() < begin:
            trials = reports = 0
    return trials / seconds, reports / seconds, all_trials, all_reports


def fork_ms(modules: str) -> float:
    """Return what one fork with its exit and wait costs in a process that has imported `modules`."""
    code = (
        f"import gc, os, time{', ' + modules if modules else ''}\n"
        "gc.collect(); gc.freeze(); begin = time.perf_counter()\n"
        "for _ in range(100):\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "print((time.perf_counter() - begin) * 10)"
    )
    environ = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    return float(done.stdout)


def engine(directory: str, function: object, **options: object) -> LocalEngine:
    """Return an engine with 8 CPUs for a function."""
    return LocalEngine(
        EngineContext(directory=Path(directory), trainable=prepare(function), nodes=[Node(cpus=8)], **options)
    )


def main(seconds: float) -> None:
    """Print one line per figure."""
    for name, modules in (("bare", ""), ("numpy", "numpy"), ("torch", "torch")):
        print(f"{'this machine: fork, exit and wait, ' + name:42} {fork_ms(modules):8.2f} ms", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        begin = time.perf_counter()
        cold = engine(f"{directory}/cold", report_once)
        cold.execute(Start(Trial(id="bench_00000", config={}, resources=CPU, attempt=1)))
        while not any(isinstance(event, Reported) for event in cold.next_events(None)):
            continue
        print(f"{'engine made to first report':42} {time.perf_counter() - begin:8.3f} s")
        cold.close()
        cases = [
            ("fresh process, bare, 2 slots", report_once, 2, {}, 0),
            ("fresh process, torch preloaded, 2 slots", report_once, 2, {"preload": ["torch"]}, 0),
            ("reuse_actors, bare, 2 slots", report_once, 2, {"reuse_actors": True}, 0),
            ("8 reporters", report_for_ever, 8, {}, 1),
        ]
        for name, function, slots, options, which in cases:
            before = sum(os.times()[:4])
            made = engine(f"{directory}/{name.replace(' ', '_')}", function, **options)
            try:
                figures = drive(made, slots=slots, seconds=seconds)
            finally:
                made.close()
            cpu_ms = 1000 * (sum(os.times()[:4]) - before) / figures[which + 2]
            print(
                f"{name:42} {figures[which]:8,.0f} {('trials/s', 'reports/s')[which]:10} {cpu_ms:7.3f} ms CPU each",
                flush=True,
            )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
