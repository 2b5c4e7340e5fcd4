"""What the processes of an engine say to each other: a class for each message, and how it is written.

Jobs, reports and their answers go over stream sockets (`channel.SocketChannel`, `engines.link.Link`), and what concerns
the processes themselves over packet sockets (`channel.Packets`). For a training group the supervisor stands between:
upwards it speaks like a worker, and to each rank like a driver.

Where the core has a class for what a worker is told or says, that is sent: it names trial and attempt, so that a reused
worker cannot take an answer meant for an earlier trial.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints
from zlib import crc32

from sweep.core.messages import Continue, Kill, Reported, Save, Saved, Started, Stop, Waiting
from sweep.core.resources import Device, Placement, Resources
from sweep.core.trial import Cause, Outcome
from sweep.errors import SweepError

MAX_BYTES = 1 << 26
"""What a worker's message takes at most: a report takes 1 MiB, an outcome little more, and any text that strays into
the socket gives a greater length."""

_HEAD = struct.Struct("<II")  # length and checksum

# --- to a worker -----------------------------------------------------------------------------------------------------


class Rank(NamedTuple):
    """Which worker of a training group a process is.

    Attributes:
        rank, size: in the whole group.
        local_rank, local_size: among the workers of the same node.
        node_rank, num_nodes: of its node among those of the group, by first appearance.
        devices: positions of its own GPUs in the list of those that it sees (`cuda:i`).
        num_tpus: TPU chips that it holds.
        port: of the group's rendezvous.
        listener: descriptor of the listening socket of that port, in rank 0; -1 elsewhere.
        backend: of torch, as the devices allow it.
        address: at which the port is: that of rank 0's node where ranks lie on several nodes.
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
    address: str = "127.0.0.1"


class Job(NamedTuple):
    """Driver to worker, supervisor to rank, once per attempt: everything that is needed to run it.

    Attributes:
        directory: of the experiment, absolute; home: the trial's, in that; empty: it bears the trial's id.
        code, objects: paths of the pickled trainable, and of the objects given by `with_parameters`, or empty.
        config: the config, as cloudpickle bytes.
        variables: of the environment, to set; None removes one.
        base_count: reports that the trial had made when the checkpoint was taken.
        checkpoint: absolute path of the checkpoint to start from, or empty.
        resources, placement: the trial's request and what it holds; devices: those, with their nodes.
        rank: which worker of a group this is; None: the trial is this one process.
        own_threads: what the user has set `OMP_NUM_THREADS` to; empty: nothing.
        log_limit_bytes: size that each file of the trial's output is kept below; 0: unlimited.
        outputs: names of the files for standard output and standard error; empty: both go to `output.log`.
        is_guess: `resources` have room for a `fit()` as another trial called it; see `core.trial.Escalation`.
        node, node_ip: id and address of the node that its process is on, where there are several machines.
        is_staged: checkpoints of other attempts of the trial may lie where this one does not see them.
        has_company: other trials may run at the same time.
    """

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
    resources: Resources
    is_chdir: bool
    rank: Rank | None = None
    home: str = ""
    placement: Placement | None = None
    devices: tuple[tuple[str, Device], ...] = ()
    own_threads: str = ""
    log_limit_bytes: int = 0
    outputs: tuple[str, ...] = ()
    trial_name: str = ""
    is_guess: bool = False
    node: str = ""
    is_staged: bool = False
    node_ip: str = ""
    has_company: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """The trial's id and the number of the attempt."""
        return self.trial_id, self.attempt

    @property
    def trial_dir(self) -> str:
        """The trial's directory, absolute."""
        return os.path.join(self.directory, self.home or self.trial_id)

    @property
    def shown_name(self) -> str:
        """The trial's name as people see it."""
        return self.trial_name or f"{self.name}_{self.trial_id}"


class RankJob(NamedTuple):
    """What a rank's job has in place of what the group's says, and its node; `variables` are added to the group's."""

    rank: Rank
    variables: dict[str, str | None]
    num_threads: int
    node: str = ""


