"""Waiting for room on a full disk, in a trial's process: explained, ended by a stop, over as soon as there is room.

What was half written is deleted before, so that the room is there for the record and for others.
"""

from __future__ import annotations

import io
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from sweep.core.resources import format_bytes
from sweep.record.space import few_inodes, free_bytes, lacks_space

_LOOK_S = 0.2
_FIRST_S, _LAST_S = 0.5, 10.0  # between two tries where the room says nothing (a quota): growing from, up to
_SPARE_BYTES = 1 << 16  # for directories and a manifest
_FULL_BYTES = 1 << 20  # with less free, an error that says nothing of the disk may come from there


class DiskWait:
    """The wait of one trial for room.

    Args:
        directory: where it wants to write.
        say: tells the driver why the trial waits; an empty text: it does not any more.
        wait: waits for so many seconds, or less; raises when the trial is asked to stop.
    """

    def __init__(self, directory: str, say: Callable[[str], None], wait: Callable[[float], None]) -> None:
        self._directory = directory
        self._say = say
        self._wait = wait
        self._num_tries = 0
        self._said = ""

    def wait(self, what: str, needed: int = 0) -> None:
        """Return when it is worth trying again.

        Args:
            what: is to be written.
            needed: its bytes, as far as they are known.
        """
        free = free_bytes(self._directory)
        if not self._said:
            inodes = few_inodes(self._directory)
            left = "" if free is None else f", {format_bytes(free)} free"
            if inodes is not None:  # bytes may be free: ENOSPC does not say which of the two
                left = f", {inodes} inodes free, and each file takes one (df -i)"
            size = f" of {format_bytes(needed)}" if needed else ""
            self._said = f"waits for disk space: {what}{size} does not fit into {self._directory}{left}"
            self._say(self._said)
        # Trials that try together fill the disk and fail together.
        patience_s = random.SystemRandom().uniform(0.7, 1) * min(_FIRST_S * 2**self._num_tries, _LAST_S)
        self._num_tries += 1
        began = time.monotonic()
        while True:
            self._wait(_LOOK_S)
            now = free_bytes(self._directory)
            has_room = now is not None and free is not None and now > max(free, needed + _SPARE_BYTES)
            if has_room or time.monotonic() - began >= patience_s:
                return

    def close(self) -> None:
        """It was written, or is given up."""
        if self._said:
            self._said = ""
            self._say("")


def is_full(directory: str) -> bool:
    """Whether an error that says nothing of the disk may have come from there: libraries that write by themselves
    (torch among them) do not say why they failed."""
    free = free_bytes(directory)
    return free is not None and free < _FULL_BYTES


class PatientFile(io.FileIO):
    """Where a trial's prints go: on a full disk they wait for room instead of failing the code that prints.

    Attributes:
        room_of: returns how the running trial waits; None: nothing runs that could, and what does not fit is dropped.
    """

    room_of: Callable[[], DiskWait | None] = staticmethod(lambda: None)

    def write(self, data: Any) -> int:
        """Write some bytes and return how many."""
        room: DiskWait | None = None
        try:
            while True:
                try:
                    return super().write(data)
                except OSError as error:
                    if not lacks_space(error):
                        raise
                    room = room or self.room_of()
                    if room is None:
                        return len(data)
                    room.wait("what it printed")
        finally:
            if room is not None:
                room.close()


def open_streams(first: dict[str, Any], room_of: Callable[[], DiskWait | None]) -> None:
    """Make `sys.stdout` and `sys.stderr` anew, such that they wait for room, whatever a trial before made of them.

    Args:
        first: what they were at the first call, which notes them here; what an import has put in their place stays.
    """
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = first.setdefault(name, getattr(sys, name))
        if type(stream) is io.TextIOWrapper and not stream.closed and stream.fileno() == number:
            raw = PatientFile(number, "w", closefd=False)
            raw.room_of, raw.name = room_of, f"<{name}>"
            is_raw = isinstance(stream.buffer, io.RawIOBase)
            stream = io.TextIOWrapper(
                raw if is_raw else io.BufferedWriter(raw),
                encoding=stream.encoding,
                errors=stream.errors,
                newline="\n",
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, f"__{name}__", stream)
        setattr(sys, name, stream)
