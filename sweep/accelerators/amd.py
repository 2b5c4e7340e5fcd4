"""The GPUs of AMD: the kernel's list of compute nodes, and what AMD's variables leave of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sweep.accelerators import cuda
from sweep.accelerators.cuda import Look
from sweep.accelerators.gpu_types import labels_of
from sweep.core.resources import Device
from sweep.errors import ResourceError

_VENDOR = 4098
# Boards that do not tell a product name, by PCI device id.
_NAMES = {
    0x66A1: "AMD Instinct MI50",
    0x738C: "AMD Instinct MI100",
    0x7408: "AMD Instinct MI250X",
    0x740C: "AMD Instinct MI250X/MI250",
    0x740F: "AMD Instinct MI210",
    0x74A0: "AMD Instinct MI300A",
    0x74A1: "AMD Instinct MI300X OAM",
    0x74A2: "AMD Instinct MI308X OAM",
    0x74A5: "AMD Instinct MI325X OAM",
    0x74A9: "AMD Instinct MI300X HF",
    0x75A0: "AMD Instinct MI350X OAM",
    0x75A3: "AMD Instinct MI355X OAM",
}


def find_amd(sysfs: str | Path = "/sys") -> tuple[Device, ...]:
    """Return all AMD GPUs of the machine, in the order in which ROCm counts them; `visible` is the index.

    The id is `GPU-` and the 16 hexadecimal digits that ROCm calls the UUID, or the place on the PCI bus where the GPU
    has no such number. GPUs that this process may not open are left out, as ROCm leaves them out.
    """
    root = Path(sysfs)
    devices: dict[str, Device] = {}
    for node in sorted((root / "class/kfd/kfd/topology/nodes").glob("[0-9]*"), key=lambda path: int(path.name)):
        properties = _properties(node / "properties")
        if properties.get("vendor_id") != _VENDOR or properties.get("simd_count", 0) <= 0:
            continue
        identity = _id(properties)
        if identity in devices:  # partitions of one GPU
            identity = f"{identity}/{node.name}"
        name = _name(root, properties)
        banks = [_properties(path) for path in sorted(node.glob("mem_banks/*/properties"))]
        # 1 and 2 are the GPU's own memory, seen by the CPU or not; the others are the host's and small areas.
        memory = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2))
        labels = labels_of(name, memory)
        devices[identity] = Device(identity, "gpu", name, memory, str(len(devices)), labels, "amd")
    return tuple(devices.values())


def amd_parent(environ: Mapping[str, str]) -> str | None:
    """Return the list that says which AMD GPUs this process may use, None when there is none.

    `HIP_VISIBLE_DEVICES` decides; `CUDA_VISIBLE_DEVICES` where that is not set. An empty `ROCR_VISIBLE_DEVICES` hides
    all GPUs.

    Raises:
        ResourceError: both are set and differ, or only `ROCR_VISIBLE_DEVICES` names devices: it filters below HIP,
            so what HIP's indices mean in a child would depend on it.
    """
    hip, cuda_list, rocr = (environ.get(f"{name}_VISIBLE_DEVICES") for name in ("HIP", "CUDA", "ROCR"))
    if rocr is not None and not rocr.strip():
        return ""
    if rocr is not None and hip is None:
        raise ResourceError(
            f"ROCR_VISIBLE_DEVICES={rocr!r} is set without HIP_VISIBLE_DEVICES. Use HIP_VISIBLE_DEVICES instead of it."
        )
    if hip is not None and cuda_list is not None and _entries(hip) != _entries(cuda_list):
        raise ResourceError(
            f"HIP_VISIBLE_DEVICES={hip!r} and CUDA_VISIBLE_DEVICES={cuda_list!r} differ; AMD's libraries read both. "
            "Give them the same value, or unset CUDA_VISIBLE_DEVICES."
        )
    return cuda_list if hip is None else hip


def look_at_amd(found: Sequence[Device], environ: Mapping[str, str]) -> Look:
    """Return what the variables leave of the AMD GPUs, each with the parent's own entry as `visible`, else the index.

    Lists are read as CUDA reads its own. `ROCR_VISIBLE_DEVICES`, allowed beside HIP's, is applied first.

    Raises:
        ResourceError: see `amd_parent`.
    """
    parent, below = amd_parent(environ), environ.get("ROCR_VISIBLE_DEVICES")
    seen = Look(tuple(found))
    if below is not None:
        seen = _read("ROCR_VISIBLE_DEVICES", below, found)
        left = tuple(replace(gpu, visible=str(index)) for index, gpu in enumerate(seen.devices))
        seen = replace(seen, devices=left)
    if parent is None or (below is not None and not seen.devices):
        return seen
    return _read("HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environ else cuda.LIST, parent, seen.devices)


def _read(name: str, value: str, found: Sequence[Device]) -> Look:
    def named(entry: str) -> Device | None:
        index = cuda.index_of(entry)
        if index is not None:
            return replace(found[index], visible=str(index)) if index < len(found) else None
        matches = [device for device in found if entry.startswith("GPU-") and device.id.startswith(entry)]
        return replace(matches[0], visible=entry) if len(matches) == 1 else None

    return cuda.read_list(name, value, named)


def _entries(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",")]


def _properties(path: Path) -> dict[str, int]:
    """Return the lines `name number` of a file; empty when it cannot be read, as for GPUs that are not ours."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and re.fullmatch("[0-9]{1,20}", pair[1])}


def _id(properties: Mapping[str, int]) -> str:
    if properties.get("unique_id"):
        return f"GPU-{properties['unique_id']:016x}"
    place = properties.get("location_id", 0)
    return f"AMD-{properties.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _name(root: Path, properties: Mapping[str, int]) -> str:
    """Return the product name; where the board does not tell it, what its number means, else its architecture."""
    minor = properties.get("drm_render_minor", 0)
    try:
        product = (root / f"class/drm/renderD{minor}/device/product_name").read_text("utf-8", "replace").strip()
    except OSError:
        product = ""
    if product:
        return product if "amd" in product.casefold() else f"AMD {product}"
    known = _NAMES.get(properties.get("device_id", 0))
    version = properties.get("gfx_target_version", 0)
    return known or f"AMD gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
