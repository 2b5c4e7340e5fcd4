"""A sweep on a cluster of Ray beside Ray Tune on the same one: two nodes of four CPUs on this machine, in one run.

Each side counts from its ninth trial to its last, by the clocks of the trials, so that neither's beginning counts. Ray
Tune gets fewer trials, because it does about one per second. Without its packages its column is empty:
pip install 'ray[tune,train]'

Run: python benchmarks/cluster_peers.py
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

Row = tuple[str, str, str, str]

# Both print {"per_s": ...} last; arguments: address, directory, what, how many.
OURS = """
import json, sys, time
address, directory, what, number = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
import sweep

def quick(config):
    sweep.report(first=time.time(), at=time.time())

def many(config):
    first = time.time()
    for _ in range(config["number"]):
        sweep.report(first=first, at=time.time())

def loop(config):
    import torch.distributed as dist
    assert dist.get_world_size() == 2
    sweep.report(first=time.time(), at=time.time())

sweep.init(engine="ray", address=address)
common = dict(storage_path=directory, name=what, verbose=0, metric="at", mode="max")
if what == "groups":
    from sweep.train import ScalingConfig
    from sweep.train.torch import TorchTrainer
    trainer = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2))
    analysis = sweep.run(trainer, num_samples=number, max_concurrent_trials=3, **common)
elif what == "reports":
    analysis = sweep.run(many, config={"number": number}, num_samples=8, **common)
else:
    analysis = sweep.run(quick, num_samples=number, reuse_actors=what == "reused", **common)
results = [trial.last_result for trial in analysis.trials]
"""

RAY = """
import json, logging, os, sys, time
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
address, directory, what, number = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
import ray
from ray import tune

def quick(config):
    tune.report({"first": time.time(), "at": time.time()})

def many(config):
    first = time.time()
    for _ in range(config["number"]):
        tune.report({"first": first, "at": time.time()})

def loop(config):
    import ray.train, torch.distributed as dist
    assert dist.get_world_size() == 2
    if dist.get_rank() == 0:  # metrics are not in the result of `fit` without a checkpoint
        with open(config["path"], "w") as file:
            file.write(str(time.time()))
    ray.train.report({"at": time.time()})

def group(config):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    name = f"g{time.time()}"
    path = os.path.join(directory, name + ".at")
    trainer = TorchTrainer(loop, train_loop_config={"path": path}, scaling_config=ScalingConfig(num_workers=2),
                           torch_config=TorchConfig(backend="gloo"),
                           run_config=RunConfig(storage_path=directory, name=name))
    trainer.fit()
    tune.report({"at": float(open(path).read())})

ray.init(address=address, _node_ip_address="127.0.0.2", log_to_driver=False, logging_level=logging.ERROR)
if what == "groups":
    # A trial that starts a group has a process of its own, which needs a part of a CPU: so three groups fit.
    trainable, samples, at_once = tune.with_resources(group, {"cpu": 0.1}), number, 3
elif what == "reports":
    trainable, samples, at_once = tune.with_resources(many, {"cpu": 1}), 8, 8
else:
    trainable, samples, at_once = tune.with_resources(quick, {"cpu": 1}), number, 8
grid = tune.Tuner(
    trainable, param_space={"number": number},
    tune_config=tune.TuneConfig(num_samples=samples, max_concurrent_trials=at_once, reuse_actors=what == "reused"),
    run_config=tune.RunConfig(storage_path=directory, name=what, verbose=0),
).fit()
assert not grid.errors, grid.errors
results = [result.metrics for result in grid]
"""

COUNT = """
if what == "reports":
    spent = max(result["at"] for result in results) - min(result["first"] for result in results)
    per_s = 8 * number / spent
else:
    skip = 8 if what != "groups" else 3
    times = sorted(result["at"] for result in results)
    per_s = (len(times) - skip) / (times[-1] - times[skip - 1])
print(json.dumps({"per_s": per_s}))
"""

# One message of 300 bytes each way, and as many as go one way: calls of an actor, and a connection of sockets.
LINK = """
import json, os, pickle, sys, threading, time
import ray
from multiprocess.connection import Client, Listener

