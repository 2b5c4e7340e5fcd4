"""What it costs a sweep to be looked at: results/s with `sweep watch` open and a reader of its events, and without.

Eight trials report as fast as they can. Runs with and without alternate; a run's rate is that after its first seconds,
in which the page is opened.

Run: python benchmarks/watching.py [rounds]
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from sweep.record.db import open_for_reading

SWEEP = """
import sys, sweep
def train(config):
    for step in range(15_000):
        sweep.report(loss=1.0 / (step + 1))
sweep.run(train, num_samples=8, metric="loss", mode="min", verbose=0, storage_path=sys.argv[1], name="watched",
          nodes=[sweep.Node(cpus=8)])
"""
SETTLED_S = 4.0  # until then: imports, the page's first figures


class Looker(threading.Thread):
    """Opens the page of an experiment and reads its events until it is told to end."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.is_over, self.events, self.size = root, threading.Event(), 0, 0
        self.cpu_s = self.settled_cpu_s = 0.0

    def run(self) -> None:
        while not (self.root / "sweep.db").exists():
            time.sleep(0.01)
        command = [sys.executable, "-m", "sweep.cli.main", "watch", str(self.root)]
        watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert watch.stdout is not None
        found = re.search(r"http://\S+", watch.stdout.readline())
        assert found is not None
        address = found[0]
        with urllib.request.urlopen(address) as page:
            page.read()
        began = cpu_of(watch.pid)
        with urllib.request.urlopen(address.replace("/?", "/events?") + "&version=0", timeout=60) as events:
            while not self.is_over.is_set():
                line = events.readline()
                self.events += line.startswith(b"data:")
                self.size += len(line)
        self.cpu_s = cpu_of(watch.pid)
        self.settled_cpu_s = self.cpu_s - began
        watch.terminate()
        watch.wait()


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(root: Path) -> float:
    """Return the results per second from the time on at which all has settled."""
    database = open_for_reading(root / "sweep.db")
    first, last = next(database.execute("SELECT min(wall), max(wall) FROM result"))
    (count,) = next(database.execute("SELECT count(*) FROM result WHERE wall > ?", (first + SETTLED_S,)))
    database.close()
    return float(count / (last - first - SETTLED_S))


def measured(is_watched: bool) -> tuple[float, Looker | None]:
    """Run the sweep once."""
    with tempfile.TemporaryDirectory() as directory:
        looker = Looker(Path(directory, "watched")) if is_watched else None
        if looker is not None:
            looker.start()
        subprocess.run([sys.executable, "-c", SWEEP, directory], check=True)
        if looker is not None:
            looker.is_over.set()
            looker.join()
        return rate(Path(directory, "watched")), looker


def main() -> None:
    """Print both rates and their ratio."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    alone, watched, lookers = [], [], []
    for _ in range(rounds):
        alone.append(measured(False)[0])
        found, looker = measured(True)
        watched.append(found)
        assert looker is not None
        lookers.append(looker)
    ratios = [one / other for one, other in zip(watched, alone, strict=True)]
    print(f"results/s alone:     {' '.join(f'{one:.0f}' for one in alone)}")
    print(f"results/s looked at: {' '.join(f'{one:.0f}' for one in watched)}")
    print(
        f"ratio: {' '.join(f'{one:.3f}' for one in ratios)}, median {statistics.median(ratios):.3f}  (wanted: >= 0.95)"
    )
    for looker in lookers:
        print(
            f"events: {looker.events}, {looker.size / 1e6:.1f} MB; CPU of what serves: {looker.cpu_s:.1f} s, "
            f"{looker.settled_cpu_s:.1f} s of it after the page was there"
        )


if __name__ == "__main__":
    main()
