"""Whether somebody drives an experiment now, found out without touching its lock."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Driver", "find_driver"]

_CLOCK_SLACK_S = 2.0  # start times of processes are counted in ticks since a boot time that is known to the second


@dataclass(frozen=True, slots=True)
class Driver:
    """Who drove an experiment last.

    Attributes:
        started: UTC epoch seconds.
        is_alive: whether it still drives; None: it ran on another machine, whose processes are not seen from here.
    """

    pid: int
    host: str
    started: float
    is_alive: bool | None


def find_driver(lock: Path) -> Driver | None:
    """Return who drove the experiment of a lock file last; None when nobody has, or nobody knows.

    The lock itself is not tried: a reader that held it for a moment could keep a driver from starting.
    """
    try:
        note = json.loads(lock.read_text(encoding="utf-8"))
        driver = Driver(int(note["pid"]), str(note.get("host", "")), float(note.get("started", 0.0)), None)
    except (OSError, ValueError, TypeError, KeyError):  # none, or it is just being written
        return None
    if driver.host and driver.host != socket.gethostname():
        return driver
    return Driver(driver.pid, driver.host, driver.started, _is_driving(driver, lock))


def _is_driving(driver: Driver, lock: Path) -> bool:
    """Whether the process is there, is that one and no later one of the same number, and holds the lock file open."""
    process = Path("/proc") / str(driver.pid)
    if not process.exists():
        return False
    began = _began(process)
    if began is not None and driver.started and began > driver.started + _CLOCK_SLACK_S:
        return False
    try:
        wanted = lock.stat()
        descriptors = list(os.scandir(process / "fd"))
    except PermissionError:  # somebody else's process: it is taken for the driver
        return True
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            found = descriptor.stat()
        except OSError:  # closed meanwhile
            continue
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            return True
    return False


def _began(process: Path) -> float | None:
    """Return when a process was started, in UTC epoch seconds; None when it cannot be read."""
    try:
        fields = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines() if "btime" in line)
        return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, IndexError, ValueError):
        return None
