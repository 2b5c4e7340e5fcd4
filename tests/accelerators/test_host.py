"""What this process may use of the machine, read from control groups and variables that are made up."""

from __future__ import annotations

import os

import psutil
import pytest

from sweep.accelerators import host

MIB = 1 << 20
ALL = {"sched_getaffinity": lambda pid: set(range(64)), "cpu_count": lambda: 64}


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Make a machine of 64 CPUs and 1 GiB."""
    for name, function in ALL.items():
        monkeypatch.setattr(os, name, function)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"total": 1024 * MIB}))


def grouped(root, membership, files):
    """Return a root directory in which this process is in control groups with such files."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for place, text in files.items():
        file = root / "sys/fs/cgroup" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 64),
        ({"cpu.max": "200000 100000"}, 2),
        ({"slurm/job_7/step_0/cpu.max": "max 100000", "slurm/job_7/cpu.max": "650000 100000"}, 6),
        ({"slurm/job_7/step_0/cpu.max": "800000 100000", "slurm/job_7/cpu.max": "400000 100000"}, 4),
        ({"slurm/job_7/step_0/cpu.max": "400000 100000", "slurm/job_7/cpu.max": "800000 100000"}, 4),
        ({"slurm/job_7/cpu.max": "1000 100000"}, 1),
        ({"slurm/job_8/cpu.max": "100000 100000"}, 64),
    ],
)
def test_the_smallest_quota_between_the_own_control_group_and_the_root_counts(tmp_path, files, cpus):
    root = grouped(tmp_path, "0::/slurm/job_7/step_0\n", files)
    assert host.cpus({}, root) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 64), ("300000", 3)])
def test_so_it_does_with_control_groups_of_version_1(tmp_path, quota, cpus):
    files = {"cpu/user/cpu.cfs_quota_us": quota, "cpu/user/cpu.cfs_period_us": "100000"}
    root = grouped(tmp_path, "3:cpu,cpuacct:/user/session\n2:memory:/\n0::/\n", files)
    assert host.cpus({}, root) == cpus


def test_the_affinity_counts_where_it_is_less(tmp_path, monkeypatch):
    root = grouped(tmp_path, "0::/\n", {"cpu.max": "800000 100000"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 9})
    assert host.cpus({}, root) == 3


@pytest.mark.parametrize(
    ("membership", "files", "mebibytes"),
    [
        ("0::/job/step\n", {}, 1024),
        ("0::/job/step\n", {"job/memory.max": 300, "job/memory.current": 200, "job/step/memory.max": "max"}, 300),
        ("0::/job/step\n", {"job/step/memory.max": 400, "job/step/memory.current": 7, "memory.max": 9000}, 400),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": 1 << 43, "memory/a/memory.usage_in_bytes": 1}, 1024),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": 500, "memory/a/memory.usage_in_bytes": 1}, 500),
    ],
)
def test_memory_is_the_least_of_the_machines_and_of_every_level_of_control_groups(
    tmp_path, membership, files, mebibytes
):
    written = {name: str(size if size == "max" else size * MIB) for name, size in files.items()}
    stats = {f"{name.rpartition('/')[0]}/memory.stat": "inactive_file 5\ntotal_inactive_file 6" for name in files}
    root = grouped(tmp_path, membership, written | stats)
    assert host.memory({}, root) == mebibytes * MIB
    assert all(used % MIB in (MIB - 5, MIB - 6) for used, _ in host.memory_of_groups(root))


BATCH = {"SLURM_CPUS_ON_NODE": "6", "SLURM_CPUS_PER_TASK": "2", "SLURM_TASKS_PER_NODE": "3,1", "SLURM_NODEID": "0"}


@pytest.mark.parametrize(
    ("environ", "cpus", "mebibytes"),
    [
        (BATCH, 6, 1024),
        (BATCH | {"SLURM_MEM_PER_NODE": "600"}, 6, 600),
        (BATCH | {"SLURM_MEM_PER_CPU": "50"}, 6, 300),
        (BATCH | {"SLURM_MEM_PER_NODE": "0"}, 6, 1024),
        (BATCH | {"SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_MEM_PER_NODE": "600"}, 6, 600),
        (BATCH | {"SLURM_STEP_TASKS_PER_NODE": "3,1", "SLURM_MEM_PER_NODE": "600"}, 2, 200),
        (BATCH | {"SLURM_STEP_TASKS_PER_NODE": "3,1", "SLURM_NODEID": "1"}, 6, 1024),
        (BATCH | {"SLURM_STEP_TASKS_PER_NODE": "1,2(x3)", "SLURM_NODEID": "3"}, 3, 1024),
        (BATCH | {"SLURM_STEP_TASKS_PER_NODE": "9"}, 1, 1024),
        (BATCH | {"SLURM_CPUS_ON_NODE": "128", "SLURM_MEM_PER_NODE": "999999"}, 64, 1024),
        # Where salloc was typed nothing says how many of that node's CPUs are the job's: none are.
        ({"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "SLURM_MEM_PER_NODE": "600"}, 64, 1024),
    ],
)
def test_of_a_job_each_task_of_a_step_has_its_part_and_a_batch_script_all(tmp_path, environ, cpus, mebibytes):
    assert host.cpus(environ, tmp_path) == cpus
    assert host.memory(environ, tmp_path) == mebibytes * MIB
