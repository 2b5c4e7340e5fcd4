"""What a large object costs that `with_parameters` gives to many trials at once: memory of all, in copies of it.

An array of 500 MB goes to 20 trials that run at the same time, and each reads all of it. Their memory is the
proportional set size (PSS) of every process below the driver, so that a page that several share counts once, less that
of the same sweep without the array. The floor is what the array takes in a process of its own.

Run: python benchmarks/parameters.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

Row = tuple[str, str, str, str]  # what, measured, promised, beside it

MEGABYTES = 500
TRIALS = 20
_POLL_S = 0.05
_LIMIT_S = 300.0

FLOOR = """
import sys
import numpy as np
def pss():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
before = pss()
data = np.arange(int(sys.argv[1]), dtype=np.float64)
data.sum()
print(pss() - before)
"""


def pss_kb(pid: int) -> int:
    """Return the proportional set size of a process in KiB; 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def status_kb(name: str) -> int:
    """Return a field of this process's memory, such as `VmRSS` or `VmHWM` (the highest `VmRSS`), in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measure(directory: Path, megabytes: int) -> dict[str, float]:
    """Run the sweep in this process, which is the driver, and return what was seen, in KiB and seconds."""
    import numpy as np

    import sweep

    data = np.arange(max(1, megabytes * 1_000_000 // 8), dtype=np.float64)
    expected = float(data.sum())
    signs = directory / "signs"
    signs.mkdir(parents=True)

    def train(config, data):  # type: ignore[no-untyped-def]
        total = float(data.sum())
        (signs / str(os.getpid())).touch()
        while not (signs / "go").exists():
            time.sleep(_POLL_S)
        sweep.report(total=total)

    seen: dict[str, float] = {}

    def watch() -> None:
        deadline = time.monotonic() + _LIMIT_S
        while len(os.listdir(signs)) < TRIALS and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        workers = {int(name) for name in os.listdir(signs)}
        below = {process.pid: pss_kb(process.pid) for process in psutil.Process().children(recursive=True)}
        seen["trials"] = len(workers)
        seen["workers"] = sum(pss for pid, pss in below.items() if pid in workers)
        seen["others"] = sum(pss for pid, pss in below.items() if pid not in workers)
        (signs / "go").touch()

    Path("/proc/self/clear_refs").write_text("5")  # the highest VmRSS counts from here
    before = status_kb("VmRSS")
    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    analysis = sweep.run(
        sweep.with_parameters(train, data=data),
        num_samples=TRIALS,
        nodes=[sweep.Node(cpus=TRIALS)],
        storage_path=directory,
        name="parameters",
        verbose=0,
    )
    seen["wall_s"] = time.perf_counter() - began
    watcher.join()
    seen["driver"] = status_kb("VmHWM") - before
    assert seen["trials"] == TRIALS, seen
    assert [trial.last_result["total"] for trial in analysis.trials] == [expected] * TRIALS
    return seen


def rows(directory: Path) -> list[Row]:
    """Return the rows for `benchmarks/run.py`."""
    number = str(MEGABYTES * 1_000_000 // 8)
    ended = subprocess.run([sys.executable, "-c", FLOOR, number], capture_output=True, text=True, check=True)
    floor = int(ended.stdout)
    with_it, without = (_measured(directory, megabytes) for megabytes in (MEGABYTES, 0))
    both = {name: sum(seen[kind] for kind in ("workers", "others")) for name, seen in (("a", with_it), ("b", without))}
    return [
        (
            f"{MEGABYTES} MB to {TRIALS} trials at once",
            f"{(both['a'] - both['b']) / floor:.2f} copies",
            "<= 1.05 copies",
            f"one process takes {floor / 1024:.0f} MiB PSS for it; all processes of the sweep {both['a'] / 1024:.0f}, "
            f"without it {both['b'] / 1024:.0f}",
        ),
        (
            "the driver's memory meanwhile",
            f"+{with_it['driver'] / 1024:.0f} MiB",
            f"< {MEGABYTES // 10} MiB",
            f"at most, beside the array that it was given; {with_it['wall_s']:.1f} s in all",
        ),
    ]


def _measured(directory: Path, megabytes: int) -> dict[str, float]:
    """Measure in a driver of its own."""
    command = [sys.executable, __file__, str(directory / f"sweep{megabytes}"), str(megabytes)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure in a directory with an array of so many MB, as JSON; without arguments, print the rows."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
        return
    with tempfile.TemporaryDirectory(prefix="sweep-bench-") as directory:
        for what, measured, promised, beside in rows(Path(directory)):
            print(f"{what:42s} {measured:>24s}   {promised:18s} {beside}")


if __name__ == "__main__":
    main()
