"""Heartbeats: driver and agent each learn that the other is gone, whatever became of it.

Both send a byte every second over a socket of its own, from a thread of its own, so that neither a slow searcher nor a
busy disk stops it. A process that dies closes its socket, which the other sees at once. A machine or a network that is
gone says nothing: then the agent ends everything it has started when it has heard nothing for `heartbeat_timeout_s`,
and the driver, which stops sending two beats before that, counts the agent as lost after twice that time: no trial runs
twice at a time, also where only what the agent says is lost on the way.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

BEAT_S = 1.0
HEARTBEAT_TIMEOUT_S = 15.0
GONE = "the driver is gone"
_END_S = 20.0  # for an agent to end what it has started, before it ends without ceremony


@dataclass(slots=True, eq=False)
class _Peer:
    """One agent, as the driver knows it."""

    node: str
    socket: socket.socket
    heard: float  # when it last said something


class Heartbeats:
    """The driver's side, for all agents."""

    def __init__(self, heartbeat_timeout_s: float, lost: Callable[[str, str], None]) -> None:
        """Begin.

        Args:
            heartbeat_timeout_s: seconds without a word after which an agent ends what it runs.
            lost: called on another thread, once for each agent, with its node and with what happened.
        """
        self._timeout_s = heartbeat_timeout_s
        self._lost = lost
        self._peers: dict[int, _Peer] = {}
        self._lock = threading.Lock()
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="sweep-heartbeat", daemon=True)
        self._thread.start()

    def add(self, node: str, peer: socket.socket) -> None:
        """Begin to beat for the agent of a node; the socket is taken over."""
        peer.setblocking(False)
        with self._lock:
            self._peers[peer.fileno()] = _Peer(node, peer, time.monotonic())
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"\0")

    def drop(self, node: str) -> None:
        """Stop to beat for a node without a word."""
        with self._lock:
            for descriptor in [number for number, peer in self._peers.items() if peer.node == node]:
                self._peers.pop(descriptor).socket.close()

    def close(self) -> None:
        """Stop for all: every agent ends what it runs."""
        self._is_closed = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"\0")
        self._thread.join()
        for peer in self._peers.values():
            peer.socket.close()
        os.close(self._wake)
        os.close(self._waker)

    def _run(self) -> None:
        next_beat = time.monotonic()
        while not self._is_closed:
            now = time.monotonic()
            if now >= next_beat:
                self._beat(now)
                next_beat = now + BEAT_S
            with self._lock:
                descriptors = [*self._peers, self._wake]
            poll = select.poll()
            for descriptor in descriptors:
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll(1000 * max(0.0, next_beat - time.monotonic())):
                if descriptor == self._wake:
                    os.read(self._wake, 1 << 16)
                else:
                    self._hear(descriptor)

    def _beat(self, now: float) -> None:
        with self._lock:
            peers = list(self._peers.items())
        for descriptor, peer in peers:
            silent_s = now - peer.heard
            if silent_s > 2 * self._timeout_s:
                self._end(descriptor, f"nothing was heard of its agent for {silent_s:.0f} s")
            elif silent_s <= max(1.5 * BEAT_S, self._timeout_s - 2 * BEAT_S):
                with contextlib.suppress(OSError):  # full or gone: found out by what is heard
                    peer.socket.send(b".")

    def _hear(self, descriptor: int) -> None:
        with self._lock:
            peer = self._peers.get(descriptor)
        if peer is None:
            return  # dropped meanwhile
        try:
            said = peer.socket.recv(1 << 12)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said:
            peer.heard = time.monotonic()
        else:
            self._end(descriptor, "its agent ended")

    def _end(self, descriptor: int, why: str) -> None:
        with self._lock:
            peer = self._peers.pop(descriptor, None)
        if peer is not None:
            peer.socket.close()
            self._lost(peer.node, why)


def keep_heartbeat(peer: socket.socket, heartbeat_timeout_s: float, over: Callable[[str], None]) -> None:
    """Hold the agent's side, on a thread: `over` is called with the reason when it ends; this process ends soon after.

    Args:
        peer: taken over.
        over: is to end everything and this process; where it does not within 20 s, the process is ended here, and the
            processes below notice that by themselves.
    """
    peer.setblocking(False)

    def run() -> None:
        why = _await_end(peer, heartbeat_timeout_s)
        peer.close()
        over(why)
        time.sleep(_END_S)
        os._exit(1)

    threading.Thread(target=run, name="sweep-heartbeat", daemon=True).start()


def _await_end(peer: socket.socket, heartbeat_timeout_s: float) -> str:
    """Return why the other side is gone, when it is."""
    heard = time.monotonic()
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    while True:
        with contextlib.suppress(BlockingIOError):
            try:
                peer.send(b".")
            except (BrokenPipeError, ConnectionError):
                return GONE
        if poll.poll(1000 * max(0.01, min(BEAT_S, heard + heartbeat_timeout_s - time.monotonic()))):
            try:
                if not peer.recv(1 << 12):
                    return GONE
                heard = time.monotonic()
            except BlockingIOError:
                continue
            except OSError:
                return GONE
            time.sleep(BEAT_S / 2)  # both sides send; one answer for each would be a storm
        elif time.monotonic() - heard > heartbeat_timeout_s:
            return f"nothing was heard of the driver for {heartbeat_timeout_s:g} s"
