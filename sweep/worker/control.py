"""How a worker asks its host for a training group: a message and sockets over the descriptor that it was born with."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Sequence

__all__ = ["START_GROUP", "Control"]

START_GROUP = 100


class Control:
    """The worker's end of the socket to its host."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def start_group(self, ports: Sequence[socket.socket]) -> socket.socket:
        """Have the host await a `wire.GroupJob` over the returned socket; it keeps the ports for the group's life.

        Raises:
            OSError: the host is gone, or no descriptor is free.
        """
        ours, theirs = socket.socketpair()
        try:
            descriptors = [theirs.fileno(), *(port.fileno() for port in ports)]
            socket.send_fds(self._socket, [pickle.dumps((START_GROUP, 0, len(descriptors)), 5)], descriptors)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours
