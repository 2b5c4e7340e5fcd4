"""What of this machine's processors and memory this process may use: what its CPU affinity, its control groups and its
batch job leave of them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_MEMORY_FILES = (  # limit, use, and what of that is only cached, in both versions of control groups
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Give the directories of this process's control groups for a controller, of both versions, from the innermost
    outwards."""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                base = root / "sys/fs/cgroup" / (controller if controllers else "")
                yield from (base / str(one).lstrip("/") for one in (Path(path), *Path(path).parents))


def cpus(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> float:
    """Return how many CPUs this process may use, a whole number of at least 1.

    Args:
        environ: holds what Slurm says of the job.
        root: where `proc` and `sys` lie; another one in tests.
    """
    found = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for group in control_groups("cpu", root):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with contextlib.suppress(OSError, ValueError):  # not this version, or no limit ("max")
                quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
                found += [quota // period] if quota > 0 else []
    return float(max(1, min([*found, *_slurms(environ)[:1]])))


def memory(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Return how many bytes of memory this process may use; arguments as of `cpus`."""
    import psutil

    limits = [limit for _, limit in memory_of_groups(root)]
    return min([int(psutil.virtual_memory().total), *limits, *_slurms(environ)[1:]])


def _slurms(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return how many CPUs, and bytes of memory if it says so, Slurm has for this process: of what its job or step has
    on the node an equal part for each of the step's tasks there. Empty outside a job, and on the node that `salloc`
    was typed on."""
    number = {name: int(text) for name, text in environ.items() if name.startswith("SLURM_") and text.isdecimal()}
    if "SLURM_CPUS_ON_NODE" not in number:
        return ()
    cpus = number["SLURM_CPUS_ON_NODE"]
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", environ.get("SLURM_STEP_TASKS_PER_NODE", ""))  # such as 2(x3),1
    by_node = [int(count) for count, times in counts for _ in range(int(times or 1))]
    tasks = dict(enumerate(by_node)).get(number.get("SLURM_NODEID", 0), 1)
    mebibytes = number.get("SLURM_MEM_PER_NODE") or number.get("SLURM_MEM_PER_CPU", 0) * cpus  # 0: the whole node's
    return (cpus // tasks, *([(mebibytes << 20) // tasks] if mebibytes else []))


def memory_of_groups(root: Path = Path("/")) -> Iterator[tuple[int, int]]:
    """Give how many bytes of memory are in use and how many may be, of each control group with a limit, from the
    innermost outwards."""
    for group in control_groups("memory", root):
        for limit, use, cached in _MEMORY_FILES:
            with contextlib.suppress(OSError, ValueError):  # not this version, or no limit ("max")
                most = int((group / limit).read_text())
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                yield int((group / use).read_text()) - int(stat[cached]), most
