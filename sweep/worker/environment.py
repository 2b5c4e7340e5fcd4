"""The environment of a trial's processes, computed from its placement: pure, so that every rule has a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from sweep.accelerators.tpu import chip_variables
from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources

EXPERIMENT_VARIABLE = "SWEEP_EXPERIMENT"
TRIAL_VARIABLE = "SWEEP_TRIAL"
ATTEMPT_VARIABLE = "SWEEP_ATTEMPT"
DRIVER_VARIABLE = "SWEEP_DRIVER"  # in what belongs to a trial: which process drives it
CALLER_VARIABLE = "TUNE_ORIG_WORKING_DIR"  # as Tune calls it: where the driver is, which trials may have left
IMPORTER_VARIABLE = "SWEEP_IMPORTER"  # in what a module starts while it is imported in advance: for which driver
SCRIPT_VARIABLE = "SWEEP_SCRIPT"  # in what belongs to a trial: the driver's script, as `package:path`
KEEP_DEVICES_VARIABLE = "SWEEP_KEEP_VISIBLE_DEVICES"  # 1: the variables are left to the user

MEMORY_FRACTIONS = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")  # jax refuses both at once

# What hides GPUs from a process when it is empty: NVIDIA's, and both of AMD's.
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

# Read by the libraries when they are loaded; exported for what a trial starts itself.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "LOKY_MAX_CPU_COUNT",  # what scikit-learn and joblib take n_jobs=-1 for
)


def attempt_variables(
    *,
    experiment: str,
    driver: str,
    script: str = "",
    trial_id: str,
    attempt: int,
    resources: Resources,
    placement: Placement | None,
    nodes: Sequence[Node],
    environ: Mapping[str, str],
) -> dict[str, str | None]:
    """Return the variables to set in the process of one attempt; None means: remove it.

    Args:
        experiment: absolute directory of the experiment; the marker by which orphans are found.
        driver: mark of the driver's process, while which lives no sweep is driven in the trial.
        script: that the driver runs; empty: none that could be run again.
        environ: the driver's own environment.
    """
    return {
        EXPERIMENT_VARIABLE: experiment,
        DRIVER_VARIABLE: driver,
        SCRIPT_VARIABLE: script or None,
        TRIAL_VARIABLE: trial_id,
        ATTEMPT_VARIABLE: str(attempt),
        **thread_variables(num_threads(resources, environ), environ),
        **device_variables(placement, nodes, environ),
    }


def markers(experiment: str, trial_id: str, attempt: int) -> list[bytes]:
    """Return the entries that every environment of an attempt's processes holds."""
    values = {EXPERIMENT_VARIABLE: experiment, TRIAL_VARIABLE: trial_id, ATTEMPT_VARIABLE: attempt}
    return [f"{name}={value}".encode() for name, value in values.items()]


def device_variables(
    placement: Placement | None, nodes: Sequence[Node], environ: Mapping[str, str]
) -> dict[str, str | None]:
    """Return the variables that show a process exactly the devices of its placement, those of all its bundles."""
    bundles = placement.bundles if placement is not None else ()
    held = held_devices(bundles, nodes)
    names = {bundle.node for bundle in bundles}
    here = [node for node in nodes if node.id in names] if names else nodes
    share = sum(share for bundle in bundles for _, share in bundle.devices) if len(held) == 1 else 1.0
    return visible_variables(held, here, environ, share=share)


def held_devices(bundles: Sequence[BundlePlacement], nodes: Sequence[Node]) -> tuple[Device, ...]:
    """Return the devices of some bundles, each once, in order; two nodes may have devices of the same id."""
    known = {(node.id, device.id): device for node in nodes for device in node.devices}
    held = dict.fromkeys((bundle.node, identity) for bundle in bundles for identity, _ in bundle.devices)
    return tuple(known.get(place) or Device(place[1]) for place in held)


def visible_variables(
    held: Sequence[Device], nodes: Sequence[Node], environ: Mapping[str, str], *, share: float = 1.0
) -> dict[str, str | None]:
    """Return the variables that show a process exactly the devices `held`, in this order; None means: remove it.

    GPUs go by the names that the parent's own variable uses, never renumbered; where it has none, indices are those of
    the PCI bus, and CUDA is set to count so. Without a GPU the variables of both vendors are empty, which means none,
    also where no GPU was found: what was not found is not handed out. AMD's variable is written where the parent has it
    or the GPUs are AMD's; then CUDA's follows where the parent has that, because the two must agree. TPU chips
    likewise, with the bounds that a part of a host needs.

    Args:
        nodes: those that the process may use devices of.
        share: of its one GPU, in (0, 1]; jax is set to take that share of the memory, less a tenth.
    """
    if environ.get(KEEP_DEVICES_VARIABLE) == "1":
        return {}
    known = [device for node in nodes for device in node.devices]
    variables: dict[str, str | None] = {}
    # Each once: nodes that were declared on this machine may call a device of theirs the same, and CUDA shows nothing
    # of a list that names one twice.
    tokens = list(dict.fromkeys(device.visible or device.id for device in held if device.kind == "gpu"))
    gpus = ",".join(tokens)
    is_amd = any(device.vendor == "amd" for device in (*held, *known) if device.kind == "gpu")
    if not tokens:
        variables.update(dict.fromkeys(GPU_VARIABLES, ""))
    elif environ.get("HIP_VISIBLE_DEVICES") or is_amd:
        variables["HIP_VISIBLE_DEVICES"] = gpus
    if tokens and ("CUDA_VISIBLE_DEVICES" in environ or not is_amd):
        variables["CUDA_VISIBLE_DEVICES"] = gpus
        is_by_index = any(token.isdecimal() for token in tokens) and "CUDA_VISIBLE_DEVICES" not in environ
        if is_by_index and "CUDA_DEVICE_ORDER" not in environ:
            variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if tokens and share < 1 and not any(name in environ for name in MEMORY_FRACTIONS):
        variables[MEMORY_FRACTIONS[0]] = f"{0.9 * share:.3g}"  # the old name, which old and new versions read
    chips = [device.visible or device.id for device in held if device.kind == "tpu"]
    on_host = sum(device.kind == "tpu" for device in known) // max(1, len({node.id for node in nodes}))
    variables.update(chip_variables(chips, on_host, parent=environ.get("TPU_VISIBLE_CHIPS")))
    return variables


def num_threads(request: Resources | Bundle, environ: Mapping[str, str]) -> int:
    """Return how many threads numeric libraries get: the user's own `OMP_NUM_THREADS`, else the CPUs of the request.

    At least one; a fraction is rounded down. Of several bundles the first counts: it is the trial's own process.
    """
    own = environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if own.isdecimal() and int(own) > 0:
        return int(own)
    return max(1, int(request.cpu if isinstance(request, Bundle) else request.bundles[0].cpu))


def thread_variables(threads: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the thread variables for grandchildren; what the user has exported stays."""
    return {name: environ.get(name) or str(threads) for name in THREAD_VARIABLES}


def trial_seed(seed: int, trial_id: str) -> int:
    """Return a 32-bit seed for the global generators of a trial: it depends on the sweep's seed and the trial's number,
    so the same sweep run again in another directory draws the same numbers."""
    number = trial_id.rpartition("_")[2]
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "little")
