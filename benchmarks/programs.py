"""A torch script that trains for about a second: swept by `sweep run train.py`, and started anew for every trial.

All run the same file on two cores, two trials at a time and one thread each. Beside `sweep run`, which runs it in forks
that have torch imported, stands a loop of `python train.py --lr=...` processes: what `wandb agent` does, without its
server. Where it is installed, hydra-submitit's local launcher does the same. Each begins with nothing running and ends
when the last trial has, so what `sweep run` does once counts: it asks the script for its arguments and imports torch,
some 6 s of CPU time. That counts all processes, so it says something on a busy machine, too.

Run: python benchmarks/programs.py [trials] [rounds]
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sweep.worker.environment import THREAD_VARIABLES

SLOTS = 2
EPOCHS = 27
PROMISED = 4.0  # times the trials of a process for each of them
OURS = "sweep run train.py"
LOOP = "python train.py, a process each"
SUBMITIT = "hydra, submitit's local launcher"

_TRAINING = f"""
import time

import torch
from sklearn.datasets import load_digits


def train(lr):
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    began = time.perf_counter()
    for epoch in range(1, {EPOCHS} + 1):
        for batch in torch.randperm(1400).split(16):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
        loss = torch.nn.functional.cross_entropy(model(x[1400:]), y[1400:]).item()
        print(f"epoch {{epoch}}: loss {{loss:.4f}}", flush=True)
    print(f"trained for {{time.perf_counter() - began:.3f}} s")
    return loss
"""
_SCRIPT = f"""import argparse
{_TRAINING}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    train(parser.parse_args().lr)
"""
_APP = f"""import hydra
{_TRAINING}

@hydra.main(version_base=None, config_path=None)
def main(cfg):
    return train(cfg.lr)


if __name__ == "__main__":
    main()
"""


def call(directory: Path, *command: str) -> str:
    """Run a command with one thread for each process, and return what it printed."""
    variables = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
    done = subprocess.run(command, cwd=directory, env=variables, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout


def swept(directory: Path, rates: list[float]) -> None:
    """Run as many trials by `sweep run train.py`."""
    tool = str(Path(sys.executable).with_name("sweep"))
    where = ("--storage", str(directory / "results"))
    options = ("--minimize", "loss", "--trials", str(len(rates)), "--concurrency", str(SLOTS), "--quiet")
    call(directory, tool, "run", "train.py", "lr=loguniform(1e-4,1e-1)", *options, "--name", "programs", *where)
    rows = json.loads(call(directory, tool, "trials", "programs", *where, "-f", "json"))
    assert [row["step"] for row in rows] == [EPOCHS] * len(rates), rows


def started_anew(directory: Path, rates: list[float]) -> None:
    """Run a process for each trial, two at a time."""
    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(lambda lr: call(directory, sys.executable, "train.py", f"--lr={lr}"), rates))


def submitted(directory: Path, rates: list[float]) -> None:
    """Run Hydra's multirun; its local launcher starts a whole batch at once, so a batch is what runs at a time."""
    for at in range(0, len(rates), SLOTS):
        values = ",".join(map(str, rates[at : at + SLOTS]))
        call(directory, sys.executable, "app.py", "-m", "hydra/launcher=submitit_local", f"+lr={values}")


def measured(run: Callable[[Path, list[float]], None], directory: Path, rates: list[float]) -> tuple[float, float]:
    """Return trials per hour and CPU seconds per trial."""
    cpu, began = sum(os.times()[2:4]), time.perf_counter()
    run(directory, rates)
    return 3600 * len(rates) / (time.perf_counter() - began), (sum(os.times()[2:4]) - cpu) / len(rates)


def main(number: int, rounds: int) -> None:
    """Print a line for each way in each round, then the medians of the ratios."""
    ways = {OURS: swept, LOOP: started_anew}
    if importlib.util.find_spec("submitit") and importlib.util.find_spec("hydra"):
        ways[SUBMITIT] = submitted
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    draw = random.Random(0)
    rates = [10 ** draw.uniform(-4, -1) for _ in range(number)]
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            (directory / "train.py").write_text(_SCRIPT)
            (directory / "app.py").write_text(_APP)
            trained = re.findall(r"trained for ([\d.]+) s", call(directory, sys.executable, "train.py"))
            print(f"the script trains for {float(trained[0]):.2f} s where nothing runs beside it", flush=True)
            for way, run in ways.items():
                per_hour, cpu_s = measured(run, directory, rates if run is not submitted else rates[: number // 4 + 1])
                found[way].append((per_hour, cpu_s))
                print(f"  {way:34s} {per_hour:7,.0f} trials/h {cpu_s:6.2f} s CPU each", flush=True)
    for way in list(ways)[1:]:
        more, less = ([a[i] / b[i] for a, b in zip(found[OURS], found[way], strict=True)] for i in (0, 1))
        print(
            f"{OURS}: {statistics.median(more):.1f} times as many trials as {way} (promised: {PROMISED:.0f}), "
            f"{statistics.median(less):.2f} times the CPU time"
        )


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(given[0] if given else 100, given[1] if len(given) > 1 else 1)
