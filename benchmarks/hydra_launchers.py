"""How many jobs of a Hydra app run per hour: by `hydra/sweeper=sweep`, and by Hydra's own launchers on this machine.

The app imports torch and trains a small network. Each way runs the same grid with two jobs at a time, by the app's own
command line, from the start of the interpreter to its end; in every round the ways alternate.

Needs hydra-core, hydra-joblib-launcher, hydra-submitit-launcher and torch beside sweep.

Run: python benchmarks/hydra_launchers.py [jobs] [rounds]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

APP = """
import hydra
import torch


@hydra.main(version_base=None, config_path=None)
def main(cfg):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(256, 64)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01 / (1 + cfg.number))
    for _ in range(cfg.steps):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    main()
"""
WAYS = {
    "sweep": ["hydra/sweeper=sweep", "hydra.sweeper.max_concurrent_trials=2", "+hydra.sweeper.verbose=0"],
    "basic (one at a time)": [],
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "submitit_local": ["hydra/launcher=submitit_local", "hydra.sweeper.max_batch_size=2"],
}


def seconds(app: Path, overrides: list[str], num_jobs: int, variables: Mapping[str, str], steps: int = 300) -> float:
    """Return how long a multirun takes."""
    command = [sys.executable, str(app), "-m", f"+number=range({num_jobs})", f"+steps={steps}", *overrides]
    began = time.perf_counter()
    ended = subprocess.run(command, cwd=app.parent, env=variables, capture_output=True, text=True)
    taken = time.perf_counter() - began
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ended.stdout}{ended.stderr}")
    results = list(app.parent.glob("multirun/*/*/[0-9]*/.hydra"))
    assert len(results) >= num_jobs, f"{len(results)} of {num_jobs} jobs left a directory"
    return taken


def main() -> None:
    """Print a table."""
    num_jobs, rounds = [int(one) for one in sys.argv[1:]] + [20, 3][len(sys.argv) - 1 :]
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, overrides in WAYS.items():
            with tempfile.TemporaryDirectory() as directory:
                app = Path(directory) / "app.py"
                app.write_text(APP, encoding="utf-8")
                variables = {**os.environ, "SWEEP_CLAIMS": directory, "OMP_NUM_THREADS": "1"}
                taken[way].append(seconds(app, overrides, num_jobs, variables))
    print(f"{num_jobs} jobs, two at a time, median of {rounds} rounds\n")
    print("| way | seconds | jobs per hour | of sweep's |\n| --- | --- | --- | --- |")
    ours = statistics.median(taken["sweep"])
    for way, times in taken.items():
        median = statistics.median(times)
        print(f"| {way} | {median:.1f} | {num_jobs / median * 3600:,.0f} | {ours / median:.2f} |")


if __name__ == "__main__":
    main()
