"""A cluster of Ray on this machine: a head without CPUs and two nodes of four CPUs and two declared GPUs each.

The folder is not called `ray`: `tests` is on the path, and `import ray` would find it where Ray is not installed.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.accelerators import inventory

HEAD, FIRST, SECOND, LATER = (f"127.0.0.{number}" for number in (2, 3, 4, 5))
NODE = {"num_cpus": 4, "num_gpus": 2}

# What Ray 2.60 does and pytest counts as an error. It leaves sockets and processes of its services to the collector,
# and says to everybody what will become of CUDA_VISIBLE_DEVICES for tasks without GPUs.
OF_RAY = (
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:Tip. In future versions of Ray:FutureWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for text in OF_RAY:
                item.add_marker(pytest.mark.filterwarnings(text))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """The cluster, which Ray's own tests start in this way; `add_node` and `remove_node` are its."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray>=2.50'")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # 127.0.0.1 would be replaced by an address of the machine.
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "node_ip_address": HEAD}
    )
    try:
        made.add_node(node_ip_address=FIRST, **NODE)
        made.add_node(node_ip_address=SECOND, **NODE)
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def joined(cluster: Any) -> Iterator[Any]:
    """Ray, connected to the cluster as a script does it before a sweep."""
    import ray

    ray.init(address=cluster.address, _node_ip_address=HEAD, log_to_driver=False, logging_level="ERROR")
    try:
        yield ray
    finally:
        ray.shutdown()


@pytest.fixture(autouse=True)
def _undeclared() -> Iterator[None]:
    yield
    inventory.shutdown()


@pytest.fixture
def run(cluster: Any, tmp_path: Path) -> Callable[..., sweep.ExperimentAnalysis]:
    """Return `run(trainable, **options)`: a sweep on the cluster, below the test's directory.

    Options of `sweep.init` are given as `init={...}`.
    """

    def runner(trainable: Any, *, init: dict[str, Any] | None = None, **options: Any) -> sweep.ExperimentAnalysis:
        sweep.init(**{"engine": "ray", "address": cluster.address, **(init or {})})
        return sweep.run(trainable, **{"storage_path": tmp_path, "name": "made", "verbose": 0, **options})

    return runner


@pytest.fixture
def left(cluster: Any) -> Callable[[Path], list[str]]:
    """Return a function that says what a sweep has left on the cluster: actors, placement groups, CPUs that are held,
    processes. Each agent and all that it starts hold a lock of their node for their lives."""

    def look(experiment: Path) -> list[str]:
        import ray

        was_joined = ray.is_initialized()
        if not was_joined:
            ray.init(address=cluster.address, _node_ip_address=HEAD, log_to_driver=False, logging_level="ERROR")
        try:
            give_up = time.monotonic() + 20
            while (found := _left(ray, experiment)) and time.monotonic() < give_up:
                time.sleep(0.05)
            return found
        finally:
            if not was_joined:
                ray.shutdown()

    return look


def _left(ray: Any, experiment: Path) -> list[str]:
    actors = ray._private.state.actors().values()
    found = [f"actor {actor['ActorID']} is {actor['State']}" for actor in actors if actor["State"] != "DEAD"]
    groups = ray.util.placement_group_table().values()
    found += [f"placement group {group['placement_group_id']}" for group in groups if group["state"] != "REMOVED"]
    for key, free in ray._private.state.available_resources_per_node().items():
        total = ray._private.state.total_resources_per_node()[key]
        found += [f"{key} has {name} held" for name in ("CPU", "GPU") if free.get(name, 0) < total.get(name, 0)]
    for path in (experiment / "code").glob("agent-*.lock"):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(f"{path.name} is held")
    return found