class GroupJob(NamedTuple):
    """Driver, or worker with a `fit()`, to supervisor, once per group: everything that is needed to run it.

    Attributes:
        job: what all ranks have in common.
        is_listening: the first port's socket listens and is handed to rank 0; otherwise ports are only kept free.
        is_spawned: ranks are started as fresh interpreters; otherwise they are forked.
        log_limit_bytes: of each rank's output.
        hang_s: see `core.group.Limits`.
        elsewhere: ranks on other nodes, with their nodes; `ranks` are those on this one.
    """

    job: Job
    ranks: tuple[RankJob, ...]
    is_listening: bool = False
    is_spawned: bool = False
    log_limit_bytes: int = 0
    hang_s: float | None = None
    elsewhere: tuple[tuple[int, str], ...] = ()


class Merge(NamedTuple):
    """Supervisor to rank: make one checkpoint of these directories, which came with report `seq`."""

    seq: int
    shards: tuple[str, ...]


class Stored(NamedTuple):
    """Supervisor to rank, before the answer to a report: the checkpoint that was stored with it."""

    checkpoint: str


# --- from a worker ---------------------------------------------------------------------------------------------------


class Done(NamedTuple):
    """Worker, rank or supervisor, upwards, last: how the user's code ended, and when by the monotonic clock.

    Attributes:
        is_idle: this is a reused worker that has left nothing behind, and is ready for its next job.
    """

    outcome: Outcome
    at: float
    is_idle: bool = False


class LaneDone(NamedTuple):
    """Worker of many lanes to driver: how the attempt of one ended."""

    trial_id: str
    attempt: int
    outcome: Outcome


class LaneDeclined(NamedTuple):
    """Worker of many lanes to driver, before anything else of an attempt: there is no memory for it."""

    trial_id: str
    attempt: int


class Room(NamedTuple):
    """Worker of many lanes to driver: how many it has room for from now on, and, where they are fewer, why."""

    num_lanes: int
    why: str


class Pids(NamedTuple):
    """Supervisor to driver, before anything else of a group: the processes of its ranks."""

    pids: tuple[int, ...]


class Joined(NamedTuple):
    """Rank to supervisor: it has found the others."""


class Merged(NamedTuple):
    """Rank to supervisor: the checkpoint that was made; empty: it could not be."""

    seq: int
    checkpoint: str


# --- between driver and supervisor ------------------------------------------------------------------------------------


class StartWorker(NamedTuple):
    """Driver to supervisor, with a data socket: fork a worker for it, whose output goes to `logs`."""

    logs: tuple[str, ...]
    log_limit_bytes: int
    is_spawned: bool


class StartGroup(NamedTuple):
    """Driver or worker to supervisor, with a data socket and ports: run the group that is described over the socket,
    or the ranks of a group that are on another node than rank 0."""

    is_remote: bool = False


class EndTree(NamedTuple):
    """Driver to supervisor: end the worker or the group, if there is one, with all that it has started.

    `Exited` follows; until then the driver has that worker run nothing more.
    """


class Hello(NamedTuple):
    """Supervisor to driver, first: it is there."""

    pid: int


class Exited(NamedTuple):
    """Supervisor to driver: the worker, or the group, is gone, with its tree; `status` as of wait()."""

    status: int
    peak_rss_bytes: int


class Idle(NamedTuple):
    """Reused worker to supervisor: it is done with its job. Supervisor to driver: and what it has left is gone."""


class Refused(NamedTuple):
    """Supervisor to driver: the kernel allows no worker. Fork server to driver: or not the supervisor `number`."""

    errno: int
    number: int = 0


# --- between driver and fork server ---------------------------------------------------------------------------------


class Preload(NamedTuple):
    """Driver to fork server, before its first run: import these modules, while the driver gets ready for the run."""

    modules: tuple[str, ...]


class Begin(NamedTuple):
    """Driver to fork server, once per run, with descriptors: of the log, and of files that stay locked until the run is
    over and every supervisor is gone.

    Attributes:
        directory: of the experiment, absolute.
        modules: to import, as far as they are not.
        is_reusing: workers stay after their attempt.
    """

    directory: str
    modules: tuple[str, ...]
    is_reusing: bool


