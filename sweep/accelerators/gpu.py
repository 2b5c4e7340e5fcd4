"""Which GPUs this process may use, what they are called, and what a child must be told to see one of them.

nvidia   the driver's own library, NVML; `CUDA_VISIBLE_DEVICES` as CUDA reads it
amd      the kernel's list of compute nodes; `HIP_VISIBLE_DEVICES`, or `CUDA_VISIBLE_DEVICES` where that is unset
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep.accelerators import cuda
from sweep.core.resources import Device
from sweep.errors import ResourceError, nearest

__all__ = [
    "KNOWN_TYPES",
    "Gpu",
    "Instance",
    "Look",
    "amd_parent",
    "amd_visible",
    "ask",
    "check_type",
    "count",
    "detect",
    "find_amd",
    "labels_of",
    "look",
    "nvml",
    "visible",
    "why_silent",
]

_CUDA = "CUDA_VISIBLE_DEVICES"


# --- inventory -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the machine found.

    Attributes:
        devices: the GPUs that this process may use, in the order in which it sees them.
        law: the variable of the parent's that says which, and its value; empty: there is none.
        is_blank: it names nothing on any machine, see `cuda.is_blank`.
        why: why there are no more of them, in words; empty where nothing is remarkable.
        notices: what people should be told of how they were found.
    """

    devices: tuple[Device, ...]
    law: str = ""
    is_blank: bool = False
    why: str = ""
    notices: tuple[str, ...] = ()


def detect(
    environ: Mapping[str, str] | None = None,
    *,
    sysfs: str | Path = "/sys",
    dev: str | Path = "/dev",
    trust: bool = True,
) -> tuple[Device, ...]:
    """Return the GPUs that this process may use, in the order in which it sees them; see `look`."""
    return look(environ, sysfs=sysfs, dev=dev, trust=trust).devices


def look(
    environ: Mapping[str, str] | None = None,
    *,
    sysfs: str | Path = "/sys",
    dev: str | Path = "/dev",
    trust: bool = True,
    ask_cuda: Callable[[str | None, str | None], Sequence[str] | None] = cuda.ask,
) -> Look:
    """Look for the GPUs that this process may use, and say why there are no more.

    A machine without a GPU or without its driver has none; that is no error. Where there are GPUs of NVIDIA and of AMD,
    NVIDIA's count: a framework is built for one of them. Where no driver answers, the parent's list is taken at its
    word, and without a list the device files of NVIDIA's GPUs are counted; nothing is known then but names.

    Args:
        environ: holds the visible-devices variables; None: this process's own.
        sysfs: where the kernel shows its devices.
        dev: where the device files are.
        trust: whether anything counts that no driver has confirmed.
        ask_cuda: returns what CUDA shows, see `cuda.ask`.

    Raises:
        ResourceError: the variables of AMD's GPUs contradict each other, see `amd_parent`.
    """
    variables = os.environ if environ is None else environ
    parent = variables.get(_CUDA)
    found, silence = ([], "") if parent is not None and not parent.strip() else _list_nvidia()
    if found:
        return _look_at_nvidia(found, parent, variables.get("CUDA_DEVICE_ORDER"), ask_cuda)
    amd = find_amd(sysfs)
    if amd:
        return _look_at_amd(amd, variables)
    for name, vendor in ((_CUDA, "nvidia"), ("HIP_VISIBLE_DEVICES", "amd")):
        value = variables.get(name)
        if value is not None:
            return _look_at_list(name, value, vendor, silence, dev, is_trusted=trust)
    number = cuda.count_files(dev) if silence and trust else 0
    if number:
        counted = tuple(Device(str(index), "gpu", visible=str(index), vendor="nvidia") for index in range(number))
        said = (
            f"{number} GPU{'s were' if number > 1 else ' was'} counted by the files {dev}/nvidia*, because {silence}: "
            "types and memory are unknown"
        )
        return Look(counted, why=said, notices=(said,))
    why = f"no GPU was found: {silence or 'the driver of NVIDIA lists none'}, and there is none of AMD"
    return Look((), why=why)


def count(*, sysfs: str | Path = "/sys", dev: str | Path = "/dev") -> int:
    """Return how many GPUs the machine has, also those that are hidden from this process."""
    return max(len(_list_nvidia()[0]), cuda.count_files(dev), len(find_amd(sysfs)))


def _look_at_list(name: str, value: str, vendor: str, silence: str, dev: str | Path, *, is_trusted: bool) -> Look:
    """Read a list where no driver has found anything."""
    law, blank = f"{name}={value!r}", cuda.is_blank(value)
    if vendor == "nvidia" and not silence and value.strip():  # the driver works
        return Look((), law, blank, f"{law} names no GPU here: the driver of NVIDIA lists none")
    number = cuda.count_files(dev) if vendor == "nvidia" else 0
    devices, why = cuda.take_at_its_word(name, value, vendor=vendor, number=number or None)
    if not devices or not is_trusted:
        return Look((), law, blank, why)
    reason = silence if vendor == "nvidia" else "the kernel shows no GPU of AMD"
    said = f"{law} is taken at its word, because {reason}: types and memory are unknown"
    return Look(devices, law, blank, f"{why}, and {reason}", (said,))


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


def visible(found: Sequence[Gpu | None], parent: str | None, *, order: str = "PCI_BUS_ID") -> tuple[Device, ...]:
    """Return what `CUDA_VISIBLE_DEVICES=parent` leaves of the GPUs, as CUDA reads it, each with what names it.

    Entries are indices, `GPU-` and the beginning of one UUID only, `MIG-` and a whole UUID, or `MIG-GPU-uuid/1/0`. The
    first that names nothing (`-1`, `NoDevFiles`, an empty one) hides itself and all after it; a device named twice
    hides everything. An index of a GPU in MIG mode means its first instance, which is all that CUDA would show.

    `Device.visible` is the parent's own entry, so that a child is told a part of the parent's list. Without a list it
    is the index, because some libraries read nothing else, and the UUID where an index could be read otherwise: on
    a machine with GPUs of several types, in MIG mode, or with one that does not answer, since CUDA may count them in
    another order.

    Args:
        found: all of the machine by index, which is the order of the PCI bus; None for one that does not answer.
        parent: None: the variable is not set.
        order: `CUDA_DEVICE_ORDER`; with another one than `PCI_BUS_ID` indices are not ours to give.
    """
    if parent is not None:
        return _read_nvidia(found, parent)[0]
    is_by_index = _is_uniform(found) and order == "PCI_BUS_ID"
    shown: list[Device] = []
    for index, gpu in enumerate(found):
        if gpu is None:
            continue
        if gpu.instances is not None:
            shown += [_as_written(instance.device, instance.device.id) for instance in gpu.instances]
        else:
            shown.append(_as_written(gpu.device, str(index) if is_by_index else gpu.device.id))
    return tuple(shown)


def _is_uniform(found: Sequence[Gpu | None]) -> bool:
    """Whether all GPUs answer and are of one type, none in MIG mode: CUDA then counts them along the PCI bus."""
    types = {gpu.device.type if gpu is not None and gpu.instances is None else None for gpu in found}
    return len(types) == 1 and None not in types


def _read_nvidia(found: Sequence[Gpu | None], parent: str) -> tuple[tuple[Device, ...], str]:
    return cuda.read_list(_CUDA, parent, lambda entry: _named(found, entry))


