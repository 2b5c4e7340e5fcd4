"""The environment of a trial's processes, computed from its placement: pure, so that every rule has a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from sweep.core.resources import Device, Node, Placement, Resources

__all__ = [
    "ATTEMPT_VARIABLE",
    "EXPERIMENT_VARIABLE",
    "KEEP_DEVICES_VARIABLE",
    "THREAD_VARIABLES",
    "TRIAL_VARIABLE",
    "attempt_variables",
    "device_variables",
    "num_threads",
    "thread_variables",
    "trial_seed",
]

EXPERIMENT_VARIABLE = "SWEEP_EXPERIMENT"
TRIAL_VARIABLE = "SWEEP_TRIAL"
ATTEMPT_VARIABLE = "SWEEP_ATTEMPT"
KEEP_DEVICES_VARIABLE = "SWEEP_KEEP_VISIBLE_DEVICES"  # set to 1 by people who hand out devices themselves

# Read by the libraries when they are loaded; exported for what a trial starts itself.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def attempt_variables(
    *,
    experiment: str,
    trial_id: str,
    attempt: int,
    resources: Resources,
    placement: Placement | None,
    nodes: Sequence[Node],
    environ: Mapping[str, str],
) -> dict[str, str | None]:
    """Return the variables to set in the process of one attempt; None means: remove it.

    Args:
        experiment: absolute directory of the experiment; the marker by which leftovers are found.
        environ: the driver's own environment.
    """
    return {
        EXPERIMENT_VARIABLE: experiment,
        TRIAL_VARIABLE: trial_id,
        ATTEMPT_VARIABLE: str(attempt),
        **thread_variables(num_threads(resources, environ), environ),
        **device_variables(placement, nodes, environ),
    }


def device_variables(
    placement: Placement | None, nodes: Sequence[Node], environ: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the variables that show a process exactly the devices of its placement.

    GPUs go by the names that the parent's own variable uses, never renumbered. Without a GPU in the placement the
    variable is empty, which means none, where the nodes have GPUs or the parent's variable is set; otherwise it is left
    alone. AMD's variable follows when the parent has it, because the two must agree. TPU chips likewise, with the
    bounds that a part of a host needs.
    """
    if environ.get(KEEP_DEVICES_VARIABLE) == "1":
        return {}
    known = {(node.id, device.id): device for node in nodes for device in node.devices}
    held: dict[str, Device] = {}
    for bundle in placement.bundles if placement is not None else ():
        for identity, _ in bundle.devices:
            held[identity] = known.get((bundle.node, identity)) or Device(identity)
    variables: dict[str, str | None] = {}
    gpus = ",".join(device.visible or device.id for device in held.values() if device.kind == "gpu")
    has_gpus = any(device.kind == "gpu" for device in known.values())
    if gpus or has_gpus or "CUDA_VISIBLE_DEVICES" in environ:
        variables["CUDA_VISIBLE_DEVICES"] = gpus
    if "HIP_VISIBLE_DEVICES" in environ:
        variables["HIP_VISIBLE_DEVICES"] = gpus
    chips = [device.visible or device.id for device in held.values() if device.kind == "tpu"]
    if chips:
        variables["TPU_VISIBLE_CHIPS"] = ",".join(chips)
        bounds = {1: "1,1,1", 2: "1,2,1"}.get(len(chips))
        variables["TPU_CHIPS_PER_HOST_BOUNDS"] = bounds
        variables["TPU_HOST_BOUNDS"] = "1,1,1" if bounds else None
    return variables


def num_threads(resources: Resources, environ: Mapping[str, str]) -> int:
    """Return how many threads numeric libraries get: the user's own `OMP_NUM_THREADS`, else the CPUs of the request.

    At least one; a fraction is rounded down.
    """
    own = environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if own.isdigit() and int(own) > 0:
        return int(own)
    return max(1, int(resources.bundles[0].cpu))


def thread_variables(threads: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the thread variables for grandchildren; what the user has exported stays."""
    return {name: environ.get(name) or str(threads) for name in THREAD_VARIABLES}


def trial_seed(seed: int, trial_id: str) -> int:
    """Return a 32-bit seed for the global generators of a trial: it depends on the sweep's seed and the trial's number,
    so the same sweep run again in another directory draws the same numbers."""
    number = trial_id.rpartition("_")[2]
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "little")
