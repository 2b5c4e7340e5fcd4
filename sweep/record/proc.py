"""What /proc says of processes. A descriptor is waited for a while: what cannot be seen would count as gone."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_PATIENCE_S = 1.0  # for a descriptor to become free


def read(path: str) -> bytes:
    """Return what a file of /proc says.

    Raises:
        OSError: the process is gone, is another user's, or no descriptor became free.
    """
    with _patiently(lambda: open(path, "rb", buffering=0)) as file:
        return bytes(file.read())


def stat_of(pid: int | str) -> list[bytes]:
    """Return the fields of a process's `stat`, from its state on, as proc(5) lists them.

    Raises:
        OSError: the process is gone.
    """
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def children_of(pid: int) -> list[int]:
    """Return the children of a process, those of all its threads; empty when it is gone."""
    found: list[int] = []
    try:
        threads = _patiently(lambda: os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return found
    for thread in threads:
        try:
            found += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
        except FileNotFoundError:
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                # A kernel built without CONFIG_PROC_CHILDREN.
                return [child for child, (parent, _) in scan().items() if parent == pid]
        except OSError:
            continue  # the thread ended meanwhile
    return found


def scan() -> dict[int, tuple[int, int]]:
    """Return parent and session of every process."""
    found = {}
    for name in _patiently(lambda: os.listdir("/proc")):
        if name.isdigit():
            with suppress(OSError):  # gone meanwhile
                fields = stat_of(name)
                found[int(name)] = (int(fields[1]), int(fields[3]))
    return found


def _patiently(look: Callable[[], T]) -> T:
    give_up = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return look()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() > give_up:
                raise
        time.sleep(0.01)
