"""What GPUs are called: the accelerator types that a driver's name stands for, and those that people write."""

from __future__ import annotations

import re
from collections.abc import Iterable

from searchers.errors import nearest
from sweep.core.resources import Device
from sweep.errors import ResourceError

_PLAIN_TYPES = """
B300 GB300 B200 GB200 GH200 H200 H100 H800 H20 A100 A800 A40 A30 A16 A10G A10 A2 L40S L40 L20 L4 L2
V100S V100 P100 P40 P4 T4G T4 M60 M40 K80 K40
RTX5090 RTX5080 RTX5070Ti RTX5070 RTX5060Ti RTX5060 RTX4090D RTX4090 RTX4080 RTX4070Ti RTX4070 RTX4060Ti RTX4060
RTX3090Ti RTX3090 RTX3080Ti RTX3080 RTX3070Ti RTX3070 RTX3060Ti RTX3060 RTX2080Ti RTX2080 RTX2070 RTX2060
GTX1660Ti GTX1660 GTX1650 GTX1080Ti GTX1080 GTX1070Ti GTX1070 GTX1060 TITANRTX TITANV TITANXp TITANX
RTXPRO6000 RTXPRO5000 RTXPRO4500 RTXPRO4000 RTX6000Ada RTX5000Ada RTX4500Ada RTX4000Ada
RTXA6000 RTXA5500 RTXA5000 RTXA4500 RTXA4000 RTXA2000 RTX8000 RTX6000 RTX5000 RTX4000 GB10
MI355X MI350X MI325X MI308X MI300X MI300A MI250X MI250 MI210 MI100 MI50 RX9070XT RX7900XTX RX7900XT
""".split()
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
    `AMD-Instinct-MI300X-OAM`. Unknown names are shortened by the same rules; an empty one has no types.

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
