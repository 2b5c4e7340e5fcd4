"""What the driver says of a GPU's memory and of its holders, read from a library that is made up."""

from __future__ import annotations

import os

import psutil
import pytest
from accelerators.test_gpu import GIB, MIB, FakeGpu, FakeNvml, NVMLError_LibraryNotFound, install

from sweep.accelerators.meter import Holder, MemoryUse, describe, read_memory
from sweep.core.resources import Device

__all__ = ["install"]  # a fixture

A, B = Device("GPU-a"), Device("GPU-b")
NAMES = {11: "python", 12: "Xorg"}


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    """Give processes names that are made up; those without one are gone."""

    class Process:
        def __init__(self, pid: int) -> None:
            if pid not in NAMES:
                raise psutil.NoSuchProcess(pid)
            self.pid = pid

        def name(self) -> str:
            return NAMES[self.pid]

    monkeypatch.setattr(psutil, "Process", Process)


def test_each_device_has_its_use_and_its_holders_with_the_largest_first(install):
    install(
        FakeNvml(
            FakeGpu("GPU-a", used=3 * GIB, processes=[(11, GIB), (13, None), (14, 2 * GIB)]),
            FakeGpu("GPU-b", total=80 * GIB, used=0),
        )
    )
    assert read_memory([A, B]) == {
        "GPU-a": MemoryUse(3 * GIB, 40 * GIB, (Holder(14, 2 * GIB), Holder(11, GIB, "python"), Holder(13, None))),
        "GPU-b": MemoryUse(0, 80 * GIB),
    }


def test_a_process_that_computes_and_draws_counts_once_with_the_larger_amount(install):
    device = FakeGpu("GPU-a", processes=[(11, GIB), (12, None)], graphics=[(11, 2 * GIB), (12, MIB), (0, GIB)])
    install(FakeNvml(device))
    use = (read_memory([A]) or {})["GPU-a"]
    assert use.processes == (Holder(11, 2 * GIB, "python"), Holder(12, MIB, "Xorg"))


@pytest.mark.parametrize(("is_old", "used"), [(False, MIB), (True, 601 * MIB)])
def test_what_the_driver_reserves_is_not_in_use_unless_an_old_one_cannot_tell(install, is_old, used):
    install(FakeNvml(FakeGpu("GPU-a", used=MIB, reserved=600 * MIB, processes=[(11, MIB)]), is_old=is_old))
    assert read_memory([A]) == {"GPU-a": MemoryUse(used, 40 * GIB, (Holder(11, MIB, "python"),))}


def test_an_instance_has_a_memory_of_its_own(install):
    part = FakeGpu("MIG-1", total=5 * GIB, used=GIB)
    install(FakeNvml(FakeGpu("GPU-a", instances=[None, part])))
    assert read_memory([Device("MIG-1")]) == {"MIG-1": MemoryUse(GIB, 5 * GIB)}


@pytest.mark.parametrize(
    "device",
    [
        *(Device(identity) for identity in ("0", "GPU-none", "GPU-lost", "GPU-mute")),
        Device("GPU-a", kind="tpu"),
        Device("GPU-a", vendor="amd"),
    ],
)
def test_a_device_that_the_driver_cannot_tell_of_is_left_out(install, device):
    install(FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-lost", is_lost=True), FakeGpu("GPU-mute", total=0)))
    assert read_memory([device]) == {}


@pytest.mark.parametrize("library", [None, FakeNvml(init_error=NVMLError_LibraryNotFound())])
def test_without_the_library_or_a_driver_there_is_nothing_to_read(install, library):
    install(library)
    assert read_memory([A]) is None


def test_a_process_that_may_not_be_looked_at_has_no_name(install, monkeypatch):
    def refuse(pid: int) -> None:
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr(psutil, "Process", refuse)
    install(FakeNvml(FakeGpu("GPU-a", processes=[(os.getpid(), MIB)])))
    assert (read_memory([A]) or {})["GPU-a"].processes == (Holder(os.getpid(), MIB),)


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([Holder(1234, int(3.1 * GIB), "python")], "pid 1234 (python) 3.1GiB"),
        ([Holder(1234, None, "python"), Holder(5)], "pid 1234 (python), pid 5"),
        ([], "of no process that the driver names"),
        ([Holder(pid, 512 * MIB) for pid in range(1, 6)], "pid 1 512MiB, pid 2 512MiB, pid 3 512MiB, 2 more"),
    ],
)
def test_who_holds_memory_is_said_in_a_sentence(processes, expected):
    use = MemoryUse(int(3.2 * GIB), 80 * GIB, tuple(processes))
    assert describe("GPU-a", use) == f"GPU-a still holds 3.2GiB of 80GiB, {expected}"
    assert use.fraction == int(3.2 * GIB) / (80 * GIB)