class Rest(NamedTuple):
    """Driver to fork server, once the supervisors lost their sockets: the run is over. It waits for the next."""


class ForkSupervisor(NamedTuple):
    """Driver to fork server, with the supervisor's life socket: fork a supervisor."""

    number: int


class Importing(NamedTuple):
    """Fork server to driver: it imports this module now."""

    module: str


class Notice(NamedTuple):
    """Fork server to driver: what the user should be shown."""

    text: str


class Ready(NamedTuple):
    """Fork server to driver: everything is imported, and this process has so many threads."""

    num_threads: int


class Resting(NamedTuple):
    """Fork server to driver: nothing of the run is left, it may serve another. One that is not sure ends instead."""


class Gone(NamedTuple):
    """Fork server to driver: that supervisor ended, with this wait status, and so did everything that it left."""

    number: int
    status: int | None = None


# --- between a driver and its agents on several machines --------------------------------------------------------------


class Prepare(NamedTuple):
    """Driver to agent, first: what to run and how, a `engines.agent.Setup`."""

    setup: Any


class Prepared(NamedTuple):
    """Agent to driver: it can run trials, on this node, of which other sweeps hold so much; or why it cannot.

    `is_staged`: their files go through remote storage.
    """

    node: Any
    problem: str = ""
    others: tuple[Any, ...] = ()
    is_staged: bool = False


class Order(NamedTuple):
    """Driver to agent: a command of the core, with a `Payload` if it starts an attempt."""

    command: Any
    payload: Any = None


class Want(NamedTuple):
    """Driver to agent: what could start, were it not for other sweeps; None: nothing."""

    wanted: Any


class Happened(NamedTuple):
    """Agent to driver: events, in order, and lines for the user."""

    events: tuple[Any, ...]
    notices: tuple[str, ...] = ()


class Leaves(NamedTuple):
    """Agent to driver: its node will be taken away."""


class Written(NamedTuple):
    """Agent to driver: what an attempt has printed to a file of its trial, from byte `at` of what it has printed there;
    0: what was sent of that before is replaced."""

    trial_id: str
    attempt: int
    name: str
    at: int
    data: bytes


# --- between the nodes of one group ----------------------------------------------------------------------------------


class RankGone(NamedTuple):
    """Of a rank on another node: its process has ended; `was_told`: because the group ended it."""

    outcome: Outcome
    was_told: bool


class Seen(NamedTuple):
    """Of a part: it has had its ranks write down their stacks; the states of their processes."""

    states: dict[int, str]


class Relayed(NamedTuple):
    """Between the supervisor of rank 0 and one of other ranks, through both agents and the driver.

    Attributes:
        node: that of the other ranks, whoever sends; empty: to all other nodes.
        rank: that `word` is for, or is from; -1: the part itself.
        word: an answer or a `Merge`; an action of `core.group`; what a rank says; None: only the time is asked for.
        at: the sender's monotonic clock.
        lag: least difference between its clock and the times that it was sent so far; None: none came yet.
    """

    node: str
    rank: int
    word: Any
    at: float
    lag: float | None = None


class NodeReady(NamedTuple):
    """Agent to driver: the supervisor of this node's ranks is there, and these ports."""

    ports: tuple[int, ...]


class Meet(NamedTuple):
    """Driver to agents, once all are ready: start the ranks; ports by node."""

    ports: dict[str, tuple[int, ...]]


class Passed(NamedTuple):
    """Between driver and agent, both ways: what concerns an attempt whose ranks lie on several nodes."""

    trial_id: str
    attempt: int
    word: Any


# --- how they are written --------------------------------------------------------------------------------------------

