"""The processes that attempts run in, as the driver sees them: a fork server, and a supervisor for each slot."""

from __future__ import annotations

import contextlib
import errno
import itertools
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sweep.core.messages import Kill
from sweep.core.resources import Resources
from sweep.core.trial import Outcome, Trial
from sweep.engines.base import EngineContext
from sweep.engines.link import Link
from sweep.engines.local.fork_server_client import PRELOADED, ForkServerClient, cache, fork_server_for
from sweep.engines.local.processes import await_end, send
from sweep.engines.loop import Loop
from sweep.worker import limits, wire
from sweep.worker.channel import Packets

Key = tuple[Resources, tuple[tuple[str, str], ...]]
"""What a reused worker must have in common with a trial: request and devices."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One start of a trial, from `Start` to `Released`.

    Attributes:
        link: to its worker, once the job was sent.
        outcome: the worker's last word.
        pids: of the worker, or of the ranks, once they have started.
        kill: the command that is to end it.
        is_stopping: a Stop was sent.
        refusal: why the kernel does not allow it to run so far, as was said last.
        blockers: slots whose idle worker holds devices of this one, and is being ended.
        is_multi_node: it is a group with ranks on other machines, too: the driver says when all may start.
    """

    token: int
    trial: Trial
    slot: Slot | None = None
    link: Link | None = None
    outcome: Outcome | None = None
    pids: tuple[int, ...] = ()
    has_reported: bool = False
    kill: Kill | None = None
    is_stopping: bool = False
    refusal: str = ""
    blockers: set[int] = field(default_factory=set)
    is_multi_node: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Return the trial's id and the number of the attempt."""
        return self.trial.id, self.trial.attempt


@dataclass(slots=True, eq=False)
class Slot:
    """One supervisor and what runs under it.

    Attributes:
        life: the socket to the supervisor; what the supervisor has left behind may still run when it is closed.
        pid: of the supervisor, 0 until it has said hello.
        attempt: that it runs, or that waits for it to say hello.
        link: to its worker, which a reused one keeps between attempts.
        born: token of the attempt that the worker was made for. worker: its pid, once known.
        key: what a reused worker is good for.
        held: the trial whose devices an idle reused worker may still use.
        is_retiring: its idle worker is being ended.
    """

    number: int
    life: Packets
    fork_server: ForkServerClient
    pid: int = 0
    attempt: Attempt | None = None
    link: Link | None = None
    born: int = 0
    worker: int = 0
    key: Key | None = None
    held: Trial | None = None
    is_retiring: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether the socket to the supervisor is closed."""
        return not self.life.is_open

    @property
    def is_idle(self) -> bool:
        """Whether a reused worker waits here."""
        return self.link is not None and self.attempt is None and not self.is_dead

    def tell(self, message: wire.ToSupervisor, descriptors: Sequence[int] = ()) -> None:
        """Send a message to the supervisor; one that is gone or stopped is found out elsewhere."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self.life.send(message, descriptors)

    def retire(self) -> None:
        """Have an idle worker ended."""
        if not self.is_retiring:
            self.is_retiring = True
            self.tell(wire.Retire())

    def drop_link(self, loop: Loop) -> None:
        """Close the socket to the worker, which is gone."""
        if self.link is not None:
            loop.ignore(self.link.socket.fileno())
            self.link.close()
        self.link = self.key = None
        self.worker = 0


def key_of(trial: Trial) -> Key:
    """Return what a reused worker must have in common with a trial."""
    return (trial.resources, trial.placement.placed_devices if trial.placement is not None else ())


_SLOT_FILES = 4  # life and data socket, and their other ends for a moment


