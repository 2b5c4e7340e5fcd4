"""`sweep doctor`: whether this machine and the storage are fit for sweeps, and what former sweeps have left."""

from __future__ import annotations

import fcntl
import math
import os
import platform
import resource
import shlex
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import click

from sweep import __version__
from sweep.accelerators import inventory
from sweep.cli.options import storage_option
from sweep.cli.tables import emit, json_option
from sweep.core.literals import json_text
from sweep.core.resources import Node
from sweep.display.formats import clean
from sweep.engines.local.orphans import find_orphans
from sweep.errors import ConfigError, SweepError
from sweep.record.files import sync
from sweep.record.lock import mark_of_dead_driver
from sweep.record.reader import ExperimentReader, list_experiments
from sweep.storage.disks import disk_of
from sweep.storage.location import parse_storage
from sweep.worker.limits import process_limits

_PACKAGES = """numpy pandas optuna click rich psutil cloudpickle multiprocess torch lightning transformers accelerate
    jax tensorflow keras xgboost lightgbm scikit-learn ray wandb mlflow mlflow-skinny tensorboardX hydra-core plotly mcp
    optuna-dashboard""".split()
_GB, _ROUNDS, _SLOW_S = 1e9, 20, 0.05


@click.command(short_help="Check this machine and the storage.")
@json_option()
@storage_option()
def doctor(storage: str | None, as_json: bool) -> int:
    """Look at devices, limits, versions, what former sweeps have left, and whether the storage keeps what is written
    to it, how fast: it writes and removes a file there, and changes nothing else. The exit code is 1 if something is
    wrong; what to do stands beside it.

    \b
    Examples:
      sweep doctor
      sweep doctor --storage /data/sweeps --json
    """
    place = parse_storage(storage)
    if place.remote is not None:
        raise ConfigError(f"{place} is not a directory of this machine; `sweep doctor` checks directories.")
    (node,) = inventory.detected()
    devices = [f"{device.kind} {device.id} {device.type}".strip() for device in node.devices]
    findings = [*_limits(node), *_storage(place.local_root), *_left(place.local_root)]
    findings += [_finding("devices", node.gpu_note)] if node.gpu_note else []
    versions = {"python": platform.python_version(), "sweep": __version__}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    is_well = all(one["state"] != "wrong" for one in findings)
    if as_json:
        emit(json_text({"is_well": is_well, "versions": versions, "devices": devices, "findings": findings}) + "\n")
        return 0 if is_well else 1
    click.echo(f"versions: {', '.join(f'{name} {version}' for name, version in versions.items())}")
    click.echo(f"devices: {node.cpus:g} CPUs, {', '.join(map(clean, devices)) or 'no accelerator'}")
    for one in findings:
        click.echo(clean(f"{one['state']:<6} {one['check']}: {one['found']}{' -> ' * bool(one['do'])}{one['do']}"))
    return 0 if is_well else 1


def _finding(check: str, found: str, do: str = "", state: str = "wrong") -> dict[str, str]:
    """Return what was found; it is well where nothing is to be done."""
    return {"check": check, "state": state if do else "ok", "found": found, "do": do}


def _limits(node: Node) -> Iterator[dict[str, str]]:
    import psutil

    hard, memory = resource.getrlimit(resource.RLIMIT_NOFILE)[1], psutil.virtual_memory()
    files = hard if hard >= 0 else math.inf
    processes, where = min(process_limits(), default=(math.inf, ""))
    shared = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    found = f"{_size(memory.available)} of {_size(memory.total)} available, {_size(node.memory)} allowed"
    for check, state, number, least, text, do in (
        ("open files", "wrong", files, 1024, f"at most {files}", "raise the hard limit: ulimit -Hn 65536"),
        ("processes", "wrong", processes, 256, f"at most {processes}{where}", "allow more: a trial has two, or more"),
        ("/dev/shm", "note", shared, _GB, f"{_size(shared)} free", "PyTorch's data loaders may need more (--shm-size)"),
        ("memory", "note", memory.available, _GB, found, "end other programs, or the kernel may end trials"),
    ):
        yield _finding(check, "no limit" if number == math.inf else text, do if number < least else "", state)


def _storage(root: Path) -> Iterator[dict[str, str]]:
    place = next(path for path in (root, *root.parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".sweep-doctor-", dir=place) as directory:
            took = [_probe(Path(directory, str(number))) for number in range(_ROUNDS)]
        free = shutil.disk_usage(place).free
    except OSError as error:
        other = "free room there, or name a directory that you may write with --storage or SWEEP_STORAGE"
        yield _finding("storage", f"{place} cannot be used: {error.strerror or error}", other)
        return
    middle = statistics.median(took)
    found = f"write, flush, rename and lock take {middle * 1e3:.1f} ms, {max(took) * 1e3:.1f} ms at most"
    slow = "a local disk is faster: reports are flushed to it every second" if middle > _SLOW_S else ""
    yield _finding("storage", f"{root} on {disk_of(place)}: {found}", slow, "note")
    yield _finding("disk", f"{_size(free)} free", "free some room" if free < _GB else "")


def _probe(path: Path) -> float:
    """Write, flush, rename and lock a file as a driver does; return the seconds."""
    began = time.perf_counter()
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
    os.replace(path, f"{path}.renamed")
    sync(path.parent)
    return time.perf_counter() - began


def _left(root: Path) -> Iterator[dict[str, str]]:
    for pid, experiment in find_orphans(mark_of_dead_driver).items():
        end = f"`sweep resume {shlex.quote(experiment)}` ends it and goes on, or: kill {pid}"
        yield _finding("orphans", f"process {pid} is left of a killed driver of {experiment}", end)
    for path in list_experiments(root):
        try:
            if (reader := ExperimentReader(path)).state() == "crashed":
                yield _finding("experiments", f"{path} has crashed", reader.state_hint(), "note")
        except SweepError as error:
            yield _finding("experiments", str(error), "bring a copy back, or move it out of the storage")


def _size(number: float) -> str:
    return f"{number / _GB:.1f} GB"
