"""Where agents meet their driver: a listening socket that lets in only who knows the key, before anything is unpickled.

    agent ──connects──> driver
    agent <─challenge── driver      both ways, HMAC with the key (multiprocess.connection)
    agent ───hello────> driver      JSON: versions, node, what the connection is for
    agent <──welcome─── driver      it is let in

What follows is pickled and not encrypted: the network between the machines must be one's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from multiprocess.connection import Connection, answer_challenge, deliver_challenge

from sweep.errors import ExperimentError

VERSION: str = sys.modules["sweep"].__version__  # this module's own package, so it is loaded

LINK, HEARTBEAT = "link", "heartbeat"  # what a connection is for
_HANDSHAKE_S = 20.0
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Invitation:
    """What an agent must be given to find its driver and to be let in; `key` is 32 secret bytes in hexadecimal."""

    host: str
    port: int
    key: str = field(repr=False)
    node: str

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Invitation:
        """Return what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Hello:
    """What an agent says of itself before anything else."""

    node: str
    purpose: str
    version: str = VERSION
    python: str = field(default_factory=lambda: ".".join(platform.python_version_tuple()[:2]))


@dataclass(frozen=True)
class Guest:
    """One connection of an agent that was let in; its socket blocks."""

    hello: Hello
    socket: socket.socket


class Listener:
    """Listens for agents, on threads of its own, and hands each connection that knows the key to `admit`."""

    def __init__(self, host: str, admit: Callable[[Guest], None]) -> None:
        """Listen on the interface of an address.

        Raises:
            ExperimentError: nothing can listen there.
        """
        self.key = secrets.token_hex(32)
        self._admit = admit
        self._is_closed = False
        try:
            self._listener = socket.create_server((host, 0), backlog=1024)
        except OSError as error:
            raise ExperimentError(
                f"no agent could reach this driver: {host} cannot be listened on ({error.strerror or error}). Expected "
                "an address of this machine that the other nodes reach."
            ) from error
        self.host, self.port = self._listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._accept, name="sweep-listener", daemon=True)
        self._thread.start()

    def invitation(self, node: str) -> Invitation:
        """Return what the agent of a node must be given."""
        return Invitation(self.host, self.port, self.key, node)

    def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(0.1)  # no descriptor is free; the next agent may be luckier
                continue
            threading.Thread(target=self._receive, args=(peer,), name="sweep-handshake", daemon=True).start()

    def _receive(self, peer: socket.socket) -> None:
        """Let one connection in, or close it."""
        guest = _let_in(peer, bytes.fromhex(self.key))
        if guest is None or self._is_closed:
            peer.close()
        else:
            self._admit(guest)


def _let_in(peer: socket.socket, key: bytes) -> Guest | None:
    """Return the connection of an agent that knows the key; None: it does not, or says nothing sensible in time."""
    with _connection(peer) as connection:
        try:
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            said = json.loads(connection.recv_bytes(_MOST_BYTES))
            hello = Hello(**{name: said[name] for name in Hello.__dataclass_fields__})
            connection.send_bytes(b"{}")
        except Exception:  # whatever a stranger sends: wrong key, no JSON, silence, a port scan
            return None
    return Guest(hello, peer)


def dial(invitation: Invitation, purpose: str) -> socket.socket:
    """Connect an agent to its driver; the socket blocks.

    Raises:
        ExperimentError: nobody answers there, or the key is not the one of who does.
    """
    where = f"{invitation.host}:{invitation.port}"
    try:
        peer = socket.create_connection((invitation.host, invitation.port), _HANDSHAKE_S)
    except OSError as error:
        raise ExperimentError(f"the driver at {where} cannot be reached: {error.strerror or error}.") from error
    peer.settimeout(None)
    key = bytes.fromhex(invitation.key)
    try:
        with _connection(peer) as connection:
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
            connection.send_bytes(json.dumps(asdict(Hello(invitation.node, purpose))).encode())
            connection.recv_bytes(_MOST_BYTES)
    except Exception as error:  # what multiprocess raises for a wrong key or an early end differs by its version
        peer.close()
        raise ExperimentError(f"the driver at {where} did not let this agent in: {error!r}.") from error
    return peer


@contextlib.contextmanager
def _connection(peer: socket.socket) -> Iterator[Any]:
    """Give a connection for the handshake, over a copy of the socket's descriptor; one that takes too long is cut."""

    def cut() -> None:
        with contextlib.suppress(OSError):  # it is over
            peer.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_HANDSHAKE_S, cut)
    timer.daemon = True
    timer.start()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small messages are sent at once
    try:
        with Connection(os.dup(peer.fileno())) as connection:
            yield connection
    finally:
        timer.cancel()
