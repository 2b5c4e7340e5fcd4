"""How much memory of each GPU is in use, and which processes hold it, as NVIDIA's driver counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.accelerators import nvml
from sweep.core.resources import Device, format_bytes

_NAMED_HOLDERS = 3
_KINDS_OF_PROCESSES = ("Compute", "Graphics", "MPSCompute")


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of a device.

    Attributes:
        pid: as the driver tells it, which inside a container may be the number outside.
        used_bytes: None when the driver does not say.
        name: of its program; empty when it is of another user or namespace, or gone.
    """

    pid: int
    used_bytes: int | None = None
    name: str = ""

    def __str__(self) -> str:
        name = f" ({self.name})" if self.name else ""
        return f"pid {self.pid}{name}" + ("" if self.used_bytes is None else f" {format_bytes(self.used_bytes)}")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What a device's memory is used for at one moment; its holders begin with the one that has most."""

    used_bytes: int
    total_bytes: int
    processes: tuple[Holder, ...] = ()

    @property
    def fraction(self) -> float:
        """The part in [0, 1] of the memory that is in use."""
        return self.used_bytes / self.total_bytes


def read_memory(devices: Sequence[Device]) -> dict[str, MemoryUse] | None:
    """Return the memory in use of each device by its id; None when nothing can be read on this machine.

    What the driver keeps for itself does not count as used, where it says how much that is. A device is missing when
    it is no NVIDIA GPU of this machine (declared ones, AMD's, TPU chips), or when the driver does not answer for it.
    """
    library = nvml.open_library()
    if library is None:
        return None
    found: dict[str, MemoryUse] = {}
    for device in devices:
        if device.kind != "gpu" or device.vendor == "amd" or not device.id.startswith(("GPU-", "MIG-")):
            continue
        handle = nvml.ask(library, "nvmlDeviceGetHandleByUUID", device.id)
        memory = _memory(library, handle) if handle is not None else None
        if memory is not None and memory.total > 0:
            found[device.id] = MemoryUse(int(memory.used), int(memory.total), _holders(library, handle))
    return found


def read_placed(devices: Sequence[tuple[str, Device]]) -> Mapping[tuple[str, str], MemoryUse] | None:
    """Return the memory in use of devices that are given with their nodes, by (node, id); see `read_memory`.

    The nodes are those of this machine: what several of them call the same is one device to the driver.
    """
    memory = read_memory(list({device.id: device for _, device in devices}.values()))
    if memory is None:
        return None
    return {(node, device.id): memory[device.id] for node, device in devices if device.id in memory}


def describe(identity: str, use: MemoryUse) -> str:
    """Describe what a device still holds, by process: `GPU-a still holds 3.2GiB of 80GiB, pid 1234 (python) 3.1GiB`."""
    named = [str(holder) for holder in use.processes[:_NAMED_HOLDERS]]
    more = len(use.processes) - len(named)
    who = [*named, *([f"{more} more"] if more else [])] or ["of no process that the driver names"]
    return ", ".join(
        [f"{identity} still holds {format_bytes(use.used_bytes)} of {format_bytes(use.total_bytes)}", *who]
    )


def _memory(library: Any, handle: Any) -> Any | None:
    version = getattr(library, "nvmlMemory_v2", None)  # the first version counts as used what the driver reserves
    newer = nvml.ask(library, "nvmlDeviceGetMemoryInfo", handle, version) if version is not None else None
    return newer if newer is not None else nvml.ask(library, "nvmlDeviceGetMemoryInfo", handle)


def _holders(library: Any, handle: Any) -> tuple[Holder, ...]:
    held: dict[int, int | None] = {}
    for kind in _KINDS_OF_PROCESSES:
        for process in nvml.ask(library, f"nvmlDeviceGet{kind}RunningProcesses", handle) or ():
            pid, used = int(process.pid), process.usedGpuMemory
            if pid > 0:  # 0 stands for one that this namespace cannot see
                known = held.get(pid)
                held[pid] = known if used is None else max(int(used), known or 0)
    order = sorted(held, key=lambda pid: (-(held[pid] or 0), pid))
    return tuple(Holder(pid, held[pid], _program(pid)) for pid in order)


def _program(pid: int) -> str:
    import psutil

    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""
