"""A stream socket that is never waited for: between driver and workers, and a supervisor and a group's ranks."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Any

from sweep.core.trial import Outcome
from sweep.worker import wire
from sweep.worker.channel import receive_from

_STRAY = (
    "the trial's process, or one that it has started, wrote into the socket over which it reports. Write only to files "
    "and descriptors that the trial has opened itself"
)
_READ_BYTES = 1 << 16  # above 128 KB each buffer is mapped anew by malloc


class Link:
    """One end of a socket: messages are cut out of what is read; what cannot be written at once is kept.

    Attributes:
        problem: what came is no message, which ended the stream; None: all were.
    """

    __slots__ = ("_frames", "_on_full", "_unsent", "is_open", "problem", "socket")

    def __init__(
        self, ours: socket.socket, on_full: Callable[[Link, bool], None] | None = None, *, is_workers: bool = False
    ) -> None:
        """Take over a socket.

        Args:
            on_full: called with True when the socket takes no more for now, with False when everything is written.
            is_workers: user code may write into the other end.
        """
        ours.setblocking(False)
        self.socket = ours
        self.is_open = True
        self.problem: Outcome | None = None
        self._frames = wire.Frames(is_workers=is_workers)
        self._unsent = bytearray()
        self._on_full = on_full

    def send(self, message: wire.Message) -> None:
        """Write a message without ever waiting; a worker that is gone is found out elsewhere."""
        if not self.is_open:
            return
        data = wire.frame(message)
        if not self._unsent:
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                sent = 0
            except (BrokenPipeError, ConnectionResetError):
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._say_full(True)
        self._unsent += data

    def close(self) -> None:
        """Close the socket."""
        self.is_open = False
        self.socket.close()

    @property
    def mask(self) -> int:
        """What to poll its descriptor for."""
        return select.POLLIN if self.is_empty else select.POLLIN | select.POLLOUT

    @property
    def is_empty(self) -> bool:
        """Whether everything is written."""
        return not self._unsent or not self.is_open

    def flush(self) -> None:
        """Write more of what was kept."""
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent[:_READ_BYTES])]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._unsent.clear()
        self._say_full(False)

    def _say_full(self, is_full: bool) -> None:
        if self._on_full is not None:
            self._on_full(self, is_full)

    def receive(self) -> list[Any]:
        """Read once and return the messages that are complete; `is_open` becomes False at the end of the stream."""
        messages: list[Any] = []
        self._cut(self._read(), messages)
        return messages

    def drain(self) -> list[Any]:
        """Return everything that a worker which is gone, or idle, has written."""
        messages: list[Any] = []
        while data := self._read():
            self._cut(data, messages)
        return messages

    def _cut(self, data: bytes, messages: list[Any]) -> None:
        try:
            messages += self._frames.feed(data)
        except wire.StrayBytesError as error:
            self.is_open = False
            text = f"{_STRAY} ({error})"
            self.problem = Outcome("FAILED", text, class_name=type(error).__name__)

    def _read(self) -> bytes:
        """Read once; empty: there is nothing now, or at the end of the stream."""
        if not self.is_open:
            return b""
        try:
            data = receive_from(self.socket, _READ_BYTES)
        except BlockingIOError:
            return b""
        self.is_open = bool(data)
        return data
