"""Find processes by parent, session and marker, and end whole trees of them."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from sweep.record.proc import children_of, read, scan, stat_of

_PR_SET_CHILD_SUBREAPER = 36
_MAP_PRIVATE = 2
_CLOSE_S = 5.0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_mapped: int | None = None  # address of the page of `map_file`


def become_subreaper() -> None:
    """Make orphans among this process's descendants its own children, so that none escapes."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def map_file(path: str) -> None:
    """Have the kernel name a file in `/proc/PID/maps` of this process and of all that is forked from it, until a fork
    runs another program or this is called again.

    The page is never read, and no descriptor stays open.

    Args:
        path: empty: none any more.
    """
    global _mapped
    if _mapped is not None:
        _libc.munmap(ctypes.c_void_p(_mapped), mmap.PAGESIZE)
        _mapped = None
    if path:
        with contextlib.suppress(OSError), open(path, "rb") as file:  # it is gone: nothing is named
            found = _libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), 0, _MAP_PRIVATE, file.fileno(), ctypes.c_long(0))
            _mapped = None if found == ctypes.c_void_p(-1).value else found


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process, parents before children."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = children_of(waiting.pop())
        found += children
        waiting += children
    return found


def fork(run: Callable[[], object]) -> int:
    """Fork a process that does this, and nothing else of what this one does; return its pid.

    Raises:
        OSError: the kernel allows none.
    """
    pid = os.fork()
    if pid == 0:
        try:
            run()
        except BaseException:  # nothing of this process's own may go on running in the copy
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(70)
    return pid


def open_descriptors() -> set[int]:
    """Return the descriptors of this process."""
    next_free = os.dup(0)  # which the listing has, too
    os.close(next_free)
    return {int(name) for name in os.listdir("/proc/self/fd")} - {next_free}


def pidfd_of(child: int) -> int:
    """Return a pidfd of a child that was just made.

    Raises:
        OSError: no descriptor is free; the child is gone.
    """
    try:
        return os.pidfd_open(child)
    except OSError:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def send(number: int, *pids: int) -> None:
    """Send a signal to processes, and to process groups, which are negative; those that are gone are fine."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_descendants(spare: Iterable[int] = ()) -> None:
    """Kill and reap all descendants of this process, which must be a subreaper.

    Whole process groups are killed first: that is atomic, while killing one by one loses against processes that fork
    faster than one can look. Killed parents hand their children to this process, so it is over when none is left.

    Args:
        spare: children that stay, with all their descendants.
    """
    spared = set(spare)
    own_group = os.getpgrp()
    while True:
        roots = [pid for pid in children_of(os.getpid()) if pid not in spared]
        if not roots:
            # The list of children may lag behind a process that is being handed over; wait() does not.
            if spared or not _has_children():
                return
            time.sleep(0.0005)
            continue
        victims = list(roots)
        for root in roots:
            victims += descendants(root)
        groups = set()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                groups.add(os.getpgid(pid))
        send(signal.SIGKILL, *(-group for group in groups - {own_group} - spared), *victims)
        for root in roots:
            # A root that cannot die, because it hangs in the kernel, blocks here, and nothing is released.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(root, 0)


def end_tree(root: int) -> None:
    """Kill a process that is a subreaper, and all its descendants but this process; for a caller that is its child.

    It is stopped first, so that it starts nothing more, and killed last: until then its orphans are handed to it.
    """
    send(signal.SIGSTOP, root)
    own = {os.getpid()}
    while victims := [pid for pid in descendants(root) if pid not in own and not is_gone(pid)]:
        send(signal.SIGSTOP, *victims)  # all stand still before the first dies: none can outrun this by forking
        send(signal.SIGKILL, *victims)
        os.sched_yield()
    send(signal.SIGKILL, root)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def end_marked(sessions: Iterable[int], markers: Iterable[bytes]) -> None:
    """Kill what is left of something whose supervisor and fork server are both gone: the processes of these sessions,
    and those whose environment at their start holds all these `NAME=value` entries."""
    wanted, led = set(markers), set(sessions)

    def is_left(pid: int, session: int) -> bool:
        if pid == os.getpid() or is_gone(pid):
            return False
        with contextlib.suppress(OSError):
            return session in led or (bool(wanted) and wanted <= set(read(f"/proc/{pid}/environ").split(b"\0")))
        return False

    while living := [pid for pid, (_, session) in scan().items() if is_left(pid, session)]:
        send(signal.SIGKILL, *living)
        os.sched_yield()


def is_gone(pid: int) -> bool:
    """Whether a process has ended; it may not have been reaped."""
    try:
        return stat_of(pid)[0] in (b"Z", b"X")
    except OSError:
        return True


def ask_for_stacks(pid: int) -> None:
    """Have a process of this package write the stacks of its threads into its log; a stopped one is woken for it."""
    send(signal.SIGUSR1, pid)
    send(signal.SIGCONT, pid)


def await_ready(descriptors: Iterable[int], patience_s: float | None) -> set[int]:
    """Return those descriptors that can be read, or whose process has ended, once there is one, or after so long."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(None if patience_s is None else 1000 * patience_s)}


def ended_of(pidfds: Iterable[int], patience_s: float) -> Iterator[int]:
    """Give the pidfds of processes that have ended, as they end, for so long."""
    left, give_up = set(pidfds), time.monotonic() + patience_s
    while left and (ready := await_ready(left, max(0.0, give_up - time.monotonic()))):
        left -= ready
        yield from ready


def await_end(pid: int) -> None:
    """Wait for a process, which is no child of this one, to end by itself, then kill it."""
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        if not await_ready([descriptor], _CLOSE_S):
            send(signal.SIGKILL, pid)
            await_ready([descriptor], _CLOSE_S)
        os.close(descriptor)