def _look_at_nvidia(
    found: Sequence[Gpu | None],
    parent: str | None,
    order: str | None,
    ask_cuda: Callable[[str | None, str | None], Sequence[str] | None],
) -> Look:
    """Return which of the GPUs that the driver lists may be used; indices are read in the order that CUDA counts in."""
    if parent is None:
        devices = visible(found, None, order=order or "PCI_BUS_ID")
        return Look(devices, why="" if devices else "the driver of NVIDIA lists GPUs of which none can be used")
    law, blank = f"{_CUDA}={parent!r}", cuda.is_blank(parent)
    entries = [entry.strip() for entry in parent.split(",")]
    has_indices = any(cuda.index_of(entry) is not None for entry in entries)
    if order == "PCI_BUS_ID" or not has_indices or _is_uniform(found):
        devices, why = _read_nvidia(found, parent)
        return Look(devices, law, blank, why)
    uuids = ask_cuda(parent, order)
    if uuids is None:
        devices, why = cuda.read_list(_CUDA, parent, lambda entry: _nameless(found, entry), is_unchecked=True)
        said = (
            f"which GPUs the indices of {law} mean is not known: they are of several types and CUDA could not be asked "
            "in which order it counts them. Set CUDA_DEVICE_ORDER=PCI_BUS_ID as well, or write the UUIDs that "
            "nvidia-smi -L lists"
        )
        return Look(devices, law, blank, why, (said,) if devices else ())
    known = {_digits(device.id): device for gpu in found if gpu is not None for device in _parts(gpu)}
    chosen = []
    for entry, uuid in zip(entries, uuids, strict=False):
        device = known.get(uuid, Device(entry, "gpu", vendor="nvidia"))
        is_index = cuda.index_of(entry) is not None and uuid in known
        chosen.append(_as_written(device, device.id if is_index else entry))
    is_whole = len(uuids) >= len(entries)
    why = f"{law} names no others" if is_whole else f"{law} ends at {entries[len(uuids)]!r}, as CUDA itself reads it"
    return Look(tuple(chosen), law, blank, why)


def _parts(gpu: Gpu) -> list[Device]:
    """Return a GPU and its instances."""
    return [gpu.device, *(instance.device for instance in gpu.instances or ())]


def _digits(identity: str) -> str:
    """Return a UUID as CUDA tells it."""
    return identity.partition("-")[2].replace("-", "").lower()


def _nameless(found: Sequence[Gpu | None], entry: str) -> Device | None:
    """Return the device of an entry, of an index only what is certain: its name."""
    index = cuda.index_of(entry)
    if index is None:
        return _named(found, entry)
    return Device(str(index), "gpu", visible=str(index), vendor="nvidia") if index < len(found) else None


def _named(found: Sequence[Gpu | None], entry: str) -> Device | None:
    """Return the device that one entry of CUDA's list names, or None."""
    instances = [instance for gpu in found if gpu is not None for instance in gpu.instances or ()]
    for instance in instances:
        if instance.device.id == entry:
            return _as_written(instance.device, entry)
    older = re.fullmatch(r"MIG-(GPU-[^/]+)/([0-9]{1,9})/([0-9]{1,9})", entry)
    if older is not None:
        for instance in next((g.instances or () for g in found if g is not None and g.device.id == older[1]), ()):
            if (instance.gpu_instance, instance.compute_instance) == (int(older[2]), int(older[3])):
                return _as_written(instance.device, entry)
        return None
    index = cuda.index_of(entry)
    if index is not None:
        gpu = found[index] if index < len(found) else None
        return None if gpu is None else _usable(gpu, str(index))
    if entry.startswith("GPU-"):
        matches = [gpu for gpu in found if gpu is not None and gpu.device.id.startswith(entry)]
        return _usable(matches[0], entry) if len(matches) == 1 else None
    return None


def _usable(gpu: Gpu, entry: str) -> Device | None:
    if gpu.instances is None:
        return _as_written(gpu.device, entry)
    # The entry names the whole GPU, which nobody can use now: the instance's own name is the exact one.
    return _as_written(gpu.instances[0].device, gpu.instances[0].device.id) if gpu.instances else None


def _as_written(device: Device, entry: str) -> Device:
    return replace(device, visible=entry)


# --- the driver's library --------------------------------------------------------------------------------------------

_opened: tuple[int, Any] | None = None  # by which process, and what


