"""Which GPUs this process may use, what they are called, and which variables show a child one of them.

nvidia   the driver's own library, NVML; `CUDA_VISIBLE_DEVICES` as CUDA reads it
amd      the kernel's list of compute nodes; `HIP_VISIBLE_DEVICES`, or `CUDA_VISIBLE_DEVICES` where that is unset
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sweep.accelerators import cuda
from sweep.accelerators.amd import find_amd, look_at_amd
from sweep.accelerators.cuda import Look
from sweep.accelerators.nvml import Gpu, list_gpus
from sweep.core.resources import Device


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
    parent = variables.get(cuda.LIST)
    found, silence = ([], "") if parent is not None and not parent.strip() else list_gpus()
    if found:
        return (
            _look_at_jobs(found, variables, ask_cuda) if parent is None else look_at_nvidia(found, variables, ask_cuda)
        )
    amd = find_amd(sysfs)
    if amd:
        return look_at_amd(amd, variables)
    for name, vendor in ((cuda.LIST, "nvidia"), ("HIP_VISIBLE_DEVICES", "amd")):
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
    return max(len(list_gpus()[0]), cuda.count_files(dev), len(find_amd(sysfs)))


def _look_at_list(name: str, value: str, vendor: str, silence: str, dev: str | Path, *, is_trusted: bool) -> Look:
    """Read a list where no driver has found anything."""
    number = cuda.count_files(dev) if vendor == "nvidia" else 0
    seen = cuda.take_at_its_word(name, value, vendor=vendor, number=number or None)
    if vendor == "nvidia" and not silence and value.strip():  # the driver works
        return replace(seen, devices=(), why=f"{seen.law} names no GPU here: the driver of NVIDIA lists none")
    if not seen.devices or not is_trusted:
        return replace(seen, devices=())
    reason = silence if vendor == "nvidia" else "the kernel shows no GPU of AMD"
    said = f"{seen.law} is taken at its word, because {reason}: types and memory are unknown"
    return replace(seen, why=f"{seen.why}, and {reason}", notices=(said,))


def _look_at_jobs(
    found: Sequence[Gpu | None],
    environ: Mapping[str, str],
    ask_cuda: Callable[[str | None, str | None], Sequence[str] | None],
) -> Look:
    """Return what a batch job of Slurm, if this is one, has of the GPUs where it has set no list for CUDA.

    It says their numbers on the node. Where the driver lists no more than those, the others are hidden already.
    """
    name = "SLURM_STEP_GPUS" if "SLURM_STEP_GPUS" in environ else "SLURM_JOB_GPUS"
    numbers = environ.get(name, "")
    if not re.fullmatch(r"\d+(,\d+)*", numbers) or numbers.count(",") + 1 >= len(found):
        return look_at_nvidia(found, environ, ask_cuda)
    seen = look_at_nvidia(found, {**environ, cuda.LIST: numbers}, ask_cuda)
    return replace(seen, law=seen.law.replace(cuda.LIST, name), why=seen.why.replace(cuda.LIST, name))


def look_at_nvidia(
    found: Sequence[Gpu | None],
    environ: Mapping[str, str],
    ask_cuda: Callable[[str | None, str | None], Sequence[str] | None] = cuda.ask,
) -> Look:
    """Return what `CUDA_VISIBLE_DEVICES` leaves of the GPUs that the driver lists, as CUDA reads it.

    Entries are indices, `GPU-` and the beginning of one UUID only, `MIG-` and a whole UUID, or `MIG-GPU-uuid/1/0`. The
    first that names nothing (`-1`, `NoDevFiles`, an empty one) hides itself and all after it; a device named twice
    hides everything. An index of a GPU in MIG mode means its first instance, which is all that CUDA would show.
    Indices are read in the order that CUDA counts in: it is asked where that is not known.

    `Device.visible` is the parent's own entry, so that a child gets a part of the parent's list. Without a list it
    is the index, because some libraries read nothing else, and the UUID where an index could be read otherwise: on
    a machine with GPUs of several types, in MIG mode, or with one that does not answer, since CUDA may count them in
    another order.

    Args:
        found: all of the machine by index, which is the order of the PCI bus; None for one that does not answer.
    """
    parent, order = environ.get(cuda.LIST), environ.get("CUDA_DEVICE_ORDER")
    # CUDA counts GPUs of one type along the PCI bus when all answer and none is in MIG mode.
    types = {gpu.device.type if gpu is not None and gpu.instances is None else None for gpu in found}
    is_uniform = len(types) == 1 and None not in types
    if parent is None:
        is_by_index = is_uniform and (order or "PCI_BUS_ID") == "PCI_BUS_ID"
        shown: list[Device] = []
        for index, gpu in enumerate(found):
            if gpu is not None and gpu.instances is not None:
                shown += [replace(instance.device, visible=instance.device.id) for instance in gpu.instances]
            elif gpu is not None:
                shown.append(replace(gpu.device, visible=str(index) if is_by_index else gpu.device.id))
        return Look(tuple(shown), why="" if shown else "the driver of NVIDIA lists GPUs of which none can be used")
    entries = [entry.strip() for entry in parent.split(",")]
    has_indices = any(cuda.index_of(entry) is not None for entry in entries)
    if order == "PCI_BUS_ID" or not has_indices or is_uniform:
        return cuda.read_list(cuda.LIST, parent, lambda entry: _named(found, entry))
    uuids = ask_cuda(parent, order)
    if uuids is None:
        seen = cuda.read_list(cuda.LIST, parent, lambda entry: _nameless(found, entry))
        said = (
            f"which GPUs the indices of {seen.law} mean is not known: they are of several types and CUDA could not be "
            "asked in which order it counts them. Set CUDA_DEVICE_ORDER=PCI_BUS_ID as well, or write the UUIDs that "
            "nvidia-smi -L lists"
        )
        return replace(seen, notices=(said,) if seen.devices else ())
    return _as_cuda_shows(found, parent, entries, uuids)


def _as_cuda_shows(found: Sequence[Gpu | None], parent: str, entries: Sequence[str], uuids: Sequence[str]) -> Look:
    """Return the devices of a list by the UUIDs that CUDA itself has answered for it."""
    parts = [
        device for gpu in found if gpu is not None for device in (gpu.device, *(i.device for i in gpu.instances or ()))
    ]
    known = {device.id.partition("-")[2].replace("-", "").lower(): device for device in parts}
    chosen = []
    for entry, uuid in zip(entries, uuids, strict=False):
        device = known.get(uuid, Device(entry, "gpu", vendor="nvidia"))
        is_index = cuda.index_of(entry) is not None and uuid in known
        chosen.append(replace(device, visible=device.id if is_index else entry))
    law = f"{cuda.LIST}={parent!r}"
    is_whole = len(uuids) >= len(entries)
    why = f"{law} names no others" if is_whole else f"{law} ends at {entries[len(uuids)]!r}, as CUDA itself reads it"
    return Look(tuple(chosen), law, cuda.is_blank(parent), why)


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
            return replace(instance.device, visible=entry)
    older = re.fullmatch(r"MIG-(GPU-[^/]+)/([0-9]{1,9})/([0-9]{1,9})", entry)
    if older is not None:
        for instance in next((g.instances or () for g in found if g is not None and g.device.id == older[1]), ()):
            if (instance.gpu_instance, instance.compute_instance) == (int(older[2]), int(older[3])):
                return replace(instance.device, visible=entry)
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
        return replace(gpu.device, visible=entry)
    # The entry names the whole GPU, which cannot be used now: the instance's own name is the exact one.
    return replace(gpu.instances[0].device, visible=gpu.instances[0].device.id) if gpu.instances else None