ToWorker = Job | GroupJob | Continue | Save | Stop | Kill | Merge | Stored
WorkerEvent = Started | Reported | Saved | Waiting  # of a rank, `Reported.checkpoint` is its shard
FromWorker = WorkerEvent | Done | LaneDone | LaneDeclined | Room | Pids | Joined | Merged | Relayed
ToSupervisor = StartWorker | StartGroup | EndTree
FromSupervisor = Hello | Exited | Idle | Refused
ToForkServer = Preload | Begin | ForkSupervisor | Rest
FromForkServer = Importing | Notice | Ready | Gone | Refused | Resting
ToAgent = Prepare | Order | Passed | Want
FromAgent = Prepared | Happened | Passed | Written | Leaves
Message = ToWorker | FromWorker | ToSupervisor | FromSupervisor | ToForkServer | FromForkServer | ToAgent | FromAgent

_FROM_WORKER = get_args(FromWorker)

# What the messages of a worker, and those that a supervisor passes on, may consist of beside plain values. By name,
# because the rules of groups are imported only where there are groups.
_PARTS = {(kind.__module__, kind.__name__) for kind in (*get_args(Message), RankGone, Seen, Outcome, Cause)}
_PARTS |= {("sweep.core.group", name) for name in ("Dismiss", "Dump", "KillAll")}


class StrayBytesError(SweepError):
    """What came over a socket is no message."""


def encode(message: Message) -> bytes:
    """Return a message's bytes."""
    return pickle.dumps(message, 5)


def decode(data: bytes | memoryview, *, is_workers: bool = False) -> Any:
    """Return the message that `encode` gave these bytes for.

    Args:
        is_workers: user code may have written them: nothing of it is run, and the fields have their types.

    Raises:
        StrayBytesError: they are something else.
    """
    try:
        if not is_workers:
            return pickle.loads(data)
        message = _Plain(io.BytesIO(data)).load()
        if type(message) not in _FROM_WORKER or not _is_sound(message):
            raise TypeError(f"{type(message).__name__} with other fields")
        return message
    except (Exception, SystemExit) as error:  # whatever bytes make pickle do
        raise StrayBytesError(f"{type(error).__name__}: {error}") from error


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PARTS:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a message")
        return super().find_class(module, name)


@cache
def _types_of(kind: Any) -> list[tuple[str, Any]]:
    hints = get_type_hints(kind).items()
    return [(name, object if h is Any else h if isinstance(h, UnionType) else get_origin(h) or h) for name, h in hints]


def _is_sound(message: Any) -> bool:
    kind: Any = type(message)
    fields = [(getattr(message, name), wanted) for name, wanted in _types_of(kind)]
    return all(isinstance(value, wanted) and (wanted is not Outcome or _is_sound(value)) for value, wanted in fields)


def frame(message: Message) -> bytes:
    """Return the bytes that carry a message over a stream."""
    data = encode(message)
    return _HEAD.pack(len(data), crc32(data)) + data


class Frames:
    """Cut a stream of bytes into messages.

    Args:
        is_workers: a worker holds the other end, and with it the user's code.
    """

    __slots__ = ("_is_workers", "_needed", "_rest")

    def __init__(self, *, is_workers: bool = False) -> None:
        self._is_workers = is_workers
        self._rest = bytearray()
        self._needed = 0  # before the first of the rest is complete

    def feed(self, data: bytes) -> Iterator[Any]:
        """Give the messages that `data` completes.

        Raises:
            StrayBytesError: what follows is none; the stream is of no use any more.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
        view, at, size = memoryview(data), 0, len(data)
        self._needed = _HEAD.size
        while size - at >= _HEAD.size:
            length, checksum = _HEAD.unpack_from(data, at)
            if self._is_workers and length > MAX_BYTES:
                raise StrayBytesError(f"a message of {length:,} bytes; at most {MAX_BYTES:,} are taken")
            begin, end = at + _HEAD.size, at + _HEAD.size + length
            if end > size:
                self._needed = end - at
                break
            if crc32(view[begin:end]) != checksum:
                raise StrayBytesError("a wrong checksum")
            yield decode(view[begin:end], is_workers=self._is_workers)
            at = end
        self._rest = bytearray(view[at:])