def nvml() -> Any | None:
    """Return NVIDIA's library, opened by this very process and kept open; None without it, or without a driver.

    A child that was forked with it open opens it for itself, and so does a process in which somebody closed it.
    """
    global _opened
    try:
        import pynvml
    except ImportError:
        return None
    if _opened == (os.getpid(), pynvml) and ask(pynvml, "nvmlDeviceGetCount") is not None:
        return pynvml
    _opened = None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver here, or another version of it than the library's
        return None
    _opened = (os.getpid(), pynvml)
    return pynvml


def ask(library: Any, function: str, *arguments: Any) -> Any:
    """Return what a function of NVML answers; None when it refuses, or when this version has no such function."""
    call = getattr(library, function, None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except (library.NVMLError, getattr(library, "NVMLLibraryMismatchError", library.NVMLError)):
        return None


def why_silent() -> str:
    """Return in words why the driver's library cannot be asked; empty: it can."""
    return _list_nvidia()[1]


def _list_nvidia() -> tuple[list[Gpu | None], str]:
    """Return all GPUs of the machine along the PCI bus, or none and in words why the library does not answer.

    The library is closed again: an idle GPU may then go to sleep.
    """
    try:
        import pynvml
    except ImportError:
        return [], "NVIDIA's driver cannot be asked without nvidia-ml-py (pip install nvidia-ml-py)"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if type(error).__name__ == "NVMLError_LibraryNotFound":
            return [], "NVIDIA's driver library, libnvidia-ml.so.1, is not here"
        return [], f"NVIDIA's driver library refuses: {str(error) or type(error).__name__}"
    try:
        found: list[tuple[tuple[int, int, int] | None, Gpu | None]] = []
        for index in range(ask(pynvml, "nvmlDeviceGetCount") or 0):
            handle = ask(pynvml, "nvmlDeviceGetHandleByIndex", index)
            found.append((None, None) if handle is None else (_pci(pynvml, handle), _gpu(pynvml, handle)))
        if all(address is not None for address, _ in found):
            found.sort(key=lambda one: one[0] or (0, 0, 0))
        return [gpu for _, gpu in found], ""
    finally:
        ask(pynvml, "nvmlShutdown")


def _pci(library: Any, handle: Any) -> tuple[int, int, int] | None:
    """Return the place on the PCI bus, by which CUDA counts with `CUDA_DEVICE_ORDER=PCI_BUS_ID`."""
    info = ask(library, "nvmlDeviceGetPciInfo", handle)
    return None if info is None else (int(info.domain), int(info.bus), int(info.device))


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
            numbers = (
                ask(library, "nvmlDeviceGetGpuInstanceId", part),
                ask(library, "nvmlDeviceGetComputeInstanceId", part),
            )
            instances.append(Instance(shown, *(-1 if value is None else int(value) for value in numbers)))
    return Gpu(device, tuple(instances))


def _device(library: Any, handle: Any) -> Device | None:
    identity = _text(ask(library, "nvmlDeviceGetUUID", handle))
    if not identity:
        return None
    name = _text(ask(library, "nvmlDeviceGetName", handle))
    memory = ask(library, "nvmlDeviceGetMemoryInfo", handle)
    total = 0 if memory is None else int(memory.total)
    return Device(identity, "gpu", name, total, labels=labels_of(name, total), vendor="nvidia")


def _text(value: str | bytes | None) -> str:
    if isinstance(value, bytes):  # what older versions of the library answer
        return value.decode("utf-8", "replace")
    return value or ""


# --- AMD -------------------------------------------------------------------------------------------------------------

_AMD_VENDOR = 4098
# Boards that do not tell a product name, by PCI device id.
_AMD_NAMES = {
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
        if properties.get("vendor_id") != _AMD_VENDOR or properties.get("simd_count", 0) <= 0:
            continue
        identity = _amd_id(properties)
        if identity in devices:  # partitions of one GPU
            identity = f"{identity}/{node.name}"
        name = _amd_name(root, properties)
        banks = [_properties(path) for path in sorted(node.glob("mem_banks/*/properties"))]
        # 1 and 2 are the GPU's own memory, seen by the CPU or not; the others are the host's and small areas.
        memory = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2))
        labels = labels_of(name, memory)
        devices[identity] = Device(identity, "gpu", name, memory, str(len(devices)), labels, "amd")
    return tuple(devices.values())


