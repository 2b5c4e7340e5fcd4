"""Whether a driver runs an experiment now, found out without touching its lock."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.record.layout import RECORD_MARK
from sweep.record.proc import stat_of

_RENEWED_S = 30.0  # a driver whose record is shared writes ten times in that
_CLOCK_SLACK_S = 2.0  # the clock may have been set since the process was started


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver that ran an experiment last.

    Attributes:
        started: UTC epoch seconds.
        is_alive: whether it still runs; None: it ran on another machine, whose processes are not seen from here, and
            neither ended in order nor renewed its lease within half a minute.
    """

    pid: int
    host: str
    started: float
    is_alive: bool | None


def find_driver(lock: Path) -> Driver | None:
    """Return the last driver of the experiment of a lock file; None when it is not known.

    The lock itself is not tried: a reader that held it for a moment could keep a driver from starting.
    """
    try:
        note = json.loads(lock.read_text(encoding="utf-8"))
        driver = Driver(int(note["pid"]), str(note.get("host", "")), float(note.get("started", 0.0)), None)
    except (OSError, ValueError, TypeError, KeyError):  # none, or it is just being written
        return None
    if driver.host and driver.host != socket.gethostname():
        is_fresh = not note.get("ended") and _renewed_ago_s(lock.parent / RECORD_MARK, driver) < _RENEWED_S
        return replace(driver, is_alive=False if note.get("ended") else is_fresh or None)
    return replace(driver, is_alive=_is_driving(driver, lock))


def _renewed_ago_s(lease: Path, driver: Driver) -> float:
    """Return how long ago a driver on another machine wrote that it lives, by the clocks of both."""
    try:
        said = json.loads(lease.read_text(encoding="utf-8"))
        is_its = (said["host"], said["pid"]) == (driver.host, driver.pid)
        return abs(time.time() - float(said["wall"])) if is_its else math.inf
    except (OSError, ValueError, TypeError, KeyError):
        return math.inf


def _is_driving(driver: Driver, lock: Path) -> bool:
    """Whether the process is there, is that one and no later one of the same number, and holds the lock file open."""
    try:
        ticks = int(stat_of(driver.pid)[19])
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        if driver.started and booted + ticks / os.sysconf("SC_CLK_TCK") > driver.started + _CLOCK_SLACK_S:
            return False
        wanted = lock.stat()
        for descriptor in list(os.scandir(f"/proc/{driver.pid}/fd")):
            with suppress(OSError):  # closed meanwhile
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    except PermissionError:  # another user's process: it is taken for the driver
        return True
    except OSError:
        return False
    return False
