"""What driver and workers say to each other: pickled tuples behind a length of four bytes, over a stream socket.

    driver -> worker   a `Job`                          once per attempt
                       (CONTINUE, token, seq, False)    answer to report `seq`
                       (SAVE, token, seq, False)        the same; a class trainable stores a checkpoint first
                       (STOP, token, seq, save)         end; may come at any time
    worker -> driver   (STARTED, token, pid)
                       (REPORT, token, seq, metrics, checkpoint)
                       (SAVED, token, seq, checkpoint)
                       (DONE, token, kind, error, traceback, class_name, pickled)

The token counts the attempts of an engine, so that a reused worker cannot take an answer meant for an earlier trial.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any, NamedTuple, Protocol

__all__ = [
    "CONTINUE",
    "DONE",
    "JOB",
    "REPORT",
    "SAVE",
    "SAVED",
    "STARTED",
    "STOP",
    "Channel",
    "ChannelClosed",
    "Frames",
    "Job",
    "SocketChannel",
    "frame",
]

JOB, CONTINUE, SAVE, STOP, STARTED, REPORT, SAVED, DONE = range(8)

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 18


class Job(NamedTuple):
    """Everything a worker must know to run one attempt.

    Attributes:
        token: of the attempt in its engine.
        directory: of the experiment, absolute.
        code: path of the pickled trainable.
        objects: path of the objects given by `with_parameters`, or empty.
        config: the config, as cloudpickle bytes.
        variables: environment variables to set; None removes one.
        num_threads: for the numeric libraries.
        seed: for the global random generators.
        base_count: reports that the trial had made when the checkpoint was taken.
        checkpoint: absolute path of the checkpoint to start from, or empty.
        resources: the trial's request as JSON values.
        is_chdir: run in the trial's directory.
    """

    token: int
    trial_id: str
    attempt: int
    experiment: str
    directory: str
    code: str
    kind: str
    name: str
    objects: str
    config: bytes
    variables: dict[str, str | None]
    num_threads: int
    seed: int
    base_count: int
    checkpoint: str
    resources: dict[str, Any]
    is_chdir: bool


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel(Protocol):
    """How a session talks to its driver."""

    def send(self, data: bytes) -> None:
        """Send what `frame` returned.

        Raises:
            ChannelClosed: nobody will read it.
        """

    def receive(self) -> tuple[Any, ...]:
        """Wait for the next message.

        Raises:
            ChannelClosed: there will be none.
        """


def frame(message: tuple[Any, ...]) -> bytes:
    """Return the bytes that carry `message`."""
    data = pickle.dumps(message, 5)
    return _LENGTH.pack(len(data)) + data


class Frames:
    """Cut a stream of bytes into messages."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[Any, ...]]:
        """Return the messages that `data` completes."""
        if self._rest:
            data = self._rest + data
        size = len(data)
        if size >= 4:
            end = 4 + int.from_bytes(data[:4], "little")
            if end == size:  # one whole message: what a lock-step peer nearly always sends
                self._rest = b""
                return [pickle.loads(memoryview(data)[4:])]
        messages = []
        view = memoryview(data)
        at = 0
        while size - at >= 4:
            end = at + 4 + _LENGTH.unpack_from(data, at)[0]
            if end > size:
                break
            messages.append(pickle.loads(view[at + 4 : end]))
            at = end
        self._rest = bytes(view[at:])
        return messages


class SocketChannel:
    """The worker's end of its socket: blocking, one thread at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._frames = Frames()
        self._ready: list[tuple[Any, ...]] = []

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def send(self, data: bytes) -> None:
        """Send what `frame` returned, whole."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChannelClosed from error

    def receive(self) -> tuple[Any, ...]:
        """Wait for the next message."""
        while not self._ready:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except ConnectionResetError:
                continue  # the driver closed with a message of ours unread; what it had written still comes
            if not data:
                raise ChannelClosed
            self._ready = self._frames.feed(data)
        return self._ready.pop(0)
