"""How many files and processes the kernel allows this process: the driver takes what it may, a trial gets what was set.

The soft limit of descriptors (`ulimit -n`) is raised in the driver, its fork server and its supervisors, whose need
grows with the trials at a time. A trial finds it as the user had it: programs that use `select()` rely on a small one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Iterator

from sweep.accelerators.host import control_groups
from sweep.errors import ResourceError

MOST_FILES = 65_536
_LEAST = 16  # descriptors for a sweep of one trial at a time: record, lock, epoll, three processes, logs
_RESERVE = 16  # for what is open for a moment: log files, checkpoints that are deleted, the user's callbacks
_FEW_PROCESSES = 128
_original: int | None = None  # the user's soft limit, while it is raised here or in an ancestor
_num_raised = 0
_lock = threading.Lock()


class Raised:
    """Raises this process's soft limit of descriptors while it is open; several may be open, on any thread."""

    def __init__(self) -> None:
        global _num_raised, _original
        self._is_open = True
        with _lock:
            _num_raised += 1
            if _num_raised == 1:
                _original = _soft()
                raise_files()

    def close(self) -> None:
        """Give it back, if this is the last; may be called again."""
        global _num_raised, _original
        with _lock:
            if not self._is_open:
                return
            self._is_open = False
            _num_raised -= 1
            if not _num_raised:
                give_back()
                _original = None


def raise_files() -> None:
    """Raise the soft limit to what the hard one allows, up to 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _raised(hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _raised(hard: int) -> int:
    return MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)


def set_original(soft: int) -> None:
    """Say in a descendant of the driver what the user's soft limit is."""
    global _original
    _original = soft


def users_limit() -> int:
    """Return the soft limit as the user had it."""
    return _soft() if _original is None else _original


def give_back() -> None:
    """Set the soft limit to the user's, unless it was changed since it was raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _original is not None and soft == _raised(hard) and _original != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_original, hard))


def _soft() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def num_free() -> int:
    """Return how many more descriptors this process may open."""
    soft = _soft()
    if soft == resource.RLIM_INFINITY:
        return MOST_FILES
    try:
        return max(0, soft - len(os.listdir("/proc/self/fd")) + 1)  # the listing itself holds one
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return 0
        raise


def keep_reserve(number: int) -> None:
    """Refuse so many more descriptors where few would stay for what is open for a moment.

    Raises:
        OSError: EMFILE, as if there was none at all.
    """
    soft = _soft()
    if num_free() - number < (_RESERVE if soft == resource.RLIM_INFINITY else min(_RESERVE, soft // 5)):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def is_table_full() -> bool:
    """Whether this process has so many files open that another piece of work would hardly find room."""
    soft = _soft()
    try:
        lowest = os.dup(0)
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    os.close(lowest)
    return soft != resource.RLIM_INFINITY and lowest > soft - _LEAST


def refuse_too_few() -> None:
    """Refuse to begin a sweep with so few descriptors left that not even one trial at a time could run.

    Raises:
        ResourceError: says how many are open, and the limit.
    """
    free, soft = num_free(), _soft()
    if free < _LEAST:
        raise ResourceError(
            f"this process may have {soft} files open (ulimit -n {soft}), and {soft - free} are; a sweep needs at "
            f"least {_LEAST} more, and 2 for each further trial at a time. Raise the limit (ulimit -n 1024), or close "
            "files before the sweep."
        )


def refusal(error: OSError) -> ResourceError:
    """Return what is raised when not even the first process can be made."""
    return ResourceError(
        f"no process can be started: the kernel allows no more {describe_shortage(error)}. A sweep needs one that "
        "imports modules, and two for each trial at a time. Raise the limit, or end other programs."
    )


def describe_shortage(error: OSError) -> str:
    """Return what is short when the kernel refused a process or a descriptor, and by which limit."""
    match error.errno:
        case errno.EMFILE | errno.ETOOMANYREFS:
            return f"descriptors (ulimit -n {_soft()})"
        case errno.ENFILE:
            return "descriptors of the whole machine (fs.file-max)"
        case errno.EAGAIN:
            return "processes" + next((text for _, text in process_limits()), "")
        case errno.ENOMEM:
            return "memory for processes"
    return error.strerror or str(error)


def are_processes_few() -> bool:
    """Whether so few processes and threads are allowed that each counts which is not a trial's."""
    return any(most < _FEW_PROCESSES for most, _ in process_limits())


def process_limits() -> Iterator[tuple[int, str]]:
    """Give what limits the number of processes, in words, too: the user's limit, and those of control groups from the
    innermost outwards."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        yield soft, f" (ulimit -u {soft})"
    for group in control_groups("pids"):
        with contextlib.suppress(OSError, ValueError):
            most = int((group / "pids.max").read_text())
            yield most, f" (pids.max {most} of the control group)"
