"""What driver and workers say to each other: pickled tuples behind a length of four bytes, over a stream socket.

    driver -> worker   a `Job`                          once per attempt
                       (CONTINUE, token, seq, False)    answer to report `seq`
                       (SAVE, token, seq, False)        the same; a class trainable stores a checkpoint first
                       (STOP, token, seq, save)         end; may come at any time
    worker -> driver   (STARTED, token, pid)
                       (REPORT, token, seq, metrics, checkpoint)
                       (SAVED, token, seq, checkpoint)
                       (WAITING, token, text)           what the trial waits for; empty: nothing any more
                       (DONE, token, kind, error, traceback, class_name, pickled)

For a training group the host stands between: upwards it speaks like a worker, and to each rank like a driver.

    above -> host      a `GroupJob`                     in place of a `Job`
    host -> above      (PIDS, token, pids)              of the ranks, before anything else
                       (WAITING, token, text)           what the group, or a rank of it, waits for
    host -> rank       (CONTINUE or STOP, token, seq, False, path)       path: the checkpoint stored with that report
                       (MERGE, token, seq, shards)      make one checkpoint of these directories
    rank -> host       (JOINED, token)                  it has found the others
                       (REPORT, token, seq, metrics, shard)
                       (WAITING, token, text)           what it waits for; empty: nothing any more
                       (MERGED, token, seq, checkpoint)         empty: it could not be made
                       (DONE, token, kind, error, traceback, class_name, pickled, at)

The token counts the attempts of an engine, so that a reused worker cannot take an answer meant for an earlier trial.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
from typing import Any, NamedTuple, Protocol

from sweep.errors import SweepError

__all__ = [
    "GroupJob",
    "WAITING",
    "PIDS",
    "MERGED",
    "MERGE",
    "JOINED",
    "GROUP",
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
    "Rank",
    "SocketChannel",
    "frame",
]

JOB, CONTINUE, SAVE, STOP, STARTED, REPORT, SAVED, DONE, GROUP, PIDS, WAITING, JOINED, MERGE, MERGED = range(14)

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 18


class Rank(NamedTuple):
    """Which worker of a training group a process is.

    Attributes:
        rank, size: in the whole group.
        local_rank, local_size: among the workers of the same node.
        node_rank, num_nodes: of its node among those of the group, by first appearance.
        devices: positions of its own GPUs in the list of those that it sees (`cuda:i`).
        num_tpus: TPU chips that it holds.
        port: of the group's rendezvous, on loopback.
        listener: descriptor of the listening socket of that port, in rank 0; -1 elsewhere.
        backend: of torch, as the devices allow it.
    """

    rank: int
    size: int
    local_rank: int = 0
    local_size: int = 1
    node_rank: int = 0
    num_nodes: int = 1
    devices: tuple[int, ...] = ()
    num_tpus: int = 0
    port: int = 0
    listener: int = -1
    backend: str = ""


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
        rank: which worker of a group this is; None: the trial is this one process.
        home: the trial's directory, relative to `directory`; empty: it bears the trial's id.
        placement: what the trial holds, as JSON values: for each bundle its node and (device, share) pairs.
        devices: node and values of each `Device` that it holds.
        own_threads: what the user has set `OMP_NUM_THREADS` to; empty: nothing.
        log_limit_bytes: size that each file of the trial's output is kept below; 0: unlimited.
        outputs: names of the files for standard output and standard error; empty: both go to `output.log`.
        trial_name: that the user has given; empty: `<name>_<trial_id>`.
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
    rank: Rank | None = None
    home: str = ""
    placement: Any = None
    devices: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    own_threads: str = ""
    log_limit_bytes: int = 0
    outputs: tuple[str, ...] = ()
    trial_name: str = ""

    @property
    def shown_name(self) -> str:
        """The trial's name as people see it."""
        return self.trial_name or f"{self.name}_{self.trial_id}"


class GroupJob(NamedTuple):
    """Everything a host must know to run one group.

    Attributes:
        job: the values of the `Job` that all ranks have in common; its `variables` come before those of each rank.
        ranks: for each rank the values of its `Rank`, its own variables, its number of threads.
        is_listening: the first port's socket listens and is handed to rank 0; otherwise ports are only kept free.
        path: `sys.path` for ranks that are started as fresh interpreters; empty: they are forked.
        log_limit_bytes: of each rank's output.
        start_s, barrier_s, hang_s: see `core.group.Limits`.
    """

    job: tuple[Any, ...]
    ranks: tuple[tuple[tuple[Any, ...], dict[str, str | None], int], ...]
    is_listening: bool = False
    path: tuple[str, ...] = ()
    log_limit_bytes: int = 0
    start_s: float = 300.0
    barrier_s: float = 300.0
    hang_s: float | None = None


class ChannelClosed(SweepError):
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

    def wait(self, seconds: float) -> bool:
        """Wait for a message, at most so long; whether `receive` has one, or will say that there will be none."""


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

    @property
    def has_message(self) -> bool:
        """Whether `receive` would return without reading."""
        return bool(self._ready)

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
