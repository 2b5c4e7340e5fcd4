"""What it costs a placement that other sweeps of the machine see it: a claim and its return, alone and among others.

Run: python benchmarks/claims.py
"""

from __future__ import annotations

import fcntl
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.engines.local.claims import Claims

Row = tuple[str, str, str, str]

NODE = Node("local", cpus=64, memory=1 << 38, devices=tuple(Device(str(index)) for index in range(8)))
REQUEST = Resources((Bundle(cpu=4, gpu=1, memory=1 << 30),))
GANG = Resources((Bundle(cpu=4, gpu=1),) * 4)


def rows(directory: Path) -> list[Row]:
    """Return the figures for the table of `benchmarks/run.py`."""
    alone, gang = _placement_us(directory / "alone", 0), _placement_us(directory / "gang", 0, is_gang=True)
    among, floor = _placement_us(directory / "among", 8), _floor_us(directory)
    beside = f"a gang of 4 GPUs {gang:.0f} us; flock, a list of the directory and 500 bytes written: {floor:.0f} us"
    return [
        ("a placement's claim and its return, alone", f"{alone:.0f} us", "<= 200 us", beside),
        ("the same beside 8 other sweeps", f"{among:.0f} us", "", ""),
    ]


def _median_us(work: Callable[[int], object], times: int = 3000) -> float:
    spent = []
    for number in range(times):
        began = time.perf_counter()
        work(number)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1e6


def _placement_us(directory: Path, num_others: int, *, is_gang: bool = False) -> float:
    directory.mkdir()
    others = [Claims(directory, (NODE,), experiment=f"other-{number}") for number in range(num_others)]
    for number, other in enumerate(others[:4]):
        other.take("theirs", REQUEST, Placement((BundlePlacement("local", ((str(4 + number), 1.0),)),)))
    claims = Claims(directory, (NODE,), experiment="own")
    devices = range(4) if is_gang else range(1)
    placement = Placement(tuple(BundlePlacement("local", ((str(device), 1.0),)) for device in devices))
    request = GANG if is_gang else REQUEST

    def place(number: int) -> None:
        assert claims.take(number, request, placement)
        claims.give_back(number)

    try:
        return _median_us(place)
    finally:
        for one in (*others, claims):
            one.close()


def _floor_us(directory: Path) -> float:
    """Return the time of what cannot be left out of a claim and its return."""
    descriptor = os.open(directory / "floor", os.O_RDWR | os.O_CREAT)

    def work(number: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.listdir(directory)
        os.pwrite(descriptor, b"x" * 500, 0)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.pwrite(descriptor, b"x" * 500, 4096)

    try:
        return _median_us(work)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for what, measured, promised, beside in rows(Path(name)):
            print(f"{what:42s} {measured:>10s}   {promised:12s} {beside}")
