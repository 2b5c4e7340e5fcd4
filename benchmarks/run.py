"""Every speed and memory figure the project promises, with the machine's floor measured in the same run.

python benchmarks/run.py            all of it, a few minutes
python benchmarks/run.py import warm      only what is named
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import statistics
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
import parameters
import schedulers

Row = tuple[str, str, str, str]  # what, measured, promised, beside it


# Three files per trial that Tune's users expect; making files is what trials of a millisecond mostly do.
NO_LOGGERS = {"SWEEP_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}


def child(code: str, *arguments: object, environment: dict[str, str] | None = None) -> dict[str, float]:
    """Run `code` in a fresh interpreter and return the JSON object that it prints last."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"benchmark failed:\n{ended.stderr}")
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def flush_ms(directory: Path, times: int = 200) -> float:
    """Return the median time of one `fdatasync` of 200 new bytes, in ms: the floor of every commit."""
    descriptor = os.open(directory / "flush", os.O_RDWR | os.O_CREAT)
    spent = []
    for _ in range(times):
        os.write(descriptor, b"x" * 200)
        began = time.perf_counter()
        os.fdatasync(descriptor)
        spent.append(time.perf_counter() - began)
    os.close(descriptor)
    return statistics.median(spent) * 1000


def fork_ms(times: int = 200) -> float:
    """Return the median time of one fork, exit and wait of this interpreter, in ms: the floor of a fresh process."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1000


def files_ms(directory: Path, times: int = 300) -> float:
    """Return the time of making a directory with one file in it, in ms: what a trial's output costs at least."""
    began = time.perf_counter()
    for number in range(times):
        place = directory / f"made-{number}"
        place.mkdir()
        os.close(os.open(place / "output.log", os.O_WRONLY | os.O_CREAT))
    return (time.perf_counter() - began) / times * 1000


def start_up(directory: Path) -> list[Row]:
    """`import sweep` against a bare interpreter, and a cold process to its first result."""

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
    code = """
        import json, sys
        from pathlib import Path
        import sweep
        from sweep.record.access import open_for_reading
        analysis = sweep.run(lambda c: sweep.report(loss=1), verbose=0, storage_path=sys.argv[1])
        db = open_for_reading(Path(analysis.experiment_path) / "sweep.db")
        print(json.dumps({"wall": next(db.execute("SELECT min(wall) FROM result"))[0]}))
    """
    spent = []
    for _ in range(5):
        began = time.time()
        spent.append(child(code, directory)["wall"] - began)
    cold = min(spent)
    return [
        ("import sweep", f"{imported - bare:.0f} ms more", "<= 150 ms", f"bare {bare:.0f} ms"),
        (
            "the same, run, report and uniform used",
            f"{used - bare:.0f} ms more",
            "",
            f"numpy {numpy - bare:.0f} ms more",
        ),
        ("cold process to its first result", f"{cold:.2f} s", "<= 0.6 s", f"bare {bare / 1000:.2f} s"),
    ]


SHORT = """
    import json, sys, time
    directory, number, options, preload = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
    import sweep
    from sweep.record.access import open_for_reading
    from pathlib import Path
    def train(config):
        sweep.report(loss=config["x"])
    began = time.time()
    sweep.run(train, config={"x": sweep.uniform(0, 1)}, num_samples=number, metric="loss", mode="min", verbose=0,
              storage_path=directory, name="short", nodes=[sweep.Node(cpus=2)],
              preload=[preload] if preload else [], **options)
    db = open_for_reading(Path(directory) / "short" / "sweep.db")
    at = [row[0] for row in db.execute("SELECT wall FROM event WHERE kind = 'Released' ORDER BY seq")]
    head = at[min(600, number // 2)] - at[100]
    tail = at[-1] - at[-1 - min(500, number // 2)]
    first = next(db.execute("SELECT min(wall) FROM event WHERE kind = 'Started'"))[0]
    print(json.dumps({"per_s": (number - 1) / (at[-1] - first),
                      "head_ms": head / (min(600, number // 2) - 100) * 1000,
                      "tail_ms": tail / min(500, number // 2) * 1000}))
"""