def amd_parent(environ: Mapping[str, str]) -> str | None:
    """Return the list that says which AMD GPUs this process may use, None when there is none.

    `HIP_VISIBLE_DEVICES` decides; `CUDA_VISIBLE_DEVICES` where that is not set. An empty `ROCR_VISIBLE_DEVICES` hides
    everything.

    Raises:
        ResourceError: both are set and differ, or only `ROCR_VISIBLE_DEVICES` names devices: it filters below HIP,
            so what HIP's indices mean in a child would depend on it.
    """
    hip, cuda, rocr = (environ.get(f"{name}_VISIBLE_DEVICES") for name in ("HIP", "CUDA", "ROCR"))
    if rocr is not None and not rocr.strip():
        return ""
    if rocr is not None and hip is None:
        raise ResourceError(
            f"ROCR_VISIBLE_DEVICES={rocr!r} is set without HIP_VISIBLE_DEVICES. Use HIP_VISIBLE_DEVICES instead of it."
        )
    if hip is not None and cuda is not None and _entries(hip) != _entries(cuda):
        raise ResourceError(
            f"HIP_VISIBLE_DEVICES={hip!r} and CUDA_VISIBLE_DEVICES={cuda!r} differ; AMD's libraries read both. "
            "Give them the same value, or unset CUDA_VISIBLE_DEVICES."
        )
    return cuda if hip is None else hip


def amd_visible(found: Sequence[Device], environ: Mapping[str, str]) -> tuple[Device, ...]:
    """Return what the variables leave of the AMD GPUs, each with the parent's own entry as `visible`, else the index.

    Lists are read as CUDA reads its own: up to the first entry that names nothing, and a device named twice hides
    everything. `ROCR_VISIBLE_DEVICES`, allowed beside `HIP_VISIBLE_DEVICES`, is applied first.

    Raises:
        ResourceError: see `amd_parent`. Never where there are no such GPUs.
    """
    return _look_at_amd(found, environ).devices if found else ()


