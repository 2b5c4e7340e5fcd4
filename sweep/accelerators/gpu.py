"""Which NVIDIA GPUs this process may use, by uuid, from the driver's own library."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from sweep.core.resources import Device

__all__ = ["detect", "visible"]


def detect(environ: Mapping[str, str] | None = None) -> tuple[Device, ...]:
    """Return the GPUs that this process may use; none without NVIDIA's driver or the `gpu` extra.

    `CUDA_VISIBLE_DEVICES` of the environment is respected: indices, UUIDs (a unique beginning suffices), in its order.
    """
    parent = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if parent is not None and not parent.strip():
        return ()
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver on this machine
        return ()
    try:
        found = [_device(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()
    return visible(found, parent)


def visible(found: list[Device], parent: str | None) -> tuple[Device, ...]:
    """Return those of `found` (in index order) that `CUDA_VISIBLE_DEVICES=parent` leaves, as CUDA reads it.

    Entries are read up to the first that names nothing; None leaves all.
    """
    if parent is None:
        return tuple(found)
    chosen: list[Device] = []
    for entry in (part.strip() for part in parent.split(",")):
        if re.fullmatch(r"\d+", entry):
            matches = found[int(entry) : int(entry) + 1]
        else:
            matches = [device for device in found if device.id.startswith(entry)] if entry else []
        if len(matches) != 1:
            break
        chosen += matches
    return tuple(dict.fromkeys(chosen))


def _device(nvml: Any, index: int) -> Device:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
    memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Device(id=uuid, kind="gpu", type=name, memory=memory, visible=uuid)