def short_trials(directory: Path) -> list[Row]:
    """No-op trials, two at a time, a fresh process each: bare, with torch preloaded, and 10,000 of them."""
    floor = (
        f"fork {fork_ms():.2f} ms, flush {flush_ms(directory):.2f} ms, directory and file {files_ms(directory):.2f} ms"
    )
    bare = child(SHORT, directory / "bare", 3000, "{}", "")
    plain = child(SHORT, directory / "plain", 3000, "{}", "", environment=NO_LOGGERS)
    rows = [
        ("isolated trials, bare", f"{bare['per_s']:.0f}/s", ">= 250/s", floor),
        ("the same without the default loggers", f"{plain['per_s']:.0f}/s", "", ""),
    ]
    try:
        import torch  # noqa: F401
    except ImportError:
        rows.append(("isolated trials, torch preloaded", "no torch", ">= 100/s", ""))
    else:
        loaded = child(SHORT, directory / "torch", 1500, "{}", "torch")
        rows.append(("isolated trials, torch preloaded", f"{loaded['per_s']:.0f}/s", ">= 100/s", floor))
    long = child(SHORT, directory / "long", 10000, "{}", "")
    rows.append(
        (
            "cost per trial at 10,000 against at 100",
            f"{long['tail_ms'] / long['head_ms']:.2f}x",
            "<= 1.3x",
            f"{long['head_ms']:.2f} -> {long['tail_ms']:.2f} ms",
        )
    )
    return rows


def warm(directory: Path) -> list[Row]:
    """No-op trials in two kept processes."""
    options = json.dumps({"reuse_actors": True})
    found = child(SHORT, directory / "warm", 4000, options, "")
    plain = child(SHORT, directory / "plain", 4000, options, "", environment=NO_LOGGERS)
    floor = f"flush {flush_ms(directory):.2f} ms, directory and file {files_ms(directory):.2f} ms"
    return [
        ("warm trials (reuse_actors)", f"{found['per_s']:.0f}/s", ">= 1,500/s", floor),
        ("the same without the default loggers", f"{plain['per_s']:.0f}/s", "", ""),
    ]


def reports(directory: Path) -> list[Row]:
    """Eight trials that report as fast as they can, every report committed before it is answered."""
    code = """
        import json, sys, time
        import sweep
        from sweep.record.access import open_for_reading
        from pathlib import Path
        number = 6000
        def train(config):
            for step in range(number):
                sweep.report(loss=1.0 / (step + 1))
        sweep.run(train, num_samples=8, metric="loss", mode="min", verbose=0, storage_path=sys.argv[1], name="reports",
                  nodes=[sweep.Node(cpus=8)])
        db = open_for_reading(Path(sys.argv[1]) / "reports" / "sweep.db")
        first, last, count = next(db.execute("SELECT min(wall), max(wall), count(*) FROM result"))
        commits = next(db.execute("SELECT count(DISTINCT wall) FROM result"))[0]
        print(json.dumps({"per_s": count / (last - first), "count": count, "per_commit": count / commits}))
    """
    found = child(code, directory)
    plain = child(code, directory / "plain", environment=NO_LOGGERS)
    assert found["count"] == plain["count"] == 48_000
    beside = f"flush {flush_ms(directory):.2f} ms, {found['per_commit']:.1f} per commit"
    return [
        ("results/s, 8 reporters, all committed", f"{found['per_s']:.0f}/s", ">= 8,000/s", beside),
        (
            "the same without the default loggers",
            f"{plain['per_s']:.0f}/s",
            "",
            f"{plain['per_commit']:.1f} per commit",
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
                      callbacks=[Watch()], durability="fast", **more)
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


def peer(directory: Path) -> list[Row]:
    """The same 300 no-op evaluations under Optuna alone (no processes) and under us, in one run."""
    code = """
        import json, sys, time
        import optuna
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(sys.argv[1] + ".log"))
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), storage=storage)
        began = time.time()
        study.optimize(lambda t: t.suggest_float("x", 0, 1), n_trials=300)
        print(json.dumps({"ms": (time.time() - began) / 300 * 1000}))
    """
    optuna = child(code, directory / "journal")
    ours = child(SHORT, directory / "peer", 1000, "{}", "")
    ms = 1000 / ours["per_s"]
    return [
        (
            "one trial, durable, in a process of its own",
            f"{ms:.1f} ms",
            "",
            f"Optuna with a journal, in its own process: {optuna['ms']:.1f} ms; ratio {ms / optuna['ms']:.2f}",
        )
    ]


PARTS: dict[str, Callable[[Path], list[Row]]] = {
    "import": start_up,
    "short": short_trials,
    "warm": warm,
    "reports": reports,
    "memory": memory_and_resume,
    "core": core,
    "cluster": cluster.rows,
    "peer": peer,
    "claims": claims.rows,
    "groups": groups.rows,
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
    try:
        for name in wanted:
            (directory / name).mkdir()
            for what, measured, promised, beside in PARTS[name](directory / name):
                print(f"{what:42s} {measured:>24s}   {promised:18s} {beside}", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
