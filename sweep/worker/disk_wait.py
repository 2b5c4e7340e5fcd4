"""Waiting for room on a full disk, in a trial's process: explained, ended by a stop, over as soon as there is room.

What was half written is deleted before, so that the room is there for the record and for others. Of several trials
that wait, one at a time tries again: together they would fill the disk and fail together.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from sweep.core.resources import format_bytes
from sweep.record.space import few_inodes, free_bytes, lacks_space

_LOOK_S = 0.2
_FIRST_S, _LAST_S = (
    0.5,
    10.0,
)  # between two tries where a quota is full, or the reason is not known: growing from, up to
_POINTLESS_S = 60.0  # between two where the room is known not to suffice
_SPARE_BYTES = 1 << 16  # for directories and a manifest
_SCARCE = 8  # times what was written: others may have freed that much between the error and the look at the disk
_MAX_DOUBTS = 2


class DiskWait:
    """The wait of one trial for room.

    Args:
        directory: where it wants to write.
        say: tells the driver why the trial waits; an empty text: it does not any more.
        wait: waits for so many seconds, or less; raises when the trial is asked to stop.
        shared: a directory by which the trials of an experiment take turns; empty: they do not.
    """

    def __init__(
        self, directory: str, say: Callable[[str], None], wait: Callable[[float], None], *, shared: str = ""
    ) -> None:
        self._directory = directory
        self._say = say
        self._wait = wait
        self._shared = shared
        self._turn = -1
        self._num_tries = 0
        self._num_doubts = 0
        self._said = ""

    def wait(self, what: str, needed: int = 0) -> None:
        """Return when it is worth trying again.

        Args:
            what: is to be written.
            needed: its bytes, as far as they are known.
        """
        self._let_go()
        free = free_bytes(self._directory)
        inodes = few_inodes(self._directory)
        left = "" if free is None else f", {format_bytes(free)} free"
        if inodes is not None:  # bytes may be free: ENOSPC does not say which of the two
            left = f", {inodes} inodes free, and each file takes one (df -i)"
        size = f" of {format_bytes(needed)}" if needed else ""
        if not self._said:
            self._said = f"waits for disk space: {what}{size} does not fit into {self._directory}{left}"
            self._say(self._said)
        patience_s = min(_FIRST_S * 2**self._num_tries, _LAST_S)
        self._num_tries += 1
        began = time.monotonic()
        while True:
            self._wait(_LOOK_S)
            waited_s = time.monotonic() - began
            now = free_bytes(self._directory)
            if now is None or free is None or now == free:
                is_time = waited_s >= (_POINTLESS_S if free is not None and free < needed else patience_s)
            elif now >= needed + _SPARE_BYTES:
                is_time = waited_s >= _FIRST_S
            else:
                is_time = waited_s >= _POINTLESS_S
            if is_time and self._take_turn():
                return

    def is_doubtful(self, written: int) -> bool:
        """Whether an error that says nothing of the disk may have come from there: libraries that write by themselves
        (torch among them) do not say why they failed. Twice on a disk that is nearly full; then it is what it says.

        Args:
            written: bytes, up to the error.
        """
        free = free_bytes(self._directory)
        if free is None or free > _SCARCE * (written + _SPARE_BYTES) or self._num_doubts == _MAX_DOUBTS:
            return False
        self._num_doubts += 1
        return True

    def close(self) -> None:
        """It was written, or is given up."""
        self._let_go()
        if self._said:
            self._said = ""
            self._say("")

    def _take_turn(self) -> bool:
        if not self._shared:
            return True
        try:
            self._turn = os.open(self._shared, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._let_go()
            return error.errno not in (errno.EAGAIN, errno.EACCES)  # where nothing can be locked there are no turns
        return True

    def _let_go(self) -> None:
        if self._turn >= 0:
            with contextlib.suppress(OSError):  # processes that the trial forked meanwhile hold it, too
                fcntl.flock(self._turn, fcntl.LOCK_UN)
            os.close(self._turn)
            self._turn = -1


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


def make_patient(room_of: Callable[[], DiskWait | None]) -> None:
    """Make `sys.stdout` and `sys.stderr` of this process wait for room, unless they are something else already."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper or not _is_plain(stream.buffer, number):
            continue
        raw = PatientFile(number, "w", closefd=False)
        raw.room_of = room_of
        raw.name = f"<{name}>"
        patient = _like(stream, raw)
        _kept.append(stream)
        setattr(sys, name, patient)
        setattr(sys, f"__{name}__", patient)


def restore_streams(first: dict[str, Any]) -> None:
    """Make `sys.stdout` and `sys.stderr` what they were before a trial replaced or closed them.

    Args:
        first: what they were at the first call, which notes them here.
    """
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = first.setdefault(name, getattr(sys, name))
        buffer = getattr(stream, "buffer", None)
        raw = getattr(buffer, "raw", buffer)
        if type(stream) is io.TextIOWrapper and type(raw) is PatientFile and stream.closed:
            again = PatientFile(number, "w", closefd=False)
            again.room_of, again.name = raw.room_of, f"<{name}>"
            stream = first[name] = _like(stream, again)
            setattr(sys, f"__{name}__", stream)
        setattr(sys, name, stream)


def _like(stream: io.TextIOWrapper, raw: io.FileIO) -> io.TextIOWrapper:
    """Return a stream that writes as another one does, to another file."""
    made = io.TextIOWrapper(
        raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    made.mode = "w"  # type: ignore[misc]  # as the interpreter does
    return made


_kept: list[Any] = []  # those before: others may hold them, and closing one would flush it


def _is_plain(buffer: Any, number: int) -> bool:
    raw = getattr(buffer, "raw", buffer)
    return type(raw) is io.FileIO and not raw.closed and raw.fileno() == number
