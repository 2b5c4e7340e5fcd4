"""Run a sweep on the nodes of a Ray cluster.

python examples/ray_cluster.py                   starts two nodes on this machine, and ends them
python examples/ray_cluster.py HOST:6379         your cluster; `auto` on one of its nodes
"""

import contextlib
import os
import socket
import sys

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import sweep


def train(config):
    speed = 0.0
    for step in range(1, 11):
        speed += config["lr"] * (1 - speed)
        sweep.report(loss=(1 - speed) ** 2 + 0.01 * config["lr"], step=step, host=socket.gethostname())


def main(address):
    # This line makes the sweep run on the cluster. You can add limits such as cpus_per_node=8, max_nodes=4,
    # accelerator_type="A100", and runtime_env={"working_dir": "."} if the nodes do not have your code.
    sweep.init(engine="ray", address=address)
    analysis = sweep.run(
        train,
        config={"lr": sweep.loguniform(1e-3, 1.0)},
        num_samples=16,
        metric="loss",
        mode="min",
        scheduler=sweep.ASHAScheduler(max_t=10, grace_period=1, reduction_factor=3),
        resources_per_trial={"cpu": 1},  # of one node; {"cpu": 4, "gpu": 1} if there are GPUs
        # storage_path="/mnt/shared/sweeps",  # on several machines: a directory that every node sees
        seed=0,
    )
    print(f"best loss {analysis.best_result['loss']:.4f} with {analysis.best_config}")
    print(f"{len(analysis.trials)} trials, everything is in {analysis.experiment_path}")


@contextlib.contextmanager
def local_cluster():
    """Start two nodes with two CPUs each on this machine, as Ray's own tests do."""
    from ray.cluster_utils import Cluster

    # A cluster of several "machines" on one needs an address for each; all of these are loopback.
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.2"}
    )
    try:
        for number in (3, 4):
            cluster.add_node(num_cpus=2, node_ip_address=f"127.0.0.{number}")
        yield cluster.address
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with local_cluster() as address:
            main(address)
