"""The ends of an engine's sockets, for those that may block: a worker's, a supervisor's, the fork server's."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from sweep.errors import SweepError
from sweep.worker.wire import Frames, Message, StartGroup, StrayBytesError, decode, encode

_READ_BYTES = 1 << 16  # above 128 KB each buffer is mapped anew by malloc
_PACKET_BYTES = 1 << 18  # a packet is read whole or cut
_MAX_DESCRIPTORS = 250  # the kernel passes 253 at a time
_COUNT_BYTES = 2  # of their number, before a message


class ChannelClosed(SweepError):
    """The other side is gone."""


class Channel(Protocol):
    """How a session talks to its driver; `send` and `receive` raise ChannelClosed where the other side is gone."""

    def send(self, data: bytes) -> None:
        """Send what `frame` returned."""

    def receive(self) -> Any:
        """Wait for the next message."""

    def wait(self, seconds: float) -> bool:
        """Wait for a message, at most so long; whether `receive` has one, or will say that there will be none."""


class SocketChannel:
    """The worker's end of its socket: blocking, one thread at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._frames = Frames()
        self._ready: list[Any] = []

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def wait(self, seconds: float) -> bool:
        """Wait for something to read, at most so long; whether there is."""
        if self._ready:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def send(self, data: bytes) -> None:
        """Send what `frame` returned, whole."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed from error

    def receive(self) -> Any:
        """Wait for the next message."""
        while not self._ready:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except ConnectionResetError:
                continue  # the driver closed with a message of ours unread; what it had written still comes
            if not data:
                raise ChannelClosed
            self._ready += self._frames.feed(data)
        return self._ready.pop(0)


class Packets:
    """One end of a packet socket: whole messages, and descriptors beside them.

    Attributes:
        is_open: the other side has not closed it.
    """

    __slots__ = ("is_open", "socket")

    def __init__(self, ours: socket.socket) -> None:
        self.socket = ours
        self.is_open = True

    def close(self) -> None:
        """Close the socket."""
        self.is_open = False
        self.socket.close()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message.

        Raises:
            OSError: the other side is gone, takes no more at the moment, or no descriptor can be handed over.
        """
        socket.send_fds(self.socket, [len(descriptors).to_bytes(_COUNT_BYTES, "little") + encode(message)], descriptors)

    def receive(self) -> tuple[Any, list[int] | None]:
        """Wait for a message and its descriptors.

        The message is None, and `is_open` becomes False, where the other side is gone or has written no message. The
        descriptors are None where the kernel has dropped some, because this process may open no more.
        """
        message, data, descriptors = None, b"", list[int]()
        with contextlib.suppress(ConnectionResetError, StrayBytesError):
            data, descriptors, _, _ = socket.recv_fds(self.socket, _PACKET_BYTES, _MAX_DESCRIPTORS)
            message = decode(data[_COUNT_BYTES:]) if data else None
        self.is_open = message is not None
        if len(descriptors) == int.from_bytes(data[:_COUNT_BYTES], "little") or not self.is_open:
            return message, descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        return message, None

    def receive_all(self) -> list[Any]:
        """Return the messages that are there, of a socket that does not block; those of a dead peer, too."""
        messages: list[Any] = []
        while self.is_open:
            try:
                data = receive_from(self.socket, _READ_BYTES)
            except BlockingIOError:
                break
            self.is_open = bool(data)
            if data:
                messages.append(decode(data[_COUNT_BYTES:]))
        return messages


def receive_from(source: socket.socket, size: int) -> bytes:
    """Read once. A peer that died with messages of ours unread gives an error first, and then what it had written."""
    try:
        return source.recv(size)
    except ConnectionResetError:
        return source.recv(size)


def start_group(control: Packets, ports: Sequence[socket.socket]) -> socket.socket:
    """Have the supervisor await a `GroupJob` over the returned socket; it keeps the ports for the group's life.

    Raises:
        OSError: the supervisor is gone, or no descriptor is free.
    """
    ours, theirs = socket.socketpair()
    try:
        control.send(StartGroup(), [theirs.fileno(), *(port.fileno() for port in ports)])
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return ours
