"""The driver's records of what runs: attempts, the sockets to their workers, and slots with the hosts' sockets."""

from __future__ import annotations

import contextlib
import pickle
import socket
from collections.abc import Callable
from typing import Any

from sweep.core.trial import Trial
from sweep.engines.exits import Outcome
from sweep.engines.nursery import Nursery, receive_from
from sweep.worker import wire

__all__ = ["Attempt", "Link", "Slot"]

_READ_BYTES = 1 << 18
_MESSAGE_BYTES = 1 << 16


class Attempt:
    """One start of a trial, from `Start` to `Released`."""

    __slots__ = (
        "attempt",
        "blockers",
        "is_killed",
        "kill_reason",
        "link",
        "outcome",
        "pid",
        "refusal",
        "slot",
        "token",
        "trial",
        "trial_id",
    )

    def __init__(self, token: int, trial: Trial) -> None:
        self.token = token
        self.trial = trial
        self.trial_id = trial.id
        self.attempt = trial.attempt
        self.slot: Slot | None = None
        self.link: Link | None = None  # once the job was sent
        self.outcome: Outcome | None = None  # the worker's last word
        self.pid = 0  # of the worker, once it has started
        self.is_killed = False
        self.kill_reason = ""
        self.refusal = ""  # why it could not be given a slot so far
        self.blockers: set[int] = set()  # slots whose idle worker holds devices of this one, and is being ended


class Link:
    """The socket to one worker: messages are cut out of what is read; what cannot be written at once is kept."""

    __slots__ = ("_frames", "_on_full", "_unsent", "attempt", "is_open", "socket")

    def __init__(self, ours: socket.socket, on_full: Callable[[Link, bool], None]) -> None:
        """Take over a socket.

        Args:
            on_full: called with True when the socket takes no more for now, with False when everything is written.
        """
        ours.setblocking(False)
        self.socket = ours
        self.attempt: Attempt | None = None
        self.is_open = True
        self._frames = wire.Frames()
        self._unsent = bytearray()
        self._on_full = on_full

    def send(self, data: bytes) -> None:
        """Write `data` without ever waiting; a worker that is gone is found out elsewhere."""
        if not self.is_open:
            return
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
            self._on_full(self, True)
        self._unsent += data

    def flush(self) -> None:
        """Write more of what was kept."""
        try:
            while self._unsent:
                del self._unsent[: self.socket.send(self._unsent[:_READ_BYTES])]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._unsent.clear()
        self._on_full(self, False)

    def receive(self) -> list[tuple[Any, ...]]:
        """Read once and return the messages that are complete; `is_open` becomes False at the end of the stream."""
        try:
            data = receive_from(self.socket, _READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            self.is_open = False
            return []
        return self._frames.feed(data)

    def drain(self) -> list[tuple[Any, ...]]:
        """Return everything that a worker which is gone, or idle, has written."""
        messages: list[tuple[Any, ...]] = []
        while self.is_open:
            try:
                data = receive_from(self.socket, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                self.is_open = False
                break
            messages += self._frames.feed(data)
        return messages


class Slot:
    """One host and what runs under it.

    Attributes:
        pid: of the host, 0 until it has said hello.
        attempt: that it runs, or that waits for it to say hello.
        link: to its worker, which a reused one keeps between attempts.
        born: token of the attempt that the worker was made for.
        key: what a reused worker is good for: request and devices.
        is_dead: its socket is closed, but what it left behind may still run.
    """

    __slots__ = ("attempt", "born", "is_dead", "is_retiring", "key", "life", "link", "number", "nursery", "pid")

    def __init__(self, number: int, life: socket.socket, nursery: Nursery) -> None:
        life.setblocking(False)
        self.number = number
        self.life = life
        self.nursery = nursery
        self.pid = 0
        self.attempt: Attempt | None = None
        self.link: Link | None = None
        self.born = 0
        self.key: Any = None
        self.is_dead = False
        self.is_retiring = False

    @property
    def is_idle(self) -> bool:
        """Whether a reused worker waits here."""
        return self.link is not None and self.attempt is None

    def tell(self, *message: Any, descriptors: tuple[int, ...] = ()) -> None:
        """Send a message to the host; one that is gone, or is stopped and takes no more, is found out elsewhere."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.life, [pickle.dumps(message, 5)], descriptors)

    def hear(self) -> list[tuple[Any, ...]]:
        """Return what the host says; `is_dead` becomes True when it is gone."""
        messages: list[tuple[Any, ...]] = []
        while not self.is_dead:
            try:
                data = receive_from(self.life, _MESSAGE_BYTES)
            except BlockingIOError:
                break
            if not data:
                self.is_dead = True
                break
            messages.append(pickle.loads(data))
        return messages
