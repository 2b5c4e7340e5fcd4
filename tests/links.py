"""A link between two machines that can be cut: what is forwarded, is not when it is told so."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent_processes import AgentProcesses

from sweep.core.resources import Node
from sweep.engines.cluster.handshake import Invitation

__all__ = ["Linked", "Links"]


class Links:
    """One link for each of some nodes, on which their agents reach the driver, whichever port that listens on now.

    Attributes:
        ports: by node, on loopback: where its agent must call.
    """

    def __init__(self, names: list[str], driver: Callable[[], int]) -> None:
        """Begin to listen; `driver` returns the port at which the driver is reached."""
        self._links = {name: _Link(driver) for name in names}
        self.ports = {name: link.port for name, link in self._links.items()}

    def cut(self, name: str) -> None:
        """Close the connections of a node: both sides see it."""
        self._links[name].cut()

    def silence(self, name: str) -> None:
        """Carry nothing any more: no side is told."""
        self._links[name].is_silent = True

    def heal(self, name: str) -> None:
        """Carry again; what was sent meanwhile arrives now, as TCP would have it."""
        self._links[name].is_silent = False

    def close(self) -> None:
        """Close everything."""
        for link in self._links.values():
            link.close()


class _Link:
    def __init__(self, driver: Callable[[], int]) -> None:
        self.is_silent = False
        self._driver = driver
        self._is_closed = False
        self._must_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}  # each of a pair leads to the other
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        self._must_cut = True

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()
        self._drop_all()
        self._listener.close()

    def _run(self) -> None:
        while not self._is_closed:
            if self._must_cut:
                self._must_cut = False
                self._drop_all()
            wanted = [] if self.is_silent else [self._listener, *self._peers]
            for ready in select.select(wanted, [], [], 0.02)[0]:
                if ready is self._listener:
                    self._accept()
                elif ready in self._peers:
                    self._carry(ready)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._driver()))
        except OSError:  # there is no driver now
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[one] = other

    def _carry(self, one: socket.socket) -> None:
        """Pass on what has come; an end ends the other direction only."""
        other = self._peers[one]
        try:
            data = one.recv(1 << 16)
            if data:
                other.sendall(data)
                return
            other.shutdown(socket.SHUT_WR)
        except OSError:
            data = b""
            for end in (one, other):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        del self._peers[one]
        if other not in self._peers:
            one.close()
            other.close()

    def _drop_all(self) -> None:
        for pair in list(self._peers.items()):  # one that has ended in one direction is named by the other alone
            for one in pair:
                one.close()
        self._peers.clear()


class Linked(AgentProcesses):
    """Agents that reach their driver by `Links` alone, of this process or another one."""

    def __init__(self, nodes: list[Node], ports: dict[str, int], gate: Path, **options: object) -> None:
        """Note in the file `gate` where the driver listens, and send agents to `ports`."""
        super().__init__(nodes, **options)  # type: ignore[arg-type]
        self._ports, self._gate = ports, gate

    def summon(self, node: str, invitation: Invitation) -> None:
        fresh = self._gate.with_name(f"gate-{os.getpid()}")
        fresh.write_text(str(invitation.port))
        fresh.replace(self._gate)
        super().summon(node, replace(invitation, port=self._ports[node]))