@dataclass(eq=False)
class Supervisors:
    """Starts supervisors and ends them; what they say of attempts is for the engine.

    Attributes:
        log: gets what the modules print that are imported in advance.
        environ: the variables that trials start from.
        on_message: called with each message of a supervisor. The last is `Gone`: with all that it had left behind,
            or no fork server is there to say so, and then the engine ends what can be found.
        refuse: an attempt gets no supervisor, because of this errno.
        is_importing: the fork server imports this module now.
        is_ready: it has imported these modules, which started so many threads.
        say: called with each line for the user.
        locks: descriptors that every supervisor holds, beside that of the experiment's lock.
        slots: those that there are, by number.
    """

    context: EngineContext
    loop: Loop
    log: Path
    environ: Mapping[str, str]
    on_message: Callable[[Slot, wire.FromSupervisor | wire.Gone], None]
    refuse: Callable[[Attempt, int], None]
    is_importing: Callable[[str], None]
    is_ready: Callable[[int, tuple[str, ...]], None]
    say: Callable[[str], None]
    locks: Sequence[int] = ()
    slots: dict[int, Slot] = field(default_factory=dict, init=False)
    _fork_server: ForkServerClient | None = field(default=None, init=False)
    _has_import_crashed: bool = field(default=False, init=False)  # then trials import for themselves
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)

    @cached_property
    def _modules(self) -> tuple[str, ...]:
        modules = tuple(dict.fromkeys((*self.context.preload, *self.context.trainable.imports)))
        if any(name.startswith("sweep.train.") for name in modules):
            modules = (*modules, "sweep.engines.local.group", "sweep.worker.rank")
        return modules

    def start(self) -> ForkServerClient:
        """Start a fork server, or take the one that an earlier run of this process has left.

        Raises:
            OSError: the kernel allows no process or descriptor.
        """
        modules = () if self._has_import_crashed else self._modules
        modules = () if self.context.start_method == "spawn" else (*PRELOADED, *modules)
        run = wire.Begin(str(self.context.directory.absolute()), modules, self.context.reuse_actors)
        locks = (*self.locks, *([] if self.context.lock_fd is None else [self.context.lock_fd]))
        fork_server = fork_server_for(self.environ, run, self.log, locks)
        self._fork_server = fork_server
        for descriptor in (fork_server.packets.socket.fileno(), fork_server.pidfd):
            self.loop.listen(descriptor, lambda: self._on_fork_server(fork_server))
        return fork_server

    def free(self) -> Slot | None:
        """Return a slot without an attempt, rather one in which no reused worker waits; None: there is none."""
        found = [s for s in self.slots.values() if s.attempt is None and not s.is_dead and not s.is_retiring]
        slot = min(found, key=lambda slot: slot.link is not None, default=None)
        if slot is not None and slot.link is not None:
            # An idle worker for another request: the supervisor ends it first, because it reads its messages in order.
            slot.retire()
            slot.drop_link(self.loop)
        return slot

    def new(self) -> Slot:
        """Have a supervisor made, which says hello when it is there.

        Raises:
            OSError: the kernel allows no process or descriptor.
        """
        taken = [slot.link is None for slot in self.slots.values() if slot.attempt is not None]
        if taken:
            limits.keep_reserve(_SLOT_FILES + sum(taken))  # those that have no link yet will need one
        fork_server = self._fork_server or self.start()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            slot = Slot(next(self._numbers), Packets(ours), fork_server)
            fork_server.packets.send(wire.ForkSupervisor(slot.number), [theirs.fileno()])
        except OSError as error:
            ours.close()
            if isinstance(error, BlockingIOError):
                raise OSError(errno.ENOBUFS, "requests to the process that forks, which is busy") from None
            raise
        finally:
            theirs.close()
        self.slots[slot.number] = slot
        self.loop.listen(ours.fileno(), lambda: self._on_supervisor(slot))
        return slot

    def give_up_idle(self) -> None:
        """End the supervisors that nothing needs now; when there is no attempt in any, one stays for the next."""
        living = [slot for slot in self.slots.values() if not slot.is_dead]
        idle = [slot for slot in living if slot.attempt is None and not slot.is_retiring]
        for slot in idle[1:] if len(idle) == len(living) else idle:
            if slot.link is not None:
                slot.retire()  # its devices must be clean before they are granted again
                continue
            self.loop.ignore(slot.life.socket.fileno())
            slot.life.close()
            if not slot.fork_server.is_alive:  # nothing would say that it is gone
                self._bury(slot)

    def retire_idle(self) -> None:
        """End the idle reused workers, for what they hold."""
        for slot in self.slots.values():
            if slot.is_idle:
                slot.retire()

    def wake(self) -> None:
        """Have fork servers and supervisors go on that somebody has stopped (SIGSTOP): they are to end."""
        for slot in self.slots.values():
            slot.fork_server.wake()
            if slot.pid and not slot.is_dead:
                send(signal.SIGCONT, slot.pid)

    def end(self, slot: Slot) -> None:
        """End a supervisor that does not react, for instance because it was stopped (SIGSTOP)."""
        slot.fork_server.wake()
        send(signal.SIGKILL, slot.pid)

    def close(self, *, is_in_order: bool = False) -> None:
        """End everything, and return when it is gone.

        Args:
            is_in_order: the run has come to its end: the fork server may be cached for another.
        """
        orphans = []
        for slot in self.slots.values():
            if slot.link is not None:
                slot.link.socket.close()
            slot.life.close()
            if slot.pid and not slot.fork_server.is_alive:
                orphans.append(slot.pid)
        fork_server = self._fork_server
        if fork_server is not None:
            if is_in_order and fork_server.rest():
                cache(fork_server)
            else:
                fork_server.close()
        for pid in orphans:
            await_end(pid)
        self.slots.clear()

    def _on_supervisor(self, slot: Slot) -> None:
        for message in slot.life.receive_all():
            self.on_message(slot, message)
        if slot.is_dead and slot.number in self.slots:
            self.loop.ignore(slot.life.socket.fileno())
            if not slot.fork_server.is_alive:
                self._bury(slot)
            # otherwise the fork server says when everything that it left behind is gone

    def _bury(self, slot: Slot) -> None:
        for message in slot.life.receive_all():
            self.on_message(slot, message)
        self.loop.ignore(slot.life.socket.fileno())
        slot.life.close()
        del self.slots[slot.number]
        self.on_message(slot, wire.Gone(slot.number))

    def _on_fork_server(self, fork_server: ForkServerClient) -> None:
        for message in fork_server.packets.receive_all():
            self._on_fork_servers_word(fork_server, message)
        if not fork_server.is_alive:
            self._on_fork_server_gone(fork_server)

    def _on_fork_servers_word(self, fork_server: ForkServerClient, message: wire.FromForkServer) -> None:
        match message:
            case wire.Importing(module):
                fork_server.importing = module
                self.is_importing(module)
            case wire.Notice(text):
                self.say(text)
            case wire.Ready(num_threads):
                fork_server.importing = None
                self.is_ready(num_threads - 1, self._modules)
            case wire.Gone(number) if number in self.slots:
                self._bury(self.slots[number])
            case wire.Refused(number, errno) if number in self.slots:
                slot = self.slots[number]
                attempt, slot.attempt = slot.attempt, None
                self._bury(slot)
                if attempt is not None:
                    self.refuse(attempt, errno)

    def _on_fork_server_gone(self, fork_server: ForkServerClient) -> None:
        """Trials go on without their fork server; another is started when the next supervisor is needed."""
        for descriptor in (fork_server.packets.socket.fileno(), fork_server.pidfd):
            self.loop.ignore(descriptor)
        how = fork_server.close()
        while_importing = ""
        if fork_server.importing:
            self._has_import_crashed = True
            while_importing = f" while importing {fork_server.importing}; trials import for themselves now"
        self.say(f"the process that imports modules in advance ended ({how}){while_importing}")
        if self._fork_server is fork_server:
            self._fork_server = None
        for slot in [slot for slot in self.slots.values() if slot.fork_server is fork_server]:
            if slot.is_dead or not slot.pid:
                self._bury(slot)
