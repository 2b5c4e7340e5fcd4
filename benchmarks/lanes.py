"""What trials gain as lanes of one process: digits-MLPs under ASHA, beside processes.

The ways to run them stand beside each other in one run, with fewer trials where each has a process. The best trial of
the sweep is trained again alone. A population under PBT stands beside Ray Tune's in `make bench`.

Run: python benchmarks/lanes.py [--short]
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import sweep
from sweep.worker.environment import trial_seed

Row = tuple[str, str, str, str]
EXAMPLE = Path(__file__).parents[1] / "examples" / "vectorized_digits.py"
SPACE = {"lr": sweep.loguniform(1e-4, 1.0), "momentum": sweep.uniform(0.0, 0.99)}
EPOCHS = 10


def per_s(number: int, count: int, directory: Path, what: str, **how: Any) -> tuple[float, float, Any]:
    """Return how many of `count` were done per second, in how many seconds, and the analysis."""
    began = time.perf_counter()
    analysis = sweep.run(num_samples=number, mode="max", seed=0, verbose=0, storage_path=directory, name=what, **how)
    took = time.perf_counter() - began
    assert len(analysis.trials) == number, what
    return count / took, took, analysis


def digits(directory: Path, number: int, few: int, kept: int) -> list[Row]:
    """`number` MLPs as lanes, `few` in fresh processes and `kept` in reused ones, each under ASHA."""
    vector = runpy.run_path(str(EXAMPLE))["Digits"]
    common: dict[str, Any] = {"config": SPACE, "metric": "accuracy"}

    def asha() -> sweep.ASHAScheduler:
        return sweep.ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3)

    lanes, took, analysis = per_s(
        number, number, directory, "lanes", run_or_experiment=vector, scheduler=asha(), **common
    )
    best = analysis.best_trial
    reports = vector.run_one(best.config, best.last_result["training_iteration"], seed=trial_seed(0, best.trial_id))
    alone = reports[-1]["accuracy"]
    fresh, reused = (
        per_s(n, n, directory, what, run_or_experiment=vector, scheduler=asha(), engine="local", **more, **common)[0]
        for what, n, more in (("fresh", few, {}), ("reused", kept, {"reuse_actors": True}))
    )
    name = f"{number} digits-MLPs of {EPOCHS} epochs, ASHA"
    return [
        (name, f"{took:.1f} s", "<= 60 s", f"{lanes:.1f} trials/s"),
        ("the same as fresh processes", f"{fresh:.2f} trials/s", ">= 50x", f"ratio {lanes / fresh:.0f}; {few} trials"),
        (
            "the same as reused processes",
            f"{reused:.2f} trials/s",
            ">= 10x",
            f"ratio {lanes / reused:.0f}; {kept} trials",
        ),
        (
            "the winner alone",
            f"{alone:.4f}",
            "within 0.5 %",
            f"in the sweep {best.last_result['accuracy']:.4f}",
        ),
    ]


def in_torch(directory: Path, number: int, kept: int) -> list[Row]:
    """`number` MLPs in PyTorch as lanes, and `kept` in reused processes, three epochs each."""
    import torch
    from sklearn.datasets import load_digits
    from torch.func import functional_call, grad_and_value

    class InTorch(sweep.VectorTrainable):
        framework = "torch"
        batch_size, steps_per_report, num_lanes = 64, 21, number

        def data(self) -> dict[str, Any]:
            images, labels = load_digits(return_X_y=True)
            return {"images": images[:1347].astype("float32") / 16, "labels": labels[:1347]}

        def init(self) -> Any:
            return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

        def step(self, params: Any, module: Any, images: Any, labels: Any, lr: Any) -> Any:
            def loss_of(params: Any) -> Any:
                return torch.nn.functional.cross_entropy(functional_call(module, params, (images,)), labels)

            gradient, loss = grad_and_value(loss_of)(params)
            return {name: array - lr * gradient[name] for name, array in params.items()}, {"likelihood": -loss}

    common: dict[str, Any] = {
        "run_or_experiment": InTorch,
        "config": {"lr": SPACE["lr"]},
        "metric": "likelihood",
        "stop": {"training_iteration": 3},
    }
    lanes, took, _ = per_s(number, number, directory, "torch", **common)
    beside, _, _ = per_s(kept, kept, directory, "torch_kept", engine="local", reuse_actors=True, **common)
    beside_it = f"{took:.1f} s; {kept} in reused processes {beside:.2f}/s: ratio {lanes / beside:.0f}"
    return [(f"{number} digits-MLPs in PyTorch, 3 epochs", f"{lanes:.1f} trials/s", "", beside_it)]


def rows(directory: Path, is_short: bool = False) -> list[Row]:
    """Return what was measured, what is promised and what stands beside it, a line for each figure."""
    return digits(directory, 64, 2, 4) if is_short else digits(directory, 1000, 8, 16) + in_torch(directory, 500, 8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="fewer trials")
    with tempfile.TemporaryDirectory() as name:
        os.environ.setdefault("SWEEP_CLAIMS", str(Path(name) / "claims"))
        print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        for what, measured, promised, beside in rows(Path(name), parser.parse_args().short):
            print(f"{what:42s} {measured:>24s}   {promised:18s} {beside}", flush=True)