ray.init(address=sys.argv[1], _node_ip_address="127.0.0.2", log_to_driver=False, logging_level="ERROR")
message = {"trial": "abcde_00001", "metrics": {f"m{i}": i / 7 for i in range(8)}, "text": "x" * 120}

@ray.remote(num_cpus=1)
class Echo:
    def take(self, message):
        return message

    def connect(self, address, key):
        client = Client(tuple(address), authkey=key)
        while (got := client.recv()) is not None:
            if got[0]:
                client.send(got[1])

echo = Echo.remote()
ray.get(echo.take.remote(message))
times = []
for _ in range(500):
    begin = time.perf_counter(); ray.get(echo.take.remote(message)); times.append(time.perf_counter() - begin)
begin = time.perf_counter(); ray.get([echo.take.remote(message) for _ in range(5000)])
ray_side = {"trip_ms": sorted(times)[250] * 1000, "per_s": 5000 / (time.perf_counter() - begin)}

listener = Listener(("127.0.0.1", 0), authkey=b"key")
echo.connect.remote(listener.address, b"key")
peer = listener.accept()
times = []
for _ in range(2000):
    begin = time.perf_counter(); peer.send((True, message)); peer.recv(); times.append(time.perf_counter() - begin)
begin = time.perf_counter()
for _ in range(50_000):
    peer.send((False, message))
peer.send((True, message)); peer.recv()
ours = {"trip_ms": sorted(times)[1000] * 1000, "per_s": 50_000 / (time.perf_counter() - begin)}
peer.send(None)
print(json.dumps({"ray": ray_side, "ours": ours}))
"""

# What is measured, how many of ours and of Ray Tune's, its name, the ratio that is promised.
PARTS = (
    ("fresh", 600, 32, "no-op trials, a fresh process each", 60),
    ("reused", 2000, 64, "no-op trials in kept processes", 15),
    ("reports", 2000, 400, "results/s of 8 reporters", 8),
    ("groups", 40, 8, "groups of 2 with gloo, one per trial", 10),
)


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """Start a cluster of two nodes of four CPUs and give its address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.2"}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for number in (3, 4):
            made.add_node(num_cpus=4, node_ip_address=f"127.0.0.{number}")
        yield made.address
    finally:
        made.shutdown()


def measured(code: str, *arguments: object) -> dict[str, object]:
    """Run code in a fresh interpreter and return the JSON object that it prints last."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if ended.returncode:
        raise SystemExit(f"benchmark failed:\n{ended.stderr[-3000:]}")
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def rows(directory: Path, wanted: tuple[str, ...] = ()) -> list[Row]:
    """Return what is measured: all of it, or the parts that are named."""
    try:
        import ray  # noqa: F401
    except ImportError:
        return [("a cluster of Ray", "no Ray", "", "")]
    can = subprocess.run([sys.executable, "-c", "import ray.tune, ray.train"], capture_output=True, check=False)
    has_tune = can.returncode == 0
    found = []
    with cluster() as address:
        for what, number, theirs, name, target in PARTS:
            if wanted and what not in wanted:
                continue
            ours = float(str(measured(OURS + COUNT, address, directory / "ours", what, number)["per_s"]))
            beside, ratio = "Ray Tune is not installed", ""
            if has_tune:
                ray_s = float(str(measured(RAY + COUNT, address, directory / "ray", what, theirs)["per_s"]))
                beside, ratio = f"Ray Tune {ray_s:.2f}/s", f" ({ours / ray_s:.0f}x)"
            found.append((f"cluster: {name}", f"{ours:.0f}/s{ratio}", f">= {target}x", beside))
        if not wanted or "link" in wanted:
            link = measured(LINK, address)
            ours_, ray_ = ({k: float(v) for k, v in dict(link[side]).items()} for side in ("ours", "ray"))  # type: ignore[call-overload]
            share = ray_["per_s"] / ours_["per_s"]
            texts = [f"{side['per_s']:.0f}/s, {side['trip_ms']:.2f} ms" for side in (ours_, ray_)]
            beside = f"calls of an actor {texts[1]}; share {share:.2f}"
            found.append(("cluster: messages over a socket", texts[0], "", beside))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="sweep-bench-") as place:
        for row in rows(Path(place), tuple(sys.argv[1:])):
            print("{:46s} {:>20s}   {:8s} {}".format(*row), flush=True)
