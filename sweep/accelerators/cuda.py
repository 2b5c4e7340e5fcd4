"""CUDA's list of visible devices where no driver says what its entries mean, and CUDA's own order of devices where only
CUDA knows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sweep.core.resources import Device

LIST = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the machine found.

    Attributes:
        devices: the GPUs that this process may use, in the order in which it sees them.
        law: the variable of the parent's that says which, and its value; empty: there is none.
        is_blank: it names nothing on any machine, see `is_blank`.
        why: why there are no more of them, in words; empty where nothing is remarkable.
        notices: what the user should know of how they were found.
    """

    devices: tuple[Device, ...]
    law: str = ""
    is_blank: bool = False
    why: str = ""
    notices: tuple[str, ...] = ()


def read_list(name: str, value: str, named: Callable[[str], Device | None]) -> Look:
    """Read a list of devices as CUDA does: up to the first entry that names none; one named twice hides them all.

    Args:
        name: of the variable.
        named: returns the device that an entry names.
    """
    law = f"{name}={value!r}"
    chosen: dict[str, Device] = {}
    why = f"{law} names no others" if value.strip() else f"{name} is empty"
    for entry in map(str.strip, value.split(",") if value.strip() else ()):
        device = named(entry)
        if device is None:
            why = f"{law} ends at {entry!r}, which names no GPU here"
            break
        if device.id in chosen:
            chosen, why = {}, f"{law} names {device.id} twice, which hides all"
            break
        chosen[device.id] = device
    return Look(tuple(chosen.values()), law, is_blank(value), why)


def take_at_its_word(name: str, value: str, *, vendor: str, number: int | None = None) -> Look:
    """Read a list whose entries cannot be checked: their form decides, and each device is named by its entry.

    Args:
        number: of devices on the machine, where it is known: indices are below it.
    """

    def named(entry: str) -> Device | None:
        index = index_of(entry)
        if index is None:
            return Device(entry, "gpu", visible=entry, vendor=vendor) if _is_uuid(entry) else None
        is_there = number is None or index < number
        return Device(str(index), "gpu", visible=str(index), vendor=vendor) if is_there else None

    return read_list(name, value, named)


def is_blank(value: str) -> bool:
    """Whether a list holds nothing on any machine: it is empty, or begins with `-1`, `NoDevFiles` or the like."""
    first = value.split(",")[0].strip()
    return index_of(first) is None and not _is_uuid(first)


def index_of(entry: str) -> int | None:
    """Return the number that an entry begins with: CUDA does not mind what follows it."""
    match = re.match(r"\+?([0-9]{1,9})(?![0-9])", entry)
    return None if match is None else int(match[1])


def count_files(dev: str | Path = "/dev") -> int:
    """Return for how many NVIDIA GPUs there is a device file, `/dev/nvidia0` and so on."""
    return sum(re.fullmatch("nvidia[0-9]+", path.name) is not None for path in Path(dev).glob("nvidia*"))


_QUESTION = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
count = ctypes.c_int()
if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
    sys.exit(1)
uuid_of = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
for index in range(count.value):
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGet(ctypes.byref(device), index) or uuid_of(ctypes.byref(uuid), device):
        sys.exit(1)
    print(bytes(uuid).hex())
"""
_PATIENCE_S = 60.0


@lru_cache(maxsize=16)
def ask(visible: str | None, order: str | None, library: str = "libcuda.so.1") -> tuple[str, ...] | None:
    """Return the UUIDs of the devices that CUDA shows, in its own order, as 32 hexadecimal digits; None: no answer.

    A process of its own asks, so that this one never initialises CUDA: its forks could not use it any more.

    Args:
        visible, order: `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`; None: not set.
    """
    own = {LIST: visible, "CUDA_DEVICE_ORDER": order}
    environ = {name: value for name, value in os.environ.items() if name not in own}
    environ |= {name: value for name, value in own.items() if value is not None}
    try:
        asked = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _QUESTION, library],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # no interpreter to ask with, or a driver that hangs
    return tuple(asked.stdout.split()) if asked.returncode == 0 else None


def _is_uuid(entry: str) -> bool:
    return re.fullmatch(r"(GPU|MIG)-[^\s,]+", entry) is not None
