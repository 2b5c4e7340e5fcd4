"""The memory of GPUs as a trial may ask for it: wait until it is free, keep to a share of it."""

from __future__ import annotations

import logging
import operator
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence

from sweep.accelerators import gpu, nvml
from sweep.accelerators.meter import MemoryUse, describe, read_memory
from sweep.checks import is_number, number, refuse
from sweep.core.resources import Device
from sweep.errors import ResourceError, SweepError, refuse_unknown

_PART = "a part of it in [0, 1]: 0.01 is one percent"
_log = logging.getLogger(__name__)


class NoGpuError(ResourceError, RuntimeError):
    """There is no GPU to wait for, or none whose memory can be read."""


class GpuMemoryError(SweepError, RuntimeError):
    """The memory of a GPU was not freed in time."""


@refuse_unknown()
def wait_for_gpu(
    gpu_id: int | str | None = None,
    target_util: float = 0.01,
    retry: int = 20,
    delay_s: float = 5,
    gpu_memory_limit: float | None = None,
) -> bool:
    """Return True as soon as the memory of this process's GPUs is free, for a trial that needs all of it.

    The engine does this by itself between two trials; call it where something else uses the GPUs too, and before this
    process uses them, whose own memory counts as well.

    Args:
        gpu_id: None: all GPUs that this process sees. A number, or digits: the position among them, as in `cuda:0`.
            Any other text: a UUID, or the beginning of one only (`GPU-5d5b`, `MIG-...`).
        target_util: part of the memory, in [0, 1], that may be in use.
        retry: how often to look, at least once.
        delay_s: seconds between two looks.
        gpu_memory_limit: has no meaning, as in Tune; a DeprecationWarning says so.

    Raises:
        NoGpuError: (also a RuntimeError) this process sees no GPU, or NVML, by which memory is read, is not there.
        ResourceError: (also a ValueError) `gpu_id` names none of the GPUs that this process sees.
        ConfigError: (also a ValueError) an argument has the wrong type or is out of its range.
        GpuMemoryError: (also a RuntimeError) the memory was not freed; the message says which process holds it.
    """
    if gpu_memory_limit is not None:
        warnings.warn(
            "wait_for_gpu ignores gpu_memory_limit; use target_util, a part of the memory.",
            DeprecationWarning,
            stacklevel=3,
        )
    number("wait_for_gpu: target_util", target_util, least=0, most=1, expected=_PART)
    number("wait_for_gpu: delay_s", delay_s, least=0, expected="seconds, at least 0")
    if not is_number(retry) or retry < 1 or retry % 1:
        refuse("wait_for_gpu: retry", retry, "a whole number of looks, at least 1")
    looks = int(retry)
    wanted = None if gpu_id is None else _checked_id(gpu_id)
    devices = _own_gpus()
    if wanted is not None:
        devices = (_find_gpu(devices, wanted),)
    for look in range(1, looks + 1):
        memory = read_memory(devices) or {}
        busy = _busy(devices, memory, target_util)
        if not busy:
            return True
        if look < looks:
            # The first is said aloud, because without it minutes may pass in silence.
            _log.log(
                logging.WARNING if look == 1 else logging.INFO,
                "waiting for at most %g%% of GPU memory in use: %s",
                100 * target_util,
                busy,
            )
            time.sleep(delay_s)
    own = any(holder.pid == os.getpid() for use in memory.values() for holder in use.processes)
    hint = " This process holds some itself: call wait_for_gpu before it uses the GPU." if own else ""
    raise GpuMemoryError(
        f"GPU memory was not freed: {busy}, after {looks} looks in {(looks - 1) * delay_s:g}s; expected at most "
        f"{100 * target_util:g}% in use.{hint}"
    )


@refuse_unknown()
def limit_gpu_memory(fraction: float, device: int | str | None = None) -> bool:
    """Let torch allocate only a share of a GPU's memory in this process; True: it will keep to it.

    Cooperative, not enforced: what torch's allocator hands out is capped, the context, NCCL and other libraries are
    not. Nothing is done for a whole GPU, and where torch is not imported or sees no GPU. jax has a variable for it,
    `XLA_PYTHON_CLIENT_MEM_FRACTION`, which is read once, at its start.

    Args:
        fraction: of the device's memory, in (0, 1].
        device: None: the current one.

    Raises:
        ConfigError: the fraction is out of its range.
    """
    number("limit_gpu_memory: fraction", fraction, above=0, most=1)
    torch = sys.modules.get("torch")
    if fraction == 1 or torch is None or not torch.cuda.is_available():
        return False
    torch.cuda.set_per_process_memory_fraction(float(fraction), device)
    return True


def _checked_id(gpu_id: int | str) -> int | str:
    """Return a position or a text that is none."""
    text = gpu_id.strip() if isinstance(gpu_id, str) else ""
    if text:
        return int(text) if text.isdecimal() and len(text) < 10 else text
    if isinstance(gpu_id, (bool, str)) or not hasattr(gpu_id, "__index__"):
        refuse("wait_for_gpu: gpu_id", gpu_id, "None, a position such as 0, or a UUID such as 'GPU-5d5ba0d6'")
    return operator.index(gpu_id)


def _own_gpus() -> tuple[Device, ...]:
    if nvml.open_library() is None:
        raise NoGpuError(
            f"wait_for_gpu reads the memory of NVIDIA GPUs through NVML, which does not answer: {nvml.list_gpus()[1]}. "
            "On a machine without such a GPU leave the call out."
        )
    devices = tuple(device for device in gpu.detect() if device.vendor == "nvidia")
    if not devices:
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        because = "" if listed is None else f" with CUDA_VISIBLE_DEVICES={listed!r}"
        raise NoGpuError(
            f"No GPU ids found: this process sees no GPU{because}. A trial sees those that it asks for, for instance "
            "resources_per_trial={'gpu': 1}."
        )
    return devices


def _find_gpu(devices: Sequence[Device], wanted: int | str) -> Device:
    if isinstance(wanted, int):
        matches = [devices[wanted]] if 0 <= wanted < len(devices) else []
    else:
        matches = [device for device in devices if device.id == wanted]
        matches = matches or [device for device in devices if device.id.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(f"{position}: {device.id}" for position, device in enumerate(devices))
    found = "names several of the" if matches else "is none of the"
    raise ResourceError(f"wait_for_gpu: gpu_id={wanted!r} {found} GPUs that this process sees: {known}.")


def _busy(devices: Sequence[Device], memory: Mapping[str, MemoryUse], target_util: float) -> str:
    """Say which devices have too much memory in use; empty: none."""
    uses = [(device.id, memory.get(device.id)) for device in devices]
    return "; ".join(
        f"{identity} does not tell its memory" if use is None else describe(identity, use)
        for identity, use in uses
        if use is None or use.fraction > target_util
    )
