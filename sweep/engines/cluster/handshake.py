"""Where agents meet their driver: a listening socket that lets in only who knows the key, before anything is unpickled.

    agent ──connects──> driver      TLS 1.3; the certificate has the fingerprint that the agent was invited with
    agent ───hello────> driver      JSON: the key, versions, node, what the connection is for
    agent <──welcome─── driver      it is let in

What follows is pickled, over the same connection.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import platform
import secrets
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sweep.engines.cluster.certificate import client_context, fingerprint, server_context
from sweep.errors import ExperimentError

VERSION: str = sys.modules["sweep"].__version__  # this module's own package, so it is loaded

LINK, HEARTBEAT = "link", "heartbeat"  # what a connection is for
_HANDSHAKE_S = 20.0
_MOST_BYTES = 1 << 16
_WELCOME = b"+"
_RECORD_BYTES = 1 << 14  # of TLS
_IDLE_S, _PROBE_S = 30, 10  # after so much silence the kernel asks whether the other machine is there, again and again
_LOST_S = 300.0  # a driver may be busy so long and read nothing; without a limit the kernel waits for 15 min


@dataclass(frozen=True)
class Invitation:
    """What an agent must be given to find its driver, to know it, and to be let in.

    `key` is 32 secret bytes, `fingerprint` the SHA-256 of the driver's certificate, both in hexadecimal.
    """

    host: str
    port: int
    fingerprint: str
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
        self._context, self._fingerprint = server_context()
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
        return Invitation(self.host, self.port, self._fingerprint, self.key, node)

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
        try:
            with _encrypted(peer, self._context) as link:
                with link.makefile("rb") as lines:
                    said = json.loads(lines.readline(_MOST_BYTES))
                if not hmac.compare_digest(str(said["key"]), self.key):
                    raise ValueError("it has another key")
                guest = Guest(Hello(**{name: said[name] for name in Hello.__dataclass_fields__}), link)
                link.sendall(_WELCOME)
        except Exception:  # whatever a stranger sends: no TLS, wrong key, no JSON, silence, a port scan
            return
        if self._is_closed:
            link.close()
        else:
            self._admit(guest)


def dial(invitation: Invitation, purpose: str) -> socket.socket:
    """Connect an agent to its driver; the socket blocks.

    Raises:
        ExperimentError: nobody answers there, who does is not the driver, or does not know the key.
    """
    where = f"{invitation.host}:{invitation.port}"
    try:
        peer = socket.create_connection((invitation.host, invitation.port), _HANDSHAKE_S)
    except OSError as error:
        raise ExperimentError(f"the driver at {where} cannot be reached: {error.strerror or error}.") from error
    peer.settimeout(None)
    hello = asdict(Hello(invitation.node, purpose)) | {"key": invitation.key}
    try:
        with _encrypted(peer, client_context()) as link:
            if fingerprint(link.getpeercert(binary_form=True) or b"") != invitation.fingerprint:
                raise ValueError("its certificate is not the one of the invitation")
            link.sendall(json.dumps(hello).encode() + b"\n")
            if link.recv(1) != _WELCOME:
                raise ValueError("it closed the connection")
    except (OSError, ValueError) as error:
        raise ExperimentError(f"the driver at {where} did not let this agent in: {error}.") from error
    return link


def this_machine() -> tuple[str, str]:
    """Return what all processes that share a loopback interface agree in, and no others."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, str(os.stat("/proc/self/ns/net").st_ino)
    return socket.gethostname(), ""


def address_towards(host: str) -> str:
    """Return by which address of this machine packets to another one leave; nothing is sent. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


def keep_alive(peer: socket.socket, heartbeat_timeout_s: float) -> None:
    """Have the kernel keep a silent connection known to what lies between, and end one that leads nowhere.

    The heartbeat, which has a connection of its own, is always the first to know that a machine is gone.
    """
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S)
    lost_s = max(_LOST_S, 4 * heartbeat_timeout_s)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * lost_s))


class _EncryptedSocket(ssl.SSLSocket):
    """A socket of TLS that behaves like a plain one where nothing is there to read or no room to write."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Read once; a connection that broke has ended."""
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except OSError as error:
            if error.errno is None:  # the time is over that this socket was given
                raise
            return b""

    def send(self, data: Any, flags: int = 0) -> int:
        """Write as much as there is room for, a record at a time: of those OpenSSL writes all or nothing."""
        sent = 0
        with memoryview(data) as view:
            try:
                while sent < len(view):
                    sent += super().send(view[sent : sent + _RECORD_BYTES], flags)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not sent:
                    raise BlockingIOError from None
            except OSError as error:
                if error.errno is None:
                    raise
                with contextlib.suppress(OSError):
                    self.shutdown(socket.SHUT_RDWR)  # so that who reads meets the end
                raise BrokenPipeError(str(error)) from error
        return sent

    def shutdown(self, how: int) -> None:
        """Shut the connection down; a thread that waits in `recv` meets its end."""
        socket.socket.shutdown(self, how)  # the one of SSLSocket takes the encryption away


@contextlib.contextmanager
def _encrypted(peer: socket.socket, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """Give a connection as one of TLS for the handshake, which must not take too long; it is closed if that fails."""
    context.sslsocket_class = _EncryptedSocket
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small messages are sent at once
    link = context.wrap_socket(peer, context.protocol == ssl.PROTOCOL_TLS_SERVER, do_handshake_on_connect=False)

    def cut() -> None:
        with contextlib.suppress(OSError):  # it is over
            link.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_HANDSHAKE_S, cut)
    timer.daemon = True
    timer.start()
    try:
        link.do_handshake()
        yield link
    except BaseException:
        link.close()
        raise
    finally:
        timer.cancel()