def _look_at_amd(found: Sequence[Device], environ: Mapping[str, str]) -> Look:
    parent, below = amd_parent(environ), environ.get("ROCR_VISIBLE_DEVICES")
    seen = Look(tuple(found))
    if below is not None:
        seen = _read_amd("ROCR_VISIBLE_DEVICES", below, found)
        seen = replace(seen, devices=tuple(_as_written(gpu, str(index)) for index, gpu in enumerate(seen.devices)))
    if parent is None or (below is not None and not seen.devices):
        return seen
    return _read_amd("HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environ else _CUDA, parent, seen.devices)


def _read_amd(name: str, value: str, found: Sequence[Device]) -> Look:
    devices, why = cuda.read_list(name, value, lambda entry: _amd_named(found, entry))
    return Look(devices, f"{name}={value!r}", cuda.is_blank(value), why)


def _amd_named(found: Sequence[Device], entry: str) -> Device | None:
    index = cuda.index_of(entry)
    if index is not None:
        return _as_written(found[index], str(index)) if index < len(found) else None
    matches = [device for device in found if entry.startswith("GPU-") and device.id.startswith(entry)]
    return _as_written(matches[0], entry) if len(matches) == 1 else None


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


def _amd_id(properties: Mapping[str, int]) -> str:
    if properties.get("unique_id"):
        return f"GPU-{properties['unique_id']:016x}"
    place = properties.get("location_id", 0)
    return f"AMD-{properties.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _amd_name(root: Path, properties: Mapping[str, int]) -> str:
    """Return the product name; where the board does not tell it, what its number means, else its architecture."""
    minor = properties.get("drm_render_minor", 0)
    try:
        product = (root / f"class/drm/renderD{minor}/device/product_name").read_text("utf-8", "replace").strip()
    except OSError:
        product = ""
    if product:
        return product if "amd" in product.casefold() else f"AMD {product}"
    known = _AMD_NAMES.get(properties.get("device_id", 0))
    version = properties.get("gfx_target_version", 0)
    return known or f"AMD gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


# --- types -----------------------------------------------------------------------------------------------------------

_PLAIN_TYPES = """
B300 GB300 B200 GB200 GH200 H200 H100 H800 H20 A100 A800 A40 A30 A16 A10G A10 A2 L40S L40 L20 L4 L2
V100S V100 P100 P40 P4 T4G T4 M60 M40 K80 K40
RTX5090 RTX5080 RTX5070Ti RTX5070 RTX5060Ti RTX5060 RTX4090D RTX4090 RTX4080 RTX4070Ti RTX4070 RTX4060Ti RTX4060
RTX3090Ti RTX3090 RTX3080Ti RTX3080 RTX3070Ti RTX3070 RTX3060Ti RTX3060 RTX2080Ti RTX2080 RTX2070 RTX2060
GTX1660Ti GTX1660 GTX1650 GTX1080Ti GTX1080 GTX1070Ti GTX1070 GTX1060 TITANRTX TITANV TITANXp TITANX
RTXPRO6000 RTXPRO5000 RTXPRO4500 RTXPRO4000 RTX6000Ada RTX5000Ada RTX4500Ada RTX4000Ada
RTXA6000 RTXA5500 RTXA5000 RTXA4500 RTXA4000 RTXA2000 RTX8000 RTX6000 RTX5000 RTX4000 GB10
MI355X MI350X MI325X MI308X MI300X MI300A MI250X MI250 MI210 MI100 MI50 RX9070XT RX7900XTX RX7900XT
""".split()  # noqa: SIM905 - a family to a line is easier to read and to extend
# Sold with different amounts of memory: the amount tells them apart.
_VARIANTS = {"H100": (80, 94, 96), "H20": (96, 141), "GH200": (96, 144), "A100": (40, 80), "V100": (16, 32)}

KNOWN_TYPES: tuple[str, ...] = (
    *_PLAIN_TYPES,
    *(f"{plain}-{size}G" for plain, sizes in _VARIANTS.items() for size in sizes),
)
"""Accelerator types of GPUs that can be asked for on any machine; what an inventory has can be asked for as well."""

_COMPANIES = {"nvidia", "amd", "corporation", "inc.", "ati"}
_BRANDS = {"tesla", "geforce", "quadro", "grid", "instinct", "radeon"}
# How a board is built, cooled, cut or sold, which does not make it another type.
_FORM = re.compile(
    r"sxm\d?|pcie?|nvl\d*|hbm\d\w?|oam|hf|vf|mba|mxm|dgxs|fhhl|ls|ac|3e|gpu|generation|active|edition|server|"
    r"workstation|blackwell|with|design|\d+gb?|\d{1,3}[abcq]",
    re.IGNORECASE,
)
_SHARED_NAMES = {"MI250XMI250": ("MI250X", "MI250")}  # two products with one device id
# What boards are sold with, in GiB; a little less is left where error correction takes its part.
_SIZES = (2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 72, 80, 94, 96, 128, 141, 144)
_LARGE_SIZES = (180, 186, 192, 256, 288)


def labels_of(name: str, memory: int = 0) -> tuple[str, ...]:
    """Return the accelerator types that a GPU answers to, the plain one first.

    Vendor, brand and form are left out: `Tesla V100-SXM2-16GB` is a `V100`, `NVIDIA GeForce RTX 3090` an `RTX3090`.
    The amount of memory follows as a second type, `A100-40G`, as boards are sold, not as the driver counts. A part of
    a GPU in MIG mode has its profile instead, `A100-MIG-1g.5gb`. AMD's also go by what Ray calls them,
    `AMD-Instinct-MI300X-OAM`. Names that nobody knows are shortened by the same rules; an empty one has no types.

    Args:
        name: as the driver tells it.
        memory: bytes; 0: unknown, then an amount in the name counts.
    """
    whole, _, profile = name.partition(" MIG ")
    plain = _plain_type(whole)
    if not plain:
        return ()
    if profile.strip():
        return (plain, f"{plain}-MIG-{'-'.join(profile.split())}")
    labels = list(_SHARED_NAMES.get(plain, (plain,)))
    size = _size_of(whole, plain, memory)
    if size:
        labels.append(f"{labels[0]}-{size}G")
    words = _words(whole)
    if "instinct" in (word.casefold() for word in words):
        labels += [f"AMD-Instinct-{labels[0]}", "-".join(words)]
    return tuple(dict.fromkeys(labels))


def check_type(text: str, devices: Iterable[Device] = ()) -> str:
    """Return an accelerator type as it is spelled, whatever way it was: `a100`, `RTX 3090`, `A100 80GB`, `Tesla V100`.

    Types of TPUs, `TPU-V...`, are returned as they are.

    Args:
        devices: an inventory; its types and labels can be asked for too, and are preferred.

    Raises:
        ResourceError: nothing is called so; the message names the nearest.
    """
    if not isinstance(text, str) or not text.strip():
        raise ResourceError(f"accelerator_type is {text!r}; expected a text such as 'A100' or 'TPU-V6E'.")
    if re.fullmatch(r"TPU-V\w+", text.strip(), re.IGNORECASE):
        return text
    own = list(dict.fromkeys(label for device in devices for label in (*device.labels, device.type) if label))
    for label in own:
        if label.casefold() == text.strip().casefold():
            return label
    spelled = {_folded(label): label for label in (*reversed(KNOWN_TYPES), *reversed(own))}
    folded = _folded(text)
    if folded in spelled:
        return spelled[folded]
    here = f" This inventory has {', '.join(own)}." if own else ""
    typed = "".join(text.split()).upper()
    raise ResourceError(f"unknown accelerator type {text!r}.{here} {nearest(typed, {*KNOWN_TYPES, *own})}")


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s\-_/]+", re.sub(r"\(.*?\)", " ", name)) if word]


