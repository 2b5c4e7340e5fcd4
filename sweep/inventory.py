"""What there is to run on: detected, or declared with `sweep.init`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.accelerators import gpu
from sweep.core.resources import Device, Node, parse_bytes
from sweep.errors import ConfigError, ResourceError

__all__ = ["available", "cluster_resources", "detected", "init", "is_initialized", "shutdown"]

_declared: tuple[Node, ...] | None = None


def init(
    *,
    num_cpus: float | None = None,
    num_gpus: int | None = None,
    num_tpus: int | None = None,
    memory: int | str | None = None,
    resources: Mapping[str, float] | None = None,
    nodes: Sequence[Node] | None = None,
) -> tuple[Node, ...]:
    """Declare what sweeps of this process may use; what is not named is detected.

    Declaring does not enforce: more CPUs than the machine has only means more trials at a time. Declared GPUs
    beyond the detected ones exist on paper, which is how requests for a large machine are tried out on a small one.

    Args:
        num_cpus: CPUs to hand out, any fraction.
        num_gpus, num_tpus: devices to hand out.
        memory: bytes, or a text such as "16G".
        resources: other countable things by name.
        nodes: the whole inventory, instead of all the others.

    Returns:
        The inventory.

    Raises:
        ResourceError: a negative or non-numeric amount.
    """
    global _declared
    if nodes is not None:
        if any(value is not None for value in (num_cpus, num_gpus, num_tpus, memory, resources)):
            raise ConfigError("sweep.init takes either nodes= or the amounts of one machine, not both.")
        _declared = tuple(nodes)
        return _declared
    for name, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus), ("num_tpus", num_tpus)):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and (not is_number or not math.isfinite(value) or value < 0):
            raise ResourceError(f"sweep.init: {name} is {value!r}; expected a number of at least 0.")
    found = detected()[0]
    gpus = [device for device in found.devices if device.kind == "gpu"]
    if num_gpus is not None:
        gpus = gpus[: int(num_gpus)] + [Device(str(i), "gpu") for i in range(len(gpus), int(num_gpus))]
    tpus = [Device(f"tpu{i}", "tpu", visible=str(i)) for i in range(int(num_tpus or 0))]
    _declared = (
        Node(
            "local",
            cpus=found.cpus if num_cpus is None else float(num_cpus),
            memory=found.memory if memory is None else parse_bytes(memory),
            devices=(*gpus, *tpus),
            custom=dict(resources or {}),
        ),
    )
    return _declared


def shutdown() -> None:
    """Forget what was declared."""
    global _declared
    _declared = None


def is_initialized() -> bool:
    """Whether an inventory was declared."""
    return _declared is not None


def available() -> tuple[Node, ...]:
    """Return the declared inventory, else the detected one."""
    return _declared if _declared is not None else detected()


def cluster_resources() -> dict[str, float]:
    """Return the totals of the inventory, under the names that requests use in upper case (`CPU`, `GPU`, `memory`)."""
    totals: dict[str, float] = {}
    for node in available():
        totals["CPU"] = totals.get("CPU", 0.0) + node.cpus
        for device in node.devices:
            totals[device.kind.upper()] = totals.get(device.kind.upper(), 0.0) + 1
        if node.memory:
            totals["memory"] = totals.get("memory", 0.0) + node.memory
        for name, amount in node.custom.items():
            totals[name] = totals.get(name, 0.0) + amount
    return totals


def detected() -> tuple[Node, ...]:
    """Return this machine: the CPUs this process may run on (affinity, cgroup quota), its memory, its GPUs."""
    return (Node("local", cpus=_cpus(), memory=_memory(), devices=gpu.detect()),)


def _cpus() -> float:
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return float(number) if quota is None else float(min(number, max(1, math.floor(quota))))


def _cgroup_quota() -> float | None:
    """Return the CPUs a container may use, None when there is no limit (cgroup version 2, then 1)."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass  # not version 2: try the older files
    try:
        with open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") as file:
            limit = int(file.read())
        with open("/sys/fs/cgroup/cpu/cpu.cfs_period_us") as file:
            return limit / int(file.read()) if limit > 0 else None
    except (OSError, ValueError):
        return None


def _memory() -> int:
    import psutil

    total: Any = psutil.virtual_memory().total
    return int(total)
