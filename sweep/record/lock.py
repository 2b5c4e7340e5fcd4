"""One driver per experiment: a lock that is held for life and says by whom, and who that is for those who only look."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweep.errors import ExperimentError
from sweep.record.layout import RECORD_MARK

_ORPHANS_S = 10.0  # how long the processes of a driver that died may take to go
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_GLANCE_S = 0.2  # looking for a dead driver holds the lock for a moment
_RENEWED_S = 30.0  # a driver whose record is shared writes ten times in that


class DriverLock:
    """Hold an experiment directory for one driver.

    The lock is a `flock` whose descriptor the driver's supervisors inherit on purpose: while a process of a killed
    driver is left, the lock is held, and the next driver waits for it to go.

    Attributes:
        dead: mark of the driver that held it before and died with it; empty: that one let go, or there was none.

    Args:
        path: the lock file; created when missing.
        mark: names the process for good; whoever has none only looks after the files, and keeps what was noted.
        is_shared: several machines see the file. Their locks reach each other on NFS, CephFS, GPFS and Lustre mounted
            with `flock`; where there are none at all, whoever comes must look at the ownership (`storage/shared.py`).
        take_over: called with `dead` before this driver is noted: who is killed meanwhile leaves it to the next. And
            where processes of that one still hold the lock after ten seconds.

    Raises:
        ExperimentError: another driver holds it (names its pid and start time), or it cannot be written.
    """

    def __init__(
        self,
        path: Path,
        mark: str = "",
        *,
        is_shared: bool = False,
        take_over: Callable[[str], object] = lambda dead: None,
    ) -> None:
        self.path = path
        self._is_shared = is_shared
        self.dead = ""
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ExperimentError(
                f"{path} cannot be written: {error.strerror or error}. A sweep is continued where it lies, by a user "
                "who may write there: copy its directory to a place of yours, and resume it there with storage_path=."
            ) from error
        try:
            self._acquire(take_over if mark else None)
            self.dead = _dead_of(_note(path))
            if self.dead and mark:
                take_over(self.dead)
        except BaseException:
            os.close(self.fd)
            self.fd = -1
            raise
        self._is_driver = bool(mark)
        self._record = {"pid": os.getpid(), "started": time.time(), "host": socket.gethostname()}
        self._write(mark=mark or self.dead)

    def _write(self, **more: Any) -> None:
        self._record |= more
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, json.dumps(self._record).encode(), 0)

    def _acquire(self, take_over: Callable[[str], object] | None) -> None:
        began = time.monotonic()
        while not self._is_got():
            driver = find_driver(self.path)
            is_alive = driver is not None and driver.is_alive
            if time.monotonic() > began + (_GLANCE_S if is_alive else _ORPHANS_S):
                dead = _dead_of(_note(self.path))
                if take_over is None or driver is None or is_alive or not driver.is_here or not dead:
                    raise self._in_use(driver)
                take_over(dead)  # stopped (SIGSTOP), they do not see that their driver is gone
                take_over, began = None, time.monotonic() + _GLANCE_S - _ORPHANS_S
            time.sleep(0.02)

    def _is_got(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            has_none = self._is_shared and error.errno in _NO_LOCKS
            if not has_none and error.errno not in (errno.EAGAIN, errno.EACCES):
                raise ExperimentError(f"{self.path} cannot be locked: {error}. Use a local disk.") from error
            driver = find_driver(self.path) if has_none else None
            return has_none and (driver is None or not driver.is_alive or driver.pid == os.getpid())

    def _in_use(self, driver: Driver | None) -> ExperimentError:
        who, more = "which has not yet said who it is", ""
        if driver is not None:
            started = datetime.fromtimestamp(driver.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            who = f"pid {driver.pid}{'' if driver.is_here else f' on {driver.host}'}, started {started}"
            if driver.is_here and not driver.is_alive:
                who = f"processes left by pid {driver.pid}, which is gone"
            more = "" if driver.is_here else " If that machine is lost, its lock comes free after a while (NFS: 90 s)."
        return ExperimentError(
            f"{self.path.parent} is in use by another driver ({who}). Wait for it to end, or stop it with Ctrl-C.{more}"
        )

    def release(self) -> None:
        """Let go; processes that inherited the descriptor must be gone by now."""
        if self.fd >= 0:
            if self._is_driver:
                self._write(ended=time.time())
            with suppress(OSError):  # of a file system without locks
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            os.close(self.fd)
            self.fd = -1


def mark_of_dead_driver(path: Path) -> str:
    """Return the mark of the driver that died with a lock, which is free now; empty: there is none, or it is held."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return _dead_of(_note(path))
    except OSError:  # there is none, or it is held
        return ""


def _note(path: Path) -> dict[str, Any]:
    """Return what a lock file says, or an ownership; nothing where there is none, or while it is being written."""
    try:
        note = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _dead_of(note: dict[str, Any]) -> str:
    return "" if "ended" in note else str(note.get("mark", ""))


# --- for those who only look ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver that ran an experiment last.

    Attributes:
        started: UTC epoch seconds.
        is_alive: whether it still runs; None: it ran on another machine, whose processes are not seen from here, and
            neither ended in order nor renewed its ownership within half a minute.
    """

    pid: int
    host: str
    started: float
    is_alive: bool | None

    @property
    def is_here(self) -> bool:
        """Whether it ran on this machine."""
        return self.host in ("", socket.gethostname())


def find_driver(lock: Path) -> Driver | None:
    """Return the last driver of the experiment of a lock file; None when it is not known.

    The lock itself is not tried: a reader that held it for a moment could keep a driver from starting.
    """
    note = _note(lock)
    try:
        driver = Driver(int(note["pid"]), str(note.get("host", "")), float(note.get("started", 0.0)), None)
    except (ValueError, TypeError, KeyError):  # none, or it is just being written
        return None
    if driver.is_here:
        return replace(driver, is_alive=_is_driving(driver, lock))
    if note.get("ended"):
        return replace(driver, is_alive=False)
    said = _note(lock.parent / RECORD_MARK)
    is_its = (said.get("host"), said.get("pid")) == (driver.host, driver.pid)
    with suppress(KeyError, TypeError, ValueError):
        if is_its and abs(time.time() - float(said["wall"])) < _RENEWED_S:  # by the clocks of both machines
            return replace(driver, is_alive=True)
    return driver


def _is_driving(driver: Driver, lock: Path) -> bool:
    """Whether the process is there, and holds the lock file open."""
    try:
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
