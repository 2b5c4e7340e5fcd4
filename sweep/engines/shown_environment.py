"""Change what the kernel shows as the environment of this process, `/proc/PID/environ`, and of what it forks.

The kernel shows the memory into which it wrote the variables when the program began, whatever became of `os.environ`
since. What is forked inherits that memory. So a variable that may change later is started with room for that, and its
bytes are written over; where the rest is, there are zeros, which count as empty entries.
"""

from __future__ import annotations

import ctypes
import os

from sweep.record.proc import stat_of

_ROOM = 4096  # bytes, as long as a path may be
_START, _END = 47, 48  # places of the memory's bounds among the fields of `stat`, from the state on

_places: dict[str, tuple[int, int]] = {}  # name -> address of its value, and bytes with room


def with_room(directory: str) -> str:
    """Return a path of the same directory that is long enough to be written over with any other."""
    return directory + "/" * (_ROOM - len(os.fsencode(directory)))


def show(name: str, value: str) -> bool:
    """Set a variable, which this program was started with by `with_room`, in `os.environ` and for the kernel.

    Args:
        value: empty: the variable is removed from `os.environ`, and shown as empty.

    Returns:
        Whether the kernel shows it; it does not where that memory was written over (programs that set their title do).
    """
    if value:
        os.environ[name] = value
    else:
        os.environ.pop(name, None)
    data, head = os.fsencode(value), os.fsencode(name) + b"="
    fields = stat_of("self")
    start, end = int(fields[_START]), int(fields[_END])
    if not start < end:
        return False
    if name not in _places:
        shown = b"\0" + ctypes.string_at(start, end - start)
        at = shown.find(b"\0" + head)
        if at < 0:
            return False
        size = shown.index(b"\0", at + 1) - at - 1 - len(head)
        _places[name] = (start + at + len(head), size)
    place, size = _places[name]
    is_there = start <= place - len(head) and place + size < end
    if not is_there or len(data) > size or ctypes.string_at(place - len(head), len(head)) != head:
        return False
    ctypes.memmove(place, data.ljust(size, b"\0"), size)
    return True
