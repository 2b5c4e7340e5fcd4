"""The GPUs of this machine as NVIDIA's driver lists them, asked through its own library, NVML."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from sweep.accelerators.gpu_types import labels_of
from sweep.core.resources import Device


@dataclass(frozen=True, slots=True)
class Instance:
    """A part of a GPU in MIG mode, with the two numbers by which older drivers name it."""

    device: Device
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the driver lists it; `instances` are what can be used of it in MIG mode, None: it is not in MIG mode."""

    device: Device
    instances: tuple[Instance, ...] | None = None


_NOT_HERE = "NVIDIA's driver library, libnvidia-ml.so.1, is not here"
_opened: tuple[int, Any] | None = None  # by which process, and what


def _open() -> tuple[Any | None, str]:
    """Return NVIDIA's library, opened, or None and in words why there is none."""
    try:
        import pynvml
    except ImportError:
        return None, "NVIDIA's driver cannot be asked without nvidia-ml-py (pip install nvidia-ml-py)"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:  # no driver here, or another version of it than the library's
        if type(error).__name__ == "NVMLError_LibraryNotFound":
            return None, _NOT_HERE
        return None, f"NVIDIA's driver library refuses: {str(error) or type(error).__name__}"
    return pynvml, ""


def open_library() -> Any | None:
    """Return NVIDIA's library, opened by this very process and kept open; None without it, or without a driver.

    A child that was forked with it open opens it for itself, and so does a process in which it was closed.
    """
    global _opened
    library = sys.modules.get("pynvml")
    if _opened != (os.getpid(), library) or ask(library, "nvmlDeviceGetCount") is None:
        library, _ = _open()
        _opened = None if library is None else (os.getpid(), library)
    return library


def ask(library: Any, function: str, *arguments: Any) -> Any:
    """Return what a function of NVML answers; None when it refuses, or when this version has no such function."""
    call = getattr(library, function, None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except (library.NVMLError, getattr(library, "NVMLLibraryMismatchError", library.NVMLError)):
        return None


def list_gpus() -> tuple[list[Gpu | None], str]:
    """Return all GPUs of the machine along the PCI bus, or none and in words why the library does not answer.

    The library is closed again: an idle GPU may then go to sleep.
    """
    pynvml, why = _open()
    if pynvml is None:
        return [], why
    try:
        handles = [ask(pynvml, "nvmlDeviceGetHandleByIndex", i) for i in range(ask(pynvml, "nvmlDeviceGetCount") or 0)]
        places: list[Any] = [
            None if handle is None else ask(pynvml, "nvmlDeviceGetPciInfo", handle) for handle in handles
        ]
        found = [None if handle is None else _gpu(pynvml, handle) for handle in handles]
        if None in places:
            return found, ""
        # By its place on the bus CUDA counts with `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
        order = [(int(place.domain), int(place.bus), int(place.device)) for place in places]
        return [found[index] for index in sorted(range(len(found)), key=order.__getitem__)], ""
    finally:
        ask(pynvml, "nvmlShutdown")


def _gpu(library: Any, handle: Any) -> Gpu | None:
    device = _device(library, handle)
    if device is None:
        return None
    mode = ask(library, "nvmlDeviceGetMigMode", handle)  # now, and after the next reset; refused by GPUs without it
    if mode is None or mode[0] != 1:
        return Gpu(device)
    instances: list[Instance] = []
    for number in range(ask(library, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        part = ask(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        shown = _device(library, part) if part is not None else None
        if shown is not None:
            numbers = [ask(library, f"nvmlDeviceGet{what}InstanceId", part) for what in ("Gpu", "Compute")]
            instances.append(Instance(shown, *(-1 if value is None else int(value) for value in numbers)))
    return Gpu(device, tuple(instances))


def _device(library: Any, handle: Any) -> Device | None:
    identity = ask(library, "nvmlDeviceGetUUID", handle)
    if not identity:
        return None
    name = ask(library, "nvmlDeviceGetName", handle) or ""
    memory = ask(library, "nvmlDeviceGetMemoryInfo", handle)
    total = 0 if memory is None else int(memory.total)
    return Device(identity, "gpu", name, total, labels=labels_of(name, total), vendor="nvidia")
