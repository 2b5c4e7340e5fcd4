"""What Slurm says of its jobs: its commands, run as processes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from sweep.accelerators.gpu_types import labels_of
from sweep.core.resources import Device, Node, parse_bytes
from sweep.errors import ExperimentError

_COMMAND_S = 60.0  # that a command may take; a busy controller takes seconds
# Of the driver's variables, those that say what a job has: of another one, or of another node of it.
_OF_A_JOB = re.compile(r"(SLURM|SRUN|SALLOC)_(?!CONF$)|(CUDA|HIP|ROCR)_VISIBLE_DEVICES$|GPU_DEVICE_ORDINAL$")


def outer_environ() -> dict[str, str]:
    """Return the variables of this process without what they say of a job."""
    return {name: value for name, value in os.environ.items() if not _OF_A_JOB.match(name)}


def call(*command: str) -> str:
    """Return what a command of Slurm prints.

    Raises:
        ExperimentError: it fails, or takes longer than a busy controller.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            env=outer_environ(),
            timeout=_COMMAND_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ExperimentError(f"Slurm does not answer: {command[0]} took longer than {_COMMAND_S:g} s.") from error
    if done.returncode:
        lines = [line.partition("error: ")[2] or line for line in done.stderr.splitlines() if line[:4] != "Try "]
        raise ExperimentError(f"{command[0]} of Slurm failed: {last_line(lines)}.")
    return done.stdout


def last_line(lines: Sequence[str]) -> str:
    """Return the last of what was said."""
    return next((line.strip().rstrip(".") for line in reversed(lines) if line.strip()), "it said nothing")


def shape_of(job: str) -> Node:
    """Return what a job has asked for, as Slurm says it."""
    told = call("scontrol", "show", "job", "--oneliner", job)
    amounts = re.search(r"TRES=cpu=(\d+)(?:,mem=([\d.]+[KMGT]))?", told)
    gpus = re.search(r"\bTres\w+=\S*?\bgpu[:=](?:([^:=,\s]+)[:=])?(\d+)", told)
    of_type = (gpus and gpus[1]) or ""
    number = int(gpus[2]) if gpus else 0
    devices = tuple(Device(str(index), type=of_type, labels=labels_of(of_type)) for index in range(number))
    memory = parse_bytes(f"{amounts[2]}iB") if amounts and amounts[2] else 0
    return Node(cpus=float(amounts[1]) if amounts else 1.0, memory=memory, devices=devices)


def limits_of(job: str) -> dict[str, tuple[str, ...]]:
    """Return by host what a job has of memory and of GPUs, for a step there that is to have all of it."""
    told = call("scontrol", "show", "job", "--details", "--oneliner", job)
    limits: dict[str, tuple[str, ...]] = {}
    for names, mebibytes, gres in re.findall(r"\bNodes=(\S+) CPU_IDs=\S+ Mem=(\d+) GRES=(\S*)", told):
        number = sum(int(count) for count in re.findall(r"\bgpu:(?:[^:,(]+:)?(\d+)", gres))
        gpus = f"--gres=gpu:{number}" if number else "--gres=none"
        memory = (f"--mem={mebibytes}M", f"--export=ALL,SLURM_MEM_PER_NODE={mebibytes}")
        hosts = call("scontrol", "show", "hostnames", names).split()
        limits |= dict.fromkeys(hosts, (gpus, *(memory if int(mebibytes) else ())))
    return limits