def _plain_type(name: str) -> str:
    named = [word for word in _words(name) if word.casefold() not in _COMPANIES]
    kept = [word for word in named if word.casefold() not in _BRANDS and not _FORM.fullmatch(word)]
    joined = "".join(kept)
    if not re.search(r"\d", joined):  # `TITAN RTX`, `Radeon VII`: the brand is part of the name
        joined = "".join(named) or "".join(_words(name))
    return _SPELLED.get(joined.casefold(), joined)


_SPELLED = {plain.casefold(): plain for plain in _PLAIN_TYPES}


def _size_of(name: str, plain: str, memory: int) -> int:
    """Return the memory in GiB as boards are sold; 0: unknown, or less than one."""
    if memory <= 0:
        stated = re.search(r"(?<![0-9])([0-9]{1,3}) ?GB?\b", name, re.IGNORECASE)
        # The name of a superchip tells the memory of its CPU.
        return int(stated[1]) if stated and not plain.startswith(("GH", "GB")) else 0
    amount = memory / 2**30
    for size in (*_SIZES, *_LARGE_SIZES):
        if 0.92 * size <= amount <= 1.005 * size:
            return size
    return round(amount)


def _folded(text: str) -> str:
    """Return a type without what people spell in different ways: case, separators, vendor, form, `GB` for `G`."""
    words = [word.casefold() for word in _words(text)]
    kept = [re.sub(r"^(\d+g)b$", r"\1", word) for word in words if word not in _COMPANIES | _BRANDS]
    kept = [word for word in kept if re.fullmatch(r"\d+g", word) or not _FORM.fullmatch(word)]
    return _SHARED_NAMES.get("".join(kept).upper(), ("".join(kept) or "".join(words),))[0].casefold()
