"""Which TPU chips this machine has and which host of which slice it is: by PCI bus, environment, metadata server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sweep.accelerators.tpu import GENERATIONS, Generation
from sweep.core.resources import Device

Fetch = Callable[[str], str | None]
"""Answers an attribute of the metadata server by its key; None: there is no such attribute. May raise anything."""

_GOOGLE = "0x1ae0"
# PCI device of Google -> generation. Network cards and disks of Google's machines have the same vendor. v2 and v3 share
# a device and differ in the subsystem, which is named behind it.
_GENERATIONS = {
    "0x0027/0x004e": "v2",
    "0x0027/0x004f": "v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "v7x",
}
_OLD_DEVICE = "0x0027"

# By its number: outside of Google's machines the name is not known, and looking it up may take long.
_METADATA_ADDRESS = "169.254.169.254"
_METADATA_PATH = "/computeMetadata/v1/instance/attributes/"
_FLAVOR = {"Metadata-Flavor": "Google"}  # in request and response: each side recognises the other by it
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TpuHost:
    """Which host of which slice a machine is; what is empty or None is unknown.

    Attributes:
        worker_id: its position among the hosts of its slice.
        slice_name: equal on all hosts of a slice.
        topology: of the slice, `4x4`.
        accelerator_type: the slice's pod type, `v6e-16`.
        hostnames: names or addresses of the hosts of the slice, in the order of their worker ids.
    """

    worker_id: int | None = None
    slice_name: str = ""
    topology: str = ""
    accelerator_type: str = ""
    hostnames: tuple[str, ...] = ()


def detect(root: str | os.PathLike[str] = "/", environ: Mapping[str, str] | None = None) -> tuple[Device, ...]:
    """Return the TPU chips that this process may use, in the order of the PCI bus; none on a machine without.

    A chip counts when it is on the PCI bus and the machine has device files for chips. Device files alone are none: a
    GPU that is handed to a virtual machine has one in `/dev/vfio` too. `TPU_VISIBLE_CHIPS` of the environment is
    respected (or `TPU_VISIBLE_DEVICES`, its older name), in its order; entries that name no chip are left out.

    Args:
        root: of the file system.
        environ: the environment; None: that of this process.
    """
    environ = os.environ if environ is None else environ
    found = {
        str(index): Device(
            f"tpu{index}", "tpu", generation.type, visible=str(index), labels=generation.labels, vendor="google"
        )
        for index, generation in enumerate(_generations(Path(root)))
    }
    parent = environ.get("TPU_VISIBLE_CHIPS", environ.get("TPU_VISIBLE_DEVICES"))
    if parent is None:
        return tuple(found.values())
    names = dict.fromkeys(name.strip() for name in parent.split(","))
    return tuple(found[name] for name in names if name in found)


def describe(
    root: str | os.PathLike[str] = "/", environ: Mapping[str, str] | None = None, fetch: Fetch | None = None
) -> TpuHost:
    """Return which host of which slice this machine is, as far as that can be known.

    Each fact comes from the environment, as Kubernetes sets it. What is not there comes from the metadata server of
    Google's machines, unless `detect` would find no chip or `TPU_SKIP_MDS_QUERY` is set. A request may take a second,
    each is made once in the life of this process, and after a failure there are no more.

    Args:
        root: of the file system.
        environ: the environment; None: that of this process.
        fetch: instead of the metadata server.
    """
    environ = os.environ if environ is None else environ
    if "TPU_SKIP_MDS_QUERY" in environ or not _generations(Path(root)):
        fetch = dict[str, str]().get
    ask = _asking(fetch) if fetch else _server(environ.get("GCE_METADATA_IP") or _METADATA_ADDRESS)
    worker_id = environ.get("TPU_WORKER_ID") or ask("agent-worker-number")
    topology = environ.get("TPU_TOPOLOGY") or _attribute(ask("tpu-env"), "TOPOLOGY")
    hostnames = environ.get("TPU_WORKER_HOSTNAMES")
    return TpuHost(
        worker_id=int(worker_id) if worker_id.strip().isdecimal() else None,
        slice_name=environ.get("TPU_NAME") or ask("instance-id"),
        topology=topology.strip().lower(),
        accelerator_type=environ.get("TPU_ACCELERATOR_TYPE") or ask("accelerator-type"),
        hostnames=_names(hostnames) if hostnames else _endpoints(ask("worker-network-endpoints")),
    )


def ask_metadata_server(key: str, *, address: str = _METADATA_ADDRESS, limit_s: float = 1.0) -> str | None:
    """Return an attribute of this machine, or None if it has no such attribute.

    Args:
        key: for instance `accelerator-type`.
        address: host, or host:port.
        limit_s: how long the server may take for each piece of its answer.

    Raises:
        OSError: there is no answer in time, or not that of a metadata server.
    """
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(address, timeout=limit_s)
    try:
        connection.request("GET", f"{_METADATA_PATH}{key}", headers=_FLAVOR)
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES).decode("utf-8", "replace").strip()
        status, flavor = answer.status, answer.headers.get("Metadata-Flavor", "")
    except HTTPException as error:
        raise ConnectionError(f"{address} is no metadata server: {error!r:.100}") from error
    finally:
        connection.close()
    if status not in (200, 404) or flavor.lower() != "google":
        raise ConnectionError(f"{address} is no metadata server: it answered {status} {body[:100]!r}")
    return body if status == 200 else None


def _asking(fetch: Fetch) -> Callable[[str], str]:
    """Return what asks a metadata server: once for each key, and for nothing more after a failure."""
    is_lost = False

    @cache
    def ask(key: str) -> str:
        nonlocal is_lost
        try:
            return "" if is_lost else fetch(key) or ""
        except Exception:  # whatever is wrong on the way to the server: a sweep runs without knowing its slice
            is_lost = True
            return ""

    return ask


@cache
def _server(address: str) -> Callable[[str], str]:
    return _asking(lambda key: ask_metadata_server(key, address=address))


def _generations(root: Path) -> list[Generation]:
    """Return the generation of each chip that processes may open."""
    found: list[Generation] = []
    for directory in sorted((root / "sys/bus/pci/devices").glob("*")) if _has_device_files(root) else ():
        device = _read(directory / "device")
        if device == _OLD_DEVICE:
            device += f"/{_read(directory / 'subsystem_device')}"
        if device in _GENERATIONS and _read(directory / "vendor") == _GOOGLE:
            found.append(GENERATIONS[_GENERATIONS[device]])
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip().lower()
    except OSError:  # the device is gone, or not for us
        return ""


def _has_device_files(root: Path) -> bool:
    """Whether a process could open a chip: a container sees the PCI bus of its machine, but only files it was given."""
    files = (root / "dev").glob("accel*"), (root / "dev/accel").glob("accel*"), (root / "dev/vfio").glob("*")
    return any(re.fullmatch(r"(accel)?\d+", path.name) for group in files for path in group)


def _attribute(text: str, name: str) -> str:
    """Return one value of `tpu-env`, a text of lines such as `TOPOLOGY: '4x4'`."""
    match = re.search(rf"^\s*{name}\s*:\s*(.*?)\s*$", text, re.MULTILINE)
    return match[1].strip("'\"") if match else ""


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _endpoints(text: str) -> tuple[str, ...]:
    """Return the hosts of `worker-network-endpoints`: names, or in its older form `name:id:address` each."""
    return tuple(name.rpartition(":")[2] for name in _names(text))
