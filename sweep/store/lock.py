"""One driver per experiment: a lock that is held for life and says by whom."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweep.errors import ExperimentError

__all__ = ["DriverLock"]

_ORPHANS_S = 10.0  # how long the processes of a driver that died may take to go


class DriverLock:
    """Hold an experiment directory for one driver.

    The lock is a `flock` whose descriptor the driver's trial hosts inherit on purpose: while a process of a killed
    driver is left, the lock is held, and the next driver waits for it to go.

    Args:
        path: the lock file; created when missing.

    Raises:
        ExperimentError: another driver holds it (names its pid and start time), or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ExperimentError(
                f"{path} cannot be written: {error.strerror or error}. A sweep is continued where it lies, by a user "
                "who may write there: copy its directory to a place of yours, and resume it there with storage_path=."
            ) from error
        try:
            self._acquire()
        except BaseException:
            os.close(self.fd)
            self.fd = -1
            raise
        record = {"pid": os.getpid(), "started": time.time(), "host": socket.gethostname()}
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, json.dumps(record).encode(), 0)

    def _acquire(self) -> None:
        give_up = time.monotonic() + _ORPHANS_S
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise ExperimentError(f"{self.path} cannot be locked: {error}. Use a local disk.") from error
            owner = self._owner()
            pid = int(owner.get("pid", 0))
            is_alive = pid > 0 and Path(f"/proc/{pid}").exists()
            if is_alive or time.monotonic() > give_up:
                started = datetime.fromtimestamp(owner.get("started", 0), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
                who = f"pid {pid}, started {started}" if is_alive else f"processes left by pid {pid}, which is gone"
                raise ExperimentError(
                    f"{self.path.parent} is in use by another driver ({who}). Wait for it to end, or stop it with "
                    f"Ctrl-C."
                )
            time.sleep(0.02)

    def _owner(self) -> dict[str, Any]:
        try:
            owner = json.loads(os.pread(self.fd, 4096, 0))
        except ValueError:  # the other driver is just writing it
            return {}
        return owner if isinstance(owner, dict) else {}

    def release(self) -> None:
        """Let go; processes that inherited the descriptor must be gone by now."""
        if self.fd >= 0:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            os.close(self.fd)
            self.fd = -1
